// Convolution and pooling of images.
#pragma once

#include <optional>

#include "ops/op.h"

namespace headroom {

// x (N,H,W,C), filter (KH,KW,C/groups,K) -> (N,OH,OW,K), the cross-correlation that frameworks call so.
struct Conv2d {
  static constexpr OpTraits kTraits{.name = "conv2d", .library = Library::kDnn};
  Pair stride = {1, 1};
  Pair padding = {0, 0};  // zeros on each side
  Pair dilation = {1, 1};
  int groups = 1;
  bool filter_by_result = false;  // the filter is (K,KH,KW,C/groups), as cuDNN takes it
  Outputs infer(const OpCheck& c) const;
};
// The shape (KH,KW,C/groups,K) of a convolution's filter, in whichever order it is stored.
Shape conv_filter_shape(const Conv2d& op, const Shape& stored);
// dy (N,OH,OW,K), filter -> dx (input_shape). Frameworks call this a transposed convolution.
struct Conv2dInputGrad {
  static constexpr OpTraits kTraits{.name = "conv2d_input_grad", .library = Library::kDnn};
  Conv2d conv;
  Shape input_shape;
  Outputs infer(const OpCheck& c) const;
};
// x, dy -> dfilter (filter_shape)
struct Conv2dFilterGrad {
  static constexpr OpTraits kTraits{
      .name = "conv2d_filter_grad", .library = Library::kDnn, .differentiable = false};
  Conv2d conv;
  Shape filter_shape;
  Outputs infer(const OpCheck& c) const;
};

// A convolution of a forward pass with its neighbors: x (N,H,W,C), filter, bias (K), [residual (N,OH,OW,K)]
// -> (N,OH,OW,K), the convolution + bias [+ residual], or relu of that
struct ConvBias {
  static constexpr OpTraits kTraits{.name = "conv_bias", .library = Library::kDnn, .differentiable = false};
  Conv2d conv;
  bool relu = false;
  Outputs infer(const OpCheck& c) const;
};

struct Pool2d {
  Pair window = {2, 2};
  Pair stride = {2, 2};
  Pair padding = {0, 0};  // never the maximum; not counted in the average
  bool operator==(const Pool2d&) const = default;
};
// x (N,H,W,C) -> y (N,OH,OW,C), [index u8 (N,OH,OW,C)]: position of the maximum inside its window, row-major,
// the first one where several are equal
struct MaxPool {
  static constexpr OpTraits kTraits{.name = "max_pool", .optional_output = 1};
  Pool2d pool;
  Outputs infer(const OpCheck& c) const;
};
// dy, index, [added (input_shape)] -> dx + added (input_shape)
struct MaxPoolGrad {
  static constexpr OpTraits kTraits{.name = "max_pool_grad", .differentiable = false};
  Pool2d pool;
  Shape input_shape;
  int in_place_input(size_t) const { return 2; }
  Outputs infer(const OpCheck& c) const;
};
// x (N,H,W,C) -> (N,OH,OW,C)
struct AvgPool {
  static constexpr OpTraits kTraits{.name = "avg_pool"};
  Pool2d pool;
  Outputs infer(const OpCheck& c) const;
};
// dy -> dx (input_shape)
struct AvgPoolGrad {
  static constexpr OpTraits kTraits{.name = "avg_pool_grad", .differentiable = false};
  Pool2d pool;
  Shape input_shape;
  Outputs infer(const OpCheck& c) const;
};

// The index where relu is 0: no position of the window takes a gradient.
inline constexpr uint8_t kNoGradient = 255;

// A convolution with its neighbors (fuse() makes it): relu(conv(x, filter) + bias), max-pooled if `pool`.
// x (N,H,W,C), filter, bias (K) -> y, [index u8 as MaxPool's, or kNoGradient]. The index exists only with
// pool.
struct ConvBlock {
  static constexpr OpTraits kTraits{
      .name = "conv_block", .library = Library::kDnn, .optional_output = 1, .takes_half = false};
  Conv2d conv;
  std::optional<Pool2d> pool;
  Outputs infer(const OpCheck& c) const;
};
// dy, route, filter -> dx (input_shape). `route` is the block's index with pool, its y without.
struct ConvBlockInputGrad {
  static constexpr OpTraits kTraits{.name = "conv_block_input_grad",
                                    .library = Library::kDnn,
                                    .differentiable = false,
                                    .takes_half = false};
  ConvBlock block;
  Shape input_shape;
  Outputs infer(const OpCheck& c) const;
};
// x, dy, route -> dfilter (filter_shape), dbias (K)
struct ConvBlockFilterGrad {
  static constexpr OpTraits kTraits{.name = "conv_block_filter_grad",
                                    .library = Library::kDnn,
                                    .differentiable = false,
                                    .takes_half = false};
  ConvBlock block;
  Shape filter_shape;
  Outputs infer(const OpCheck& c) const;
};

// Extent of a convolution's or pooling's output along one axis; 0 or less when the window does not fit.
constexpr int64_t window_output(int64_t input, int64_t window, int stride, int padding, int dilation) {
  const int64_t span = (window - 1) * dilation + 1;
  const int64_t padded = input + int64_t{2} * padding;
  return padded < span ? 0 : (padded - span) / stride + 1;
}

}  // namespace headroom
