#include "ops/elementwise.h"

#include <fmt/format.h>

#include "ops/op_check.h"

namespace headroom {
namespace {

Shape broadcast_all(const OpCheck& c, std::initializer_list<size_t> operands) {
  Shape result;
  for (size_t i : operands) {
    Shape next;
    c.require(broadcast(result, c.shape(i), &next), "shapes do not broadcast");
    result = next;
  }
  return result;
}

}  // namespace

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
  c.count(2);
  const DType dtype = c.input(0).dtype;
  c.dtype(1, dtype);
  c.require(kind != BinaryKind::kPow || dtype == DType::kF32, "takes f32");
  return {{dtype, broadcast_all(c, {0, 1})}};
}

Outputs Compare::infer(const OpCheck& c) const {
  c.count(2);
  c.dtype(1, c.input(0).dtype);
  return {u8(broadcast_all(c, {0, 1}))};
}

Outputs Where::infer(const OpCheck& c) const {
  c.count(3);
  c.dtype(0, DType::kU8);
  c.dtype(2, c.input(1).dtype);
  return {{c.input(1).dtype, broadcast_all(c, {0, 1, 2})}};
}

Outputs Cast::infer(const OpCheck& c) const {
  c.require(c.size() > 0, "takes at least one tensor");
  Outputs outputs;
  for (size_t i = 0; i < c.size(); ++i) {
    c.require(c.size() == 1 || (is_real(c.input(i).dtype) && is_real(to)), "takes several floats to floats");
    outputs.push_back({to, c.shape(i)});
  }
  return outputs;
}

Outputs AddPairs::infer(const OpCheck& c) const {
  const size_t pairs = c.size() / 2;
  c.require(pairs > 0 && c.size() % 2 == 0, "takes pairs of tensors");
  Outputs outputs;
  for (size_t i = 0; i < pairs; ++i) {
    c.require(is_real(c.input(i).dtype) && is_real(c.input(pairs + i).dtype), "takes floats");
    c.same_shape(pairs + i, c.shape(i));
    outputs.push_back({DType::kF32, c.shape(i)});
  }
  return outputs;
}

Outputs Dropout::infer(const OpCheck& c) const {
  c.count(2);
  c.dtype(0, DType::kF32);
  c.scalar(1, DType::kI32);
  c.require(rate >= 0 && rate < 1, fmt::format("rate must be in [0, 1), got {}", rate));
  return {c.input(0)};
}

Outputs RandomUniform::infer(const OpCheck& c) const {
  c.count(1);
  c.scalar(0, DType::kI32);
  return {f32(shape)};
}

}  // namespace headroom
