// What a tensor is without saying who owns its bytes: a dtype, a shape, and, in a view, an address.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"

namespace headroom {

struct TensorSpec {
  DType dtype = DType::kF32;
  Shape shape;

  int64_t bytes() const { return shape.elements() * element_bytes(dtype); }
  bool operator==(const TensorSpec&) const = default;
};

// "f32[64,26,26,32]".
std::string to_string(const TensorSpec& spec);

// A dense row-major tensor in some device's memory; owns nothing. `data` is null for an optional output that
// nobody reads.
struct TensorView {
  void* data = nullptr;
  TensorSpec spec;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  const Shape& shape() const { return spec.shape; }
  int64_t elements() const { return spec.shape.elements(); }
};

}  // namespace headroom
