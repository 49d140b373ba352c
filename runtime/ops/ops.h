// Every operation of the runtime as a plain struct, and what can be said of it from shapes alone: its name,
// its outputs, the library it needs, which inputs it changes. Knows no graph, no gradient and no kernel.
//
// Layouts: images are (N,H,W,C), filters (KH,KW,C/groups,K), matrices row-major. Comments give
// inputs -> outputs. An output in [brackets] is optional: it may have no memory when nobody reads it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/shard.h"
#include "runtime/base/tensor.h"
#include "runtime/device/device.h"

namespace headroom {

using Pair = std::array<int, 2>;  // {along H, along W}

// ---- linear algebra
// -------------------------------------------------------------------------------------------

// a (B..,M,K), b (B..,K,N) -> (B..,M,N). Leading axes broadcast. transpose_a: a is (B..,K,M), likewise b.
struct MatMul {
  bool transpose_a = false;
  bool transpose_b = false;
  bool operator==(const MatMul&) const = default;
};

// A product with its neighbours (made by fuse(), not by hand).
// x (M,K), w (K,N), bias (N) -> y (M,N) = x w + bias, or relu of that. There must be something to sum: K > 0.
struct Dense {
  bool relu = false;
  bool operator==(const Dense&) const = default;
};
// x (M,K), dy (M,N), the gradient at x w + bias -> dw (K,N) = x^T dy, dbias (N) = the sums of dy over M
struct DenseFilterGrad {
  bool operator==(const DenseFilterGrad&) const = default;
};

// x (N,H,W,C), filter (KH,KW,C/groups,K) -> (N,OH,OW,K), cross-correlation as everywhere in the field.
struct Conv2d {
  Pair stride = {1, 1};
  Pair padding = {0, 0};  // zeros on each side
  Pair dilation = {1, 1};
  int groups = 1;
  bool operator==(const Conv2d&) const = default;
};
// dy (N,OH,OW,K), filter -> dx (input_shape)
struct Conv2dInputGrad {
  Conv2d conv;
  Shape input_shape;
  bool operator==(const Conv2dInputGrad&) const = default;
};
// x, dy -> dfilter (filter_shape)
struct Conv2dFilterGrad {
  Conv2d conv;
  Shape filter_shape;
  bool operator==(const Conv2dFilterGrad&) const = default;
};

// ---- pooling
// --------------------------------------------------------------------------------------------------

struct Pool2d {
  Pair window = {2, 2};
  Pair stride = {2, 2};
  Pair padding = {0, 0};  // never the maximum; not counted in the average
  bool operator==(const Pool2d&) const = default;
};
// x (N,H,W,C) -> y (N,OH,OW,C), [index u8 (N,OH,OW,C)]: position of the maximum inside its window, row-major,
// the first one where several are equal
struct MaxPool {
  Pool2d pool;
  bool operator==(const MaxPool&) const = default;
};
// dy, index -> dx (input_shape)
struct MaxPoolGrad {
  Pool2d pool;
  Shape input_shape;
  bool operator==(const MaxPoolGrad&) const = default;
};
struct AvgPool {
  Pool2d pool;
  bool operator==(const AvgPool&) const = default;
};
// dy -> dx (input_shape)
struct AvgPoolGrad {
  Pool2d pool;
  Shape input_shape;
  bool operator==(const AvgPoolGrad&) const = default;
};

// ---- convolution fused with its neighbours (made by fuse(), not by hand)
// -----------------------------------------

// Value of an index where relu let nothing through: no position of the window takes a gradient.
inline constexpr uint8_t kNoGradient = 255;

// y = relu(conv(x, filter) + bias), then max-pooled if `pool`.
// x (N,H,W,C), filter, bias (K) -> y, [index u8 as MaxPool's, or kNoGradient]. Without pool there is no
// index.
struct ConvBlock {
  Conv2d conv;
  std::optional<Pool2d> pool;
  bool operator==(const ConvBlock&) const = default;
};
// dy, route, filter -> dx (input_shape). `route` is the block's index with pool, its y without.
struct ConvBlockInputGrad {
  ConvBlock block;
  Shape input_shape;
  bool operator==(const ConvBlockInputGrad&) const = default;
};
// x, dy, route -> dfilter (filter_shape), dbias (K)
struct ConvBlockFilterGrad {
  ConvBlock block;
  Shape filter_shape;
  bool operator==(const ConvBlockFilterGrad&) const = default;
};

// ---- elementwise
// ----------------------------------------------------------------------------------------------

enum class UnaryKind : uint8_t { kRelu, kSigmoid, kTanh, kGelu };  // gelu: the exact one, with erf
// f32 x -> same shape
struct Unary {
  UnaryKind kind;
  bool operator==(const Unary&) const = default;
};
// dy, saved -> dx. `saved` is y for relu, sigmoid and tanh, x for gelu.
struct UnaryGrad {
  UnaryKind kind;
  bool operator==(const UnaryGrad&) const = default;
};
// f32 x -> factor * x
struct Scale {
  float factor = 1;
  bool operator==(const Scale&) const = default;
};
enum class BinaryKind : uint8_t { kAdd, kSub, kMul, kDiv };
// f32 a, b -> the shape both broadcast to
struct Binary {
  BinaryKind kind;
  bool operator==(const Binary&) const = default;
};
// Converts between f32, i32 and u8: towards zero, saturating; NaN gives 0.
struct Cast {
  DType to;
  bool operator==(const Cast&) const = default;
};
// x, step i32 [] -> x / (1 - rate) where kept, else 0. What is kept follows from (seed, step, element) alone,
// so the same op applied to dy is its gradient.
struct Dropout {
  float rate = 0.5f;
  uint64_t seed = 0;
  bool operator==(const Dropout&) const = default;
};

// ---- shape
// ----------------------------------------------------------------------------------------------------

// x -> the same bytes under another shape with as many elements; never copied by a plan
struct Reshape {
  Shape shape;
  bool operator==(const Reshape&) const = default;
};
// x -> the same on another device; to_device() and the placing of a graph put it in
struct CopyToDevice {
  bool operator==(const CopyToDevice&) const = default;
};
struct Transpose {
  std::vector<int> axes;  // output axis i is input axis axes[i]
  bool operator==(const Transpose&) const = default;
};
// One or more inputs of equal dtype and of equal shape but for `axis`
struct Concat {
  int axis = 0;
  bool operator==(const Concat&) const = default;
};
// x -> x[begin, begin + extents)
struct Slice {
  std::vector<int64_t> begin;
  Shape extents;
  bool operator==(const Slice&) const = default;
};
// dy -> dx (input_shape), zero outside the slice
struct SliceGrad {
  std::vector<int64_t> begin;
  Shape input_shape;
  bool operator==(const SliceGrad&) const = default;
};
// table (V, ...), i32 indices (I...) -> (I..., ...). An index outside [0, V) is a DeviceError at run time.
struct Gather {
  bool operator==(const Gather&) const = default;
};
// dy (I..., ...), indices -> dtable (table_shape), summed where indices repeat
struct GatherGrad {
  Shape table_shape;
  bool operator==(const GatherGrad&) const = default;
};
// The batch of a step out of a table that stays on the device. table (N, ...), step i32 [], [order i32 (M)]
// -> (batch, ...): rows [b batch, (b + 1) batch) of the table, or of what `order` names, where b is step mod
// the number of whole batches; what is left over is never taken. With `scale` u8 becomes f32, times the
// scale. A row outside [0, N) is a DeviceError at run time.
struct TakeBatch {
  int64_t batch = 1;
  std::optional<float> scale = {};
  bool operator==(const TakeBatch&) const = default;
};
// x -> shape (by broadcasting)
struct BroadcastTo {
  Shape shape;
  bool operator==(const BroadcastTo&) const = default;
};
// -> f32 tensor filled with one value
struct Fill {
  float value = 0;
  Shape shape;
  bool operator==(const Fill&) const = default;
};

// ---- reductions
// -----------------------------------------------------------------------------------------------

enum class ReduceKind : uint8_t { kSum, kMean, kMax };
// f32 x -> reduced over `axes` (sorted, distinct), kept with extent 1 if keep_axes
struct Reduce {
  ReduceKind kind;
  std::vector<int> axes;
  bool keep_axes = false;
  bool operator==(const Reduce&) const = default;
};
// Gradient of a maximum. x, y, dy (y and dy with the reduced axes kept as 1) -> dx; ties share equally
struct ReduceMaxGrad {
  std::vector<int> axes;
  bool operator==(const ReduceMaxGrad&) const = default;
};
// x -> i32, `axis` removed; the first of equal maxima
struct ArgMax {
  int axis = -1;  // never negative once a node is built
  bool operator==(const ArgMax&) const = default;
};
// logits (N,C), i32 labels (N) -> f32 []: share of rows whose largest logit is at the label
struct Accuracy {
  bool operator==(const Accuracy&) const = default;
};

// ---- loss
// -----------------------------------------------------------------------------------------------------

// Over the last axis
struct Softmax {
  bool operator==(const Softmax&) const = default;
};
// dy, y -> dx
struct SoftmaxGrad {
  bool operator==(const SoftmaxGrad&) const = default;
};
// logits (N,C), i32 labels (N) -> f32 (N): -log softmax(logits)[label]. A label outside [0, C) is a
// DeviceError.
struct CrossEntropy {
  bool operator==(const CrossEntropy&) const = default;
};
// logits, labels, dloss (N) -> dlogits
struct CrossEntropyGrad {
  bool operator==(const CrossEntropyGrad&) const = default;
};

// Two dense layers with relu between, their cross-entropy and all that flows back through them to x (made by
// fuse(), not by hand). x (N,K), w1 (K,H), b1 (H), w2 (H,C), b2 (C), i32 labels (N), dloss (N) ->
// hidden (N,H) = relu(x w1 + b1), logits (N,C) = hidden w2 + b2, loss (N), dlogits (N,C),
// dhidden (N,H) = dlogits w2^T where hidden > 0, dx (N,K) = dhidden w1^T. A label outside [0, C) is a
// DeviceError.
struct ClassifierHead {
  bool operator==(const ClassifierHead&) const = default;
};

// ---- batch normalisation (over all axes but the last)
// ------------------------------------------------------------

// x (..,C), gamma (C), beta (C) -> y, mean (C), variance (C); the variance is biased, as used for normalising
struct BatchNorm {
  float epsilon = 1e-3f;
  bool operator==(const BatchNorm&) const = default;
};
// dy, x, gamma, mean, variance -> dx, dgamma, dbeta
struct BatchNormGrad {
  float epsilon = 1e-3f;
  bool operator==(const BatchNormGrad&) const = default;
};
// x, gamma, beta, mean, variance -> y, with statistics gathered in training
struct BatchNormInference {
  float epsilon = 1e-3f;
  bool operator==(const BatchNormInference&) const = default;
};

// ---- replicas
// ------------------------------------------------------------------------------------------------

// x.. of any f32 shapes -> their sums over all replicas, in the same shapes. With `follows` the first operand
// is not summed: it is what this has to come after, so that all replicas reduce in the same order.
struct AllReduce {
  int replicas = 1;
  bool follows = false;
  bool operator==(const AllReduce&) const = default;
};

// ---- updates: change variables in place, no outputs
// --------------------------------------------------------------

// The optimizers update any number of variables at once: the operands of one variable follow those of the
// one before. `gradient_scale` multiplies g first: the inverse of the factor by which a loss was scaled. Only
// `shard` of each variable is updated; where that is not the whole, a state is (elements of the shard).

// lr [], then w', g, velocity' (only if momentum != 0) of each variable:  v = momentum v + g;
// w -= lr (nesterov ? g + momentum v : v)
struct SgdUpdate {
  float momentum = 0;
  bool nesterov = false;
  float gradient_scale = 1;
  Shard shard = {};
  bool operator==(const SgdUpdate&) const = default;
};
// lr [], then w', g, s' of each variable:  s = rho s + (1 - rho) g^2;  w -= lr g / (sqrt(s) + epsilon)
// (Keras)
struct RmspropUpdate {
  float rho = 0.9f;
  float epsilon = 1e-7f;
  float gradient_scale = 1;
  Shard shard = {};
  bool operator==(const RmspropUpdate&) const = default;
};
// lr [], step i32 [] (0 at the first update), then w', g, m', v' of each variable. Adam (Kingma, Ba 2015)
// with bias correction; AdamW (Loshchilov, Hutter 2019) when weight_decay != 0: w -= lr weight_decay w first.
struct AdamUpdate {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;
  float gradient_scale = 1;
  Shard shard = {};
  bool operator==(const AdamUpdate&) const = default;
};
// average', value:  average = momentum average + (1 - momentum) value
struct MovingAverageUpdate {
  float momentum = 0.99f;
  bool operator==(const MovingAverageUpdate&) const = default;
};
// counter i32 []':  counter += 1
struct CounterUpdate {
  bool operator==(const CounterUpdate&) const = default;
};
// step i32 [], then table' (R, ...), row (...), of any dtype, any number of times:  table[step mod R] = row.
// What each step of a run gave is then read at once.
struct RowUpdate {
  bool operator==(const RowUpdate&) const = default;
};

// w'.. of any f32 shapes:  Shard{r, replicas} of each becomes what it is on replica r, which alone has
// updated it.
struct AllGatherUpdate {
  int replicas = 1;
  bool operator==(const AllGatherUpdate&) const = default;
};

using Op =
    std::variant<MatMul, Dense, DenseFilterGrad, Conv2d, Conv2dInputGrad, Conv2dFilterGrad, MaxPool,
                 MaxPoolGrad, AvgPool, AvgPoolGrad, ConvBlock, ConvBlockInputGrad, ConvBlockFilterGrad, Unary,
                 UnaryGrad, Scale, Binary, Cast, Dropout, Reshape, CopyToDevice, Transpose, Concat, Slice,
                 SliceGrad, Gather, GatherGrad, TakeBatch, BroadcastTo, Fill, Reduce, ReduceMaxGrad, ArgMax,
                 Accuracy, Softmax, SoftmaxGrad, CrossEntropy, CrossEntropyGrad, ClassifierHead, BatchNorm,
                 BatchNormGrad, BatchNormInference, AllReduce, SgdUpdate, RmspropUpdate, AdamUpdate,
                 MovingAverageUpdate, CounterUpdate, RowUpdate, AllGatherUpdate>;

// For visiting an Op: std::visit(Overloaded{[](const MatMul&) {...}, ...}, op).
template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;  // clang needs it before 17

// "matmul", "conv2d_filter_grad", "relu", "add": the one word for the op everywhere.
std::string_view op_name(const Op& op);
// All names that op_name can give, for messages and tests.
std::span<const std::string_view> op_names();

// Checks the inputs and gives the outputs. Throws InvalidArgument naming the op, its operands and their
// shapes.
std::vector<TensorSpec> infer_outputs(const Op& op, std::span<const TensorSpec> inputs);

// The library whose handle the op needs on a GPU.
Library library_of(const Op& op);

// The input whose bytes output `index` may take over when the input dies at this op and both have the same
// size; -1 if none.
int in_place_input(const Op& op, std::span<const TensorSpec> inputs, const TensorSpec& output,
                   size_t index = 0);

// Whether output `index` may have no memory when nobody reads it: the outputs in [brackets] above.
bool is_optional_output(const Op& op, size_t index);

// Whether the op changes variables; if so, it has no outputs.
bool is_update(const Op& op);
// Positions of the inputs that the op changes when it has `inputs` of them; empty for all but the updates.
std::vector<int> mutated_inputs(const Op& op, size_t inputs);

// step mod `turns`, never negative: what the step takes or writes where there are so many turns.
template <typename I>
constexpr I turn_of_step(int32_t step, I turns) {
  const I rest = static_cast<I>(step) % turns;
  return rest < 0 ? rest + turns : rest;
}

// Extent of a convolution's or pooling's output along one axis; 0 or less when the window does not fit.
constexpr int64_t window_output(int64_t input, int64_t window, int stride, int padding, int dilation) {
  const int64_t span = (window - 1) * dilation + 1;
  const int64_t padded = input + int64_t{2} * padding;
  return padded < span ? 0 : (padded - span) / stride + 1;
}

}  // namespace headroom
