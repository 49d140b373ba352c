#include "ops/image.h"

#include <fmt/format.h>

#include "ops/op_check.h"

namespace headroom {
namespace {

void check_pair(const OpCheck& check, Pair pair, int least, const char* what) {
  if (pair[0] < least || pair[1] < least)
    check.fail(fmt::format("{} must be at least {}, got {}x{}", what, least, pair[0], pair[1]));
}

// (N,OH,OW,K) of a convolution of x with a filter.
Shape conv_output(const OpCheck& check, const Conv2d& op, const Shape& x, const Shape& stored) {
  if (x.rank() != 4) check.fail(fmt::format("the image must be (N,H,W,C), got {}", to_string(x)));
  if (stored.rank() != 4) {
    check.fail(fmt::format("the filter must be {}, got {}",
                           op.filter_by_result ? "(K,KH,KW,C/groups)" : "(KH,KW,C/groups,K)",
                           to_string(stored)));
  }
  const Shape filter = conv_filter_shape(op, stored);
  check_pair(check, op.stride, 1, "stride");
  check_pair(check, op.padding, 0, "padding");
  check_pair(check, op.dilation, 1, "dilation");
  if (op.groups < 1) check.fail(fmt::format("groups must be at least 1, got {}", op.groups));
  check.require(filter[0] >= 1 && filter[1] >= 1, "the filter window is empty");
  if (x[3] != filter[2] * op.groups) {
    check.fail(fmt::format("the image has {} channels, the filter takes {} in each of {} group{}", x[3],
                           filter[2], op.groups, op.groups == 1 ? "" : "s"));
  }
  if (filter[3] % op.groups != 0)
    check.fail(fmt::format("{} output channels do not divide into {} groups", filter[3], op.groups));
  const int64_t oh = window_output(x[1], filter[0], op.stride[0], op.padding[0], op.dilation[0]);
  const int64_t ow = window_output(x[2], filter[1], op.stride[1], op.padding[1], op.dilation[1]);
  check.require(oh > 0 && ow > 0, "the filter window is larger than the padded image");
  return {x[0], oh, ow, filter[3]};
}

Shape pool_output(const OpCheck& check, const Pool2d& op, const Shape& x) {
  check.require(x.rank() == 4, fmt::format("the image must be (N,H,W,C), got {}", to_string(x)));
  check_pair(check, op.window, 1, "window");
  check_pair(check, op.stride, 1, "stride");
  check_pair(check, op.padding, 0, "padding");
  check.require(op.padding[0] < op.window[0] && op.padding[1] < op.window[1],
                "padding must be smaller than the window");
  const int64_t oh = window_output(x[1], op.window[0], op.stride[0], op.padding[0], 1);
  const int64_t ow = window_output(x[2], op.window[1], op.stride[1], op.padding[1], 1);
  check.require(oh > 0 && ow > 0, "the window is larger than the padded image");
  return {x[0], oh, ow, x[3]};
}

// The index is u8 and kNoGradient is one of its values.
Shape max_pool_output(const OpCheck& check, const Pool2d& op, const Shape& x) {
  check.require(
      int64_t{op.window[0]} * op.window[1] <= kNoGradient,
      fmt::format("a window of {}x{} has more than {} positions", op.window[0], op.window[1], kNoGradient));
  return pool_output(check, op, x);
}

Shape block_output(const OpCheck& check, const ConvBlock& op, const Shape& x, const Shape& filter) {
  check.require(!op.conv.filter_by_result, "the filter of a block must be (KH,KW,C/groups,K)");
  const Shape y = conv_output(check, op.conv, x, filter);
  return op.pool ? max_pool_output(check, *op.pool, y) : y;
}

void check_route(const OpCheck& check, size_t i, const ConvBlock& op) {
  check.dtype(i, op.pool ? DType::kU8 : DType::kF32);
}

}  // namespace

Shape conv_filter_shape(const Conv2d& op, const Shape& stored) {
  return op.filter_by_result ? Shape{stored[1], stored[2], stored[3], stored[0]} : stored;
}

Outputs Conv2d::infer(const OpCheck& c) const {
  c.floats(2);
  return {f32(conv_output(c, *this, c.shape(0), c.shape(1)))};
}

Outputs Conv2dInputGrad::infer(const OpCheck& c) const {
  c.floats(2);
  c.same_shape(0, conv_output(c, conv, input_shape, c.shape(1)));
  return {f32(input_shape)};
}

Outputs Conv2dFilterGrad::infer(const OpCheck& c) const {
  c.floats(2);
  c.same_shape(1, conv_output(c, conv, c.shape(0), filter_shape));
  return {f32(filter_shape)};
}

Outputs ConvBias::infer(const OpCheck& c) const {
  c.floats(c.size() == 4 ? 4 : 3);
  const Shape y = conv_output(c, conv, c.shape(0), c.shape(1));
  c.same_shape(2, {y[3]});
  if (c.size() == 4) c.same_shape(3, y);
  return {f32(y)};
}

Outputs MaxPool::infer(const OpCheck& c) const {
  c.floats(1);
  const Shape y = max_pool_output(c, pool, c.shape(0));
  return {f32(y), u8(y)};
}

Outputs MaxPoolGrad::infer(const OpCheck& c) const {
  if (c.size() == 3) {
    c.dtype(2, DType::kF32);
    c.same_shape(2, input_shape);
  } else {
    c.count(2);
  }
  c.dtype(0, DType::kF32);
  c.dtype(1, DType::kU8);
  const Shape y = max_pool_output(c, pool, input_shape);
  c.same_shape(0, y);
  c.same_shape(1, y);
  return {f32(input_shape)};
}

Outputs AvgPool::infer(const OpCheck& c) const {
  c.floats(1);
  return {f32(pool_output(c, pool, c.shape(0)))};
}

Outputs AvgPoolGrad::infer(const OpCheck& c) const {
  c.floats(1);
  c.same_shape(0, pool_output(c, pool, input_shape));
  return {f32(input_shape)};
}

Outputs ConvBlock::infer(const OpCheck& c) const {
  c.floats(3);
  const Shape y = block_output(c, *this, c.shape(0), c.shape(1));
  c.same_shape(2, {y[3]});
  if (!pool) return {f32(y)};
  return {f32(y), u8(y)};
}

Outputs ConvBlockInputGrad::infer(const OpCheck& c) const {
  c.count(3);
  c.dtype(0, DType::kF32);
  check_route(c, 1, block);
  c.dtype(2, DType::kF32);
  const Shape y = block_output(c, block, input_shape, c.shape(2));
  c.same_shape(0, y);
  c.same_shape(1, y);
  return {f32(input_shape)};
}

Outputs ConvBlockFilterGrad::infer(const OpCheck& c) const {
  c.count(3);
  c.dtype(0, DType::kF32);
  c.dtype(1, DType::kF32);
  check_route(c, 2, block);
  const Shape y = block_output(c, block, c.shape(0), filter_shape);
  c.same_shape(1, y);
  c.same_shape(2, y);
  return {f32(filter_shape), f32({filter_shape[3]})};
}

}  // namespace headroom
