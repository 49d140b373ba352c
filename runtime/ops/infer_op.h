// The rules of shapes behind infer_outputs: each checks the operands of one op and gives its results. Those
// of images are declared here, all others stand beside infer_outputs. Knows no memory.
#pragma once

#include <vector>

#include "runtime/ops/op_check.h"
#include "runtime/ops/ops.h"

namespace headroom {

using Outputs = std::vector<TensorSpec>;

inline TensorSpec f32(Shape shape) {
  return {DType::kF32, shape};
}
inline TensorSpec i32(Shape shape) {
  return {DType::kI32, shape};
}
inline TensorSpec u8(Shape shape) {
  return {DType::kU8, shape};
}

Outputs infer(const Conv2d& op, const OpCheck& c);
Outputs infer(const Conv2dInputGrad& op, const OpCheck& c);
Outputs infer(const Conv2dFilterGrad& op, const OpCheck& c);
Outputs infer(const MaxPool& op, const OpCheck& c);
Outputs infer(const MaxPoolGrad& op, const OpCheck& c);
Outputs infer(const AvgPool& op, const OpCheck& c);
Outputs infer(const AvgPoolGrad& op, const OpCheck& c);
Outputs infer(const ConvBlock& op, const OpCheck& c);
Outputs infer(const ConvBlockInputGrad& op, const OpCheck& c);
Outputs infer(const ConvBlockFilterGrad& op, const OpCheck& c);

}  // namespace headroom
