#include <cstdlib>

#include "base/errors.h"
#include "base/safetensors.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const headroom::MemoryFile file(data, size);
  try {
    for (const headroom::NamedTensor& tensor : headroom::load_safetensors(file.path()).tensors) {
      if (tensor.spec.bytes() != static_cast<int64_t>(tensor.data.size())) std::abort();
    }
  } catch (const headroom::InvalidArgument&) {
  }
  return 0;
}
