#include <cstdlib>
#include <string_view>

#include "tests/fuzz/fuzz_target.h"
#include "tools/explain/explanation.h"
#include "tools/explain/log_reader.h"

// Any bytes are a log, and get a verdict with two different steps. In pieces they get the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom::explain;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Explanation whole = explain(read_log(text));
  if (whole.next[0].command == whole.next[1].command || whole.judgment.reason.empty()) std::abort();
  LogReader reader;
  reader.feed(text.substr(0, size / 3));
  reader.feed(text.substr(size / 3));
  if (explain(reader.finish()).judgment.cause != whole.judgment.cause) std::abort();
  return 0;
}
