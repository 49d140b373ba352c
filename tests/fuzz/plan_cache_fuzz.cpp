#include <cstdlib>

#include "kernels/cuda/library/plan_cache.h"
#include "runtime/base/errors.h"
#include "tests/fuzz/fuzz_target.h"

// What is accepted must be written as text that reads back the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom::cuda;
  try {
    const PlanTable table = parse_plans({reinterpret_cast<const char*>(data), size});
    if (parse_plans(plans_text(table)) != table) std::abort();
  } catch (const headroom::InvalidArgument&) {
  }
  return 0;
}
