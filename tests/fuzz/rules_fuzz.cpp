#include <cstdlib>
#include <string_view>

#include "base/errors.h"
#include "tests/fuzz/fuzz_target.h"
#include "tools/explain/explanation.h"
#include "tools/explain/log_reader.h"

// Any bytes are a file of rules, or are refused; a log gets a verdict by them with two different steps. The
// bytes are the log, so that their own rules meet it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom::explain;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Rules rules(RulesFile{"fuzz.txt", text});
    const Explanation explanation = explain(read_log(text, rules));
    if (explanation.next[0].command == explanation.next[1].command) std::abort();
    if (explanation.judgment.reason.empty()) std::abort();
  } catch (const headroom::InvalidArgument&) {
  }
  return 0;
}
