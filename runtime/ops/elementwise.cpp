#include "runtime/ops/elementwise.h"

#include <fmt/format.h>

#include "runtime/ops/op_check.h"

namespace headroom {

Outputs Unary::infer(const OpCheck& c) const {
  c.floats(1);
  return {c.input(0)};
}

Outputs UnaryGrad::infer(const OpCheck& c) const {
  c.floats(2);
  c.same_shape(1, c.shape(0));
  return {c.input(0)};
}

Outputs Scale::infer(const OpCheck& c) const {
  c.floats(1);
  return {c.input(0)};
}

Outputs Binary::infer(const OpCheck& c) const {
  c.floats(2);
  Shape result;
  c.require(broadcast(c.shape(0), c.shape(1), &result), "shapes do not broadcast");
  return {f32(result)};
}

Outputs Cast::infer(const OpCheck& c) const {
  c.count(1);
  return {{to, c.shape(0)}};
}

Outputs Dropout::infer(const OpCheck& c) const {
  c.count(2);
  c.dtype(0, DType::kF32);
  c.scalar(1, DType::kI32);
  c.require(rate >= 0 && rate < 1, fmt::format("rate must be in [0, 1), got {}", rate));
  return {c.input(0)};
}

}  // namespace headroom
