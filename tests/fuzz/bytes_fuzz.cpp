#include <cstdlib>

#include "base/bytes.h"
#include "base/errors.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const int64_t bytes = headroom::parse_bytes({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (bytes < 0 || bytes >= int64_t{1} << 60) std::abort();
  } catch (const headroom::InvalidArgument&) {
  }
  return 0;
}
