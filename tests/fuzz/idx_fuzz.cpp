#include <cstdlib>

#include "base/errors.h"
#include "examples/models/mnist/idx.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"

// Plain and gzipped: the seeds hold both.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const headroom::MemoryFile file(data, size);
  for (const int rank : {1, 3}) {
    try {
      const headroom::IdxArray array = headroom::read_idx(file.path(), rank);
      int64_t elements = 1;
      for (const int64_t extent : array.extents) elements *= extent;
      if (elements != static_cast<int64_t>(array.data.size())) std::abort();
    } catch (const headroom::InvalidArgument&) {
    }
  }
  return 0;
}
