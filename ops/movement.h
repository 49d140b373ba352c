// Ops that move, pick or repeat elements and compute none.
#pragma once

#include <optional>

#include "ops/op.h"

namespace headroom {

// x -> the same bytes under another shape with as many elements; a plan never copies it
struct Reshape {
  static constexpr OpTraits kTraits{.name = "reshape"};
  Shape shape;
  Outputs infer(const OpCheck& c) const;
};
// x -> the same on another device; to_device() and the placement pass insert it
struct CopyToDevice {
  static constexpr OpTraits kTraits{.name = "copy_to_device"};
  Outputs infer(const OpCheck& c) const;
};
struct Transpose {
  static constexpr OpTraits kTraits{.name = "transpose"};
  PerAxis<int> axes;  // output axis i is input axis axes[i]
  Outputs infer(const OpCheck& c) const;
};
// Returns true if a transposition keeps the order of a tensor's elements: it moves only axes of extent 1.
bool keeps_order(const Shape& x, std::span<const int> axes);
// One or more inputs of equal dtype and of equal shape except along `axis`
struct Concat {
  static constexpr OpTraits kTraits{.name = "concat"};
  int axis = 0;
  Outputs infer(const OpCheck& c) const;
};
// x -> x[begin, begin + extents), or every steps[axis]-th element, backwards if that is negative
struct Slice {
  static constexpr OpTraits kTraits{.name = "slice"};
  PerAxis<int64_t> begin;
  Shape extents;
  PerAxis<int64_t> steps = {};  // empty: all 1
  Outputs infer(const OpCheck& c) const;
};
// dy -> dx (input_shape), zero outside the slice. Also pads a tensor with zeros.
struct SliceGrad {
  static constexpr OpTraits kTraits{.name = "slice_grad"};
  PerAxis<int64_t> begin;
  Shape input_shape;
  PerAxis<int64_t> steps = {};
  Outputs infer(const OpCheck& c) const;
};
// Returns the only axis along which a tensor and a slice of it differ; nullopt if there are none or several,
// or the slice takes steps.
std::optional<int> sliced_axis(const Shape& x, const Shape& slice, const PerAxis<int64_t>& steps);
// table (V, ...), i32 indices (I...) -> (I..., ...). An index outside [0, V) is a DeviceError at run time.
struct Gather {
  static constexpr OpTraits kTraits{.name = "gather"};
  // This row of the table gets no gradient, as padding_idx of torch.nn.Embedding; -1: none. At most 2^24, up
  // to where f32 holds every whole number.
  int64_t padding_row = -1;
  Outputs infer(const OpCheck& c) const;
};
// x (..,R,..), i32 indices (N), rows (..,N,..) -> x with its rows `indices` mod R along the axis replaced by
// those. No two indices may name one row.
struct ReplaceRows {
  static constexpr OpTraits kTraits{.name = "replace_rows", .in_place_inputs = 1};
  int axis = 0;
  Outputs infer(const OpCheck& c) const;
};
// dy (I..., ...), indices -> dtable (table_shape), summed where indices repeat
struct GatherGrad {
  static constexpr OpTraits kTraits{.name = "gather_grad"};
  Shape table_shape;
  Outputs infer(const OpCheck& c) const;
};
// A step's batch from a table that stays on the device. table (N, ...), step i32 [], [order i32 (M)] ->
// (batch, ...): rows [b batch, (b + 1) batch) of the table, or of those that `order` names, where b is step
// mod the number of whole batches; the remaining rows are never used. With `scale` u8 becomes f32, times the
// scale. A row outside [0, N) is a DeviceError at run time.
struct TakeBatch {
  static constexpr OpTraits kTraits{.name = "take_batch", .differentiable = false};
  int64_t batch = 1;
  std::optional<float> scale = {};
  Outputs infer(const OpCheck& c) const;
};
// x -> shape (by broadcasting)
struct BroadcastTo {
  static constexpr OpTraits kTraits{.name = "broadcast_to"};
  Shape shape;
  Outputs infer(const OpCheck& c) const;
};
// -> f32 tensor filled with one value
struct Fill {
  static constexpr OpTraits kTraits{.name = "fill", .differentiable = false};
  float value = 0;
  Shape shape;
  Outputs infer(const OpCheck& c) const;
};

// step mod `turns`, never negative: the turn that a step takes.
template <typename I>
constexpr I turn_of_step(int32_t step, I turns) {
  const I rest = static_cast<I>(step) % turns;
  return rest < 0 ? rest + turns : rest;
}

}  // namespace headroom
