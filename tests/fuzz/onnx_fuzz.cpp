#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/errors.h"
#include "runtime/onnx/read_model.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto model = headroom::onnx::parse_model(std::as_bytes(std::span(data, size)), "fuzz.onnx");
    for (const headroom::onnx::Tensor& tensor : model.initializers) {
      const auto bytes = static_cast<int64_t>(tensor.data.size());
      if (!tensor.is_absent && bytes != stored_bytes(tensor.type, tensor.elements())) std::abort();
    }
  } catch (const headroom::InvalidArgument&) {
  }
  return 0;
}
