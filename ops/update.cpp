#include "ops/update.h"

#include <fmt/format.h>

#include "ops/op_check.h"

namespace headroom {
namespace {

// A variable and its gradient have the same shape, its states that of the shard.
void check_optimizer(const OpCheck& c, const UpdateOperands& operands, const Shard& shard, bool scaled) {
  const size_t shared = operands.shared, per_variable = operands.per_variable;
  c.require(shard.of >= 1 && shard.index >= 0 && shard.index < shard.of,
            fmt::format("there is no shard {} of {}", shard.index, shard.of));
  c.require(c.size() > shared && (c.size() - shared) % per_variable == 0,
            fmt::format("takes {} operand{} and {} for each variable, got {}", shared, shared == 1 ? "" : "s",
                        per_variable, c.size()));
  c.scalar(0, DType::kF32);
  if (scaled) c.scalar(shared - 1, DType::kF32);
  for (size_t i = shared; i < c.size(); ++i) {
    const size_t place = (i - shared) % per_variable;
    if (place != 1 || !is_half(c.input(i).dtype)) c.dtype(i, DType::kF32);
    const Shape& variable = c.shape(i - place);
    c.same_shape(i, place < 2 || shard.is_whole() ? variable : Shape{shard.size(variable.elements())});
  }
}

}  // namespace

Outputs AllReduce::infer(const OpCheck& c) const {
  const size_t first = follows ? 1 : 0;
  c.require(replicas >= 1, fmt::format("there must be a replica, got {}", replicas));
  c.require(c.size() > first, "takes at least one operand to sum");
  Outputs outputs;
  for (size_t i = first; i < c.size(); ++i) {
    if (c.input(i).dtype != DType::kBf16) c.dtype(i, DType::kF32);
    outputs.push_back(c.input(i));
  }
  return outputs;
}

Outputs SgdUpdate::infer(const OpCheck& c) const {
  check_optimizer(c, operands(), shard, scaled);
  return {};
}

Outputs RmspropUpdate::infer(const OpCheck& c) const {
  check_optimizer(c, operands(), shard, scaled);
  return {};
}

Outputs AdamUpdate::infer(const OpCheck& c) const {
  check_optimizer(c, operands(), shard, scaled);
  c.scalar(1, DType::kI32);
  return {};
}

Outputs MovingAverageUpdate::infer(const OpCheck& c) const {
  c.require(c.size() > 0 && c.size() % 2 == 0, fmt::format("takes pairs of operands, got {}", c.size()));
  c.floats(c.size());
  for (size_t i = 0; i < c.size(); i += 2) c.same_shape(i + 1, c.shape(i));
  return {};
}

Outputs LossScaleUpdate::infer(const OpCheck& c) const {
  c.count(4);
  c.scalar(0, DType::kU8);
  c.scalar(1, DType::kF32);
  c.scalar(2, DType::kI32);
  c.scalar(3, DType::kI32);
  return {};
}

Outputs CounterUpdate::infer(const OpCheck& c) const {
  c.count(1);
  c.scalar(0, DType::kI32);
  return {};
}

Outputs RowUpdate::infer(const OpCheck& c) const {
  c.require(c.size() >= 3 && c.size() % 2 == 1,
            fmt::format("takes a step and pairs of table and row, got {} operands", c.size()));
  c.dtype(0, DType::kI32);
  const bool is_one = c.shape(0).rank() == 0;
  c.rank(0, is_one ? 0 : 1);
  c.require(axis >= 0 && (axis == 0 || !is_one), fmt::format("one row along axis {}", axis));
  for (size_t i = 1; i < c.size(); i += 2) {
    c.require(c.shape(i).rank() > axis && c.shape(i)[axis] >= 1, fmt::format("operand {} has no rows", i));
    c.dtype(i + 1, c.input(i).dtype);
    c.same_shape(i + 1,
                 is_one ? Shape(extents_of(c.shape(i)).subspan(1)) : c.shape(i).with(axis, c.shape(0)[0]));
  }
  return {};
}

Outputs AllGatherUpdate::infer(const OpCheck& c) const {
  c.require(replicas >= 1, fmt::format("there must be a replica, got {}", replicas));
  c.require(c.size() >= 1, "takes at least one operand");
  c.floats(c.size());
  return {};
}

}  // namespace headroom
