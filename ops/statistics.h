// Reductions, the loss and its neighbors, batch normalization: many elements make one.
#pragma once

#include "ops/op.h"

namespace headroom {

enum class ReduceKind : uint8_t { kSum, kMean, kMax };
inline constexpr std::string_view kReduceNames[] = {"sum", "mean", "max"};
// f32 x -> reduced over `axes` (sorted, distinct), kept with extent 1 if keep_axes
struct Reduce {
  static constexpr OpTraits kTraits{.kind_names = kReduceNames};
  ReduceKind kind;
  PerAxis<int> axes;
  bool keep_axes = false;
  Outputs infer(const OpCheck& c) const;
  bool operator==(const Reduce&) const = default;
};
// Gradient of a maximum. x, y, dy (y and dy with the reduced axes kept as 1) -> dx; ties share equally
struct ReduceMaxGrad {
  static constexpr OpTraits kTraits{.name = "max_grad", .differentiable = false};
  PerAxis<int> axes;
  Outputs infer(const OpCheck& c) const;
};
// x.. f32 or in 16 bits, any shapes -> u8 []: 1 if no element is infinite or NaN
struct AllFinite {
  static constexpr OpTraits kTraits{.name = "all_finite", .differentiable = false};
  Outputs infer(const OpCheck& c) const;
};
// x -> i32, `axis` removed; the first of equal maxima
struct ArgMax {
  static constexpr OpTraits kTraits{.name = "argmax", .differentiable = false};
  int axis = -1;  // never negative once a node is built
  Outputs infer(const OpCheck& c) const;
};
// logits (N,C), i32 labels (N) -> f32 []: share of rows whose largest logit is at the label
struct Accuracy {
  static constexpr OpTraits kTraits{.name = "accuracy", .differentiable = false};
  Outputs infer(const OpCheck& c) const;
};

// x, [mask] -> the softmax of scale x + mask over the last axis. The mask broadcasts to x, except along the
// last axis. With zero_nan_rows a row that would be NaN, such as one that a mask makes -inf throughout, is 0,
// as attention requires.
struct Softmax {
  static constexpr OpTraits kTraits{.name = "softmax", .in_place_inputs = 1};
  bool zero_nan_rows = false;
  float scale = 1;
  Outputs infer(const OpCheck& c) const;
};
// dy, y -> dx
struct SoftmaxGrad {
  static constexpr OpTraits kTraits{.name = "softmax_grad", .in_place_inputs = 1, .differentiable = false};
  float scale = 1;
  Outputs infer(const OpCheck& c) const;
};
// logits (N,C), i32 labels (N) -> f32 (N): -log softmax(logits)[label]. A label outside [0, C) is a
// DeviceError at run time, here and below. Columns from `classes` on, if that is not 0, are padding.
struct CrossEntropy {
  static constexpr OpTraits kTraits{.name = "cross_entropy"};
  int64_t classes = 0;
  int64_t classes_of(const Shape& logits) const { return classes == 0 ? logits.last() : classes; }
  Outputs infer(const OpCheck& c) const;
};
// logits, labels, dloss (N) -> dlogits, 0 where logits are padding
struct CrossEntropyGrad {
  static constexpr OpTraits kTraits{
      .name = "cross_entropy_grad", .in_place_inputs = 1, .differentiable = false};
  int64_t classes = 0;
  Outputs infer(const OpCheck& c) const;
};
// Two dense layers with relu between, their cross-entropy and the way back through them to x (fuse() makes
// it). x (N,K), w1 (K,H), b1 (H), w2 (H,C), b2 (C), i32 labels (N), dloss (N) ->
// hidden (N,H) = relu(x w1 + b1), logits (N,C) = hidden w2 + b2, loss (N), dlogits (N,C),
// dhidden (N,H) = dlogits w2^T where hidden > 0, dx (N,K) = dhidden w1^T.
struct ClassifierHead {
  static constexpr OpTraits kTraits{
      .name = "classifier_head", .library = Library::kBlas, .differentiable = false, .takes_half = false};
  Outputs infer(const OpCheck& c) const;
};

// Batch normalization over all axes but the last. x (..,C), gamma (C), beta (C), [residual (..,C)] ->
// y, mean (C), variance (C); the variance is biased, as used for normalizing. fuse() lets it add a residual,
// and take the relu of all.
struct BatchNorm {
  static constexpr OpTraits kTraits{.name = "batch_norm", .in_place_inputs = 1};
  float epsilon = 1e-3f;
  bool relu = false;
  Outputs infer(const OpCheck& c) const;
};
// dy, x, gamma, mean, variance -> dx, dgamma, dbeta. With relu, operand 5, beta, tells where the norm gave
// more than 0. With a residual operand 5 is y instead; operand 6, if present, is added to dy, and result 3 is
// the residual's gradient. `again`, with relu and no residual: result 3 is y, bit for bit as BatchNormApply
// gives it, for later nodes that read it. `compressed`: x are the codes that BatchNormApply gives.
struct BatchNormGrad {
  static constexpr OpTraits kTraits{.name = "batch_norm_grad", .differentiable = false};
  float epsilon = 1e-3f;
  bool relu = false, residual = false, again = false, compressed = false;
  // dx takes x over, result 3 takes dy over. Codes are too small for either.
  int in_place_input(size_t output) const {
    if (compressed) return output == (residual ? 3 : 0) ? 0 : -1;
    return output == 0 ? 1 : output == 3 ? 0 : -1;
  }
  bool is_optional_output(size_t output) const { return again && output == 3; }
  Outputs infer(const OpCheck& c) const;
};
// The gradient of a norm with relu and a residual, for both branches: dy, y, [added like dy] -> g = dy +
// added where y is more than 0, sums (C) of g over all axes but the last. `marked`: instead of y, the marks
// that BatchNormApply gives.
struct BranchGrad {
  static constexpr OpTraits kTraits{.name = "branch_grad", .in_place_inputs = 1, .differentiable = false};
  bool marked = false;
  Outputs infer(const OpCheck& c) const;
};
// The gradient of z = norm(x filter), a convolution of single pixels from K to C channels, without the
// convolution's result: g (..,C), the incoming gradient, its sums (C) over all axes but the last, x (..,K),
// filter (1,1,K,C) or by_result (C,1,1,K), gamma (C), variance (C) -> dx, dfilter, dgamma (C).
//
// With n pixels, s = sqrt(variance + epsilon), x' = x less its mean over them, and G = x'^T g (K,C),
// S = x'^T x' (K,K):
//   dgamma = diag(filter^T G) / s
//   dfilter = (G - S filter diag(dgamma / (s n))) diag(gamma / s)
//   dx = g diag(gamma / s) filter^T - x filter diag(gamma dgamma / (s^2 n)) filter^T + a term that makes its
//   sum 0
struct ConvNormGrad {
  static constexpr OpTraits kTraits{
      .name = "conv_norm_grad", .library = Library::kBlas, .differentiable = false};
  float epsilon = 1e-3f;
  bool filter_by_result = false;
  Outputs infer(const OpCheck& c) const;
};
// A convolution of single pixels from K to C channels and the following norm, whose statistics are known, as
// one product: x (..,K), filter (1,1,K,C) or by_result (C,1,1,K), gamma, beta, mean, variance (C), [residual
// (..,C)] -> norm(x filter) [+ residual], or relu of that. The norm's factors are multiplied into the filter,
// so rounding differs from the two ops in sequence.
struct ConvNormApply {
  static constexpr OpTraits kTraits{
      .name = "conv_norm_apply", .library = Library::kBlas, .differentiable = false};
  float epsilon = 1e-3f;
  bool relu = false, filter_by_result = false;
  Outputs infer(const OpCheck& c) const;
};
// x -> mean, variance of each channel: the first part of BatchNorm
struct BatchNormStatistics {
  static constexpr OpTraits kTraits{.name = "batch_norm_statistics", .differentiable = false};
  Outputs infer(const OpCheck& c) const;
};
// x, gamma, beta, mean, variance, [residual like x] -> norm(x) [+ residual], or relu of that, [codes],
// [marks]: the second part of a norm, and all of it with statistics gathered in training. `compresses`: the
// codes, u8 like x, are (x - mean) / sqrt(variance + epsilon) in 8 bits (kernels/normal_code.h).
// `compressed`: x are such codes, and there is no residual. `marks`: the marks, u8 (..,C/8), have a bit for
// each result, the lowest for the first of eight, which is 1 if the result is more than 0.
struct BatchNormApply {
  static constexpr OpTraits kTraits{
      .name = "batch_norm_apply", .in_place_inputs = 1, .differentiable = false};
  float epsilon = 1e-3f;
  bool relu = false, compresses = false, compressed = false, marks = false;
  size_t marks_at() const { return compresses ? 2 : 1; }  // among the results
  Outputs infer(const OpCheck& c) const;
};

// Layer normalization over the last axis (Ba et al. 2016). x (..,C), gamma (C), beta (C) -> y, mean (..),
// deviation (..): 1 / sqrt(variance + epsilon)
struct LayerNorm {
  static constexpr OpTraits kTraits{.name = "layer_norm"};
  float epsilon = 1e-5f;
  Outputs infer(const OpCheck& c) const;
};
// dy, x, gamma, mean, deviation, [added like x] -> dx + added, dgamma, dbeta
struct LayerNormGrad {
  static constexpr OpTraits kTraits{.name = "layer_norm_grad", .differentiable = false};
  Outputs infer(const OpCheck& c) const;
};
// x f32 or i32 -> running sums along an axis, from the end if `reverse`, without the element itself if
// `exclusive`
struct CumulativeSum {
  static constexpr OpTraits kTraits{.name = "cumulative_sum"};
  int axis = 0;
  bool exclusive = false, reverse = false;
  Outputs infer(const OpCheck& c) const;
};

}  // namespace headroom
