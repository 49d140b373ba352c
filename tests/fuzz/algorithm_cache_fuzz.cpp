#include <cstdlib>

#include "base/errors.h"
#include "kernels/cuda/library/algorithm_cache.h"
#include "tests/fuzz/fuzz_target.h"

// Text that is accepted must read back the same when written.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom::cuda;
  try {
    const AlgorithmTable table = parse_algorithms({reinterpret_cast<const char*>(data), size});
    if (parse_algorithms(algorithms_text(table)) != table) std::abort();
  } catch (const headroom::InvalidArgument&) {
  }
  return 0;
}
