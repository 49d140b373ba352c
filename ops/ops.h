// Every op of the runtime, one of them for the ops that programs describe (Custom), and its properties that
// follow from its operands' shapes. Knows no graph, no gradient and no kernel. CONTRIBUTING.md lists the
// steps that add an op.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "ops/attention.h"
#include "ops/custom.h"
#include "ops/elementwise.h"
#include "ops/expression.h"
#include "ops/image.h"
#include "ops/linear.h"
#include "ops/movement.h"
#include "ops/statistics.h"
#include "ops/update.h"

namespace headroom {

// All other lists of ops (names, kernels, gradients, the tests of coverage) follow from this one.
using Op = std::variant<
    // linear.h
    MatMul, Dense, DenseFilterGrad,
    // attention.h
    MaskTiles, Attention, AttentionGrad, CachedAttention,
    // image.h
    Conv2d, Conv2dInputGrad, Conv2dFilterGrad, ConvBias, MaxPool, MaxPoolGrad, AvgPool, AvgPoolGrad,
    ConvBlock, ConvBlockInputGrad, ConvBlockFilterGrad,
    // elementwise.h
    Unary, UnaryGrad, Scale, Binary, Compare, Where, Cast, AddPairs, Dropout, RandomUniform,
    // expression.h
    Expression, ReducedExpression,
    // movement.h
    Reshape, CopyToDevice, Transpose, Concat, Slice, SliceGrad, Gather, ReplaceRows, GatherGrad, TakeBatch,
    BroadcastTo, Fill,
    // statistics.h
    Reduce, ReduceMaxGrad, AllFinite, ArgMax, Accuracy, Softmax, SoftmaxGrad, CrossEntropy, CrossEntropyGrad,
    ClassifierHead, BatchNorm, BatchNormGrad, BranchGrad, ConvNormGrad, ConvNormApply, BatchNormStatistics,
    BatchNormApply, LayerNorm, LayerNormGrad, CumulativeSum,
    // custom.h
    Custom,
    // update.h
    AllReduce, SgdUpdate, RmspropUpdate, AdamUpdate, MovingAverageUpdate, LossScaleUpdate, CounterUpdate,
    RowUpdate, AllGatherUpdate>;
// Otherwise each file that copies a node compiles a function for each op, for each way of copying one.
static_assert(std::is_trivially_copyable_v<Op>);

// For visiting an Op: std::visit(Overloaded{[](const MatMul&) {...}, ...}, op).
template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;  // clang needs it before 17

// Calls f.operator()<T>() for each type of op, in the order of the variant.
template <typename F>
constexpr void for_each_op_type(F f) {
  [&]<typename... T>(std::type_identity<std::variant<T...>>) {
    (f.template operator()<T>(), ...);
  }(std::type_identity<Op>());
}

const OpTraits& traits_of(const Op& op);

// "matmul", "conv2d_filter_grad", "relu", "add".
std::string_view op_name(const Op& op);
// All names that op_name can give, except those of custom ops.
std::span<const std::string_view> op_names();

// Checks the inputs and gives the outputs. Throws InvalidArgument naming the op, its operands and their
// shapes.
Outputs infer_outputs(const Op& op, std::span<const TensorSpec> inputs);

// The input whose bytes output `index` may take over when the input dies at this op and both have the same
// size; -1 if none.
int in_place_input(const Op& op, std::span<const TensorSpec> inputs, const TensorSpec& output,
                   size_t index = 0);

// The operands of an update. Any other op changes none of its own.
UpdateOperands update_operands(const Op& op);
// Positions of the inputs that the op changes when it has `inputs` of them; empty for all but the updates.
std::vector<int> mutated_inputs(const Op& op, size_t inputs);

// Traits by name.
inline Library library_of(const Op& op) {
  return traits_of(op).library;
}
inline bool is_update(const Op& op) {
  return traits_of(op).is_update();
}
// Returns true if the result needs no memory when it is not read.
bool is_optional_output(const Op& op, size_t index);

}  // namespace headroom
