#include <algorithm>
#include <array>

#include "runtime/ops/ops.h"

namespace headroom {
namespace {

constexpr std::string_view name_of(UnaryKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"relu", "sigmoid", "tanh", "gelu"};
  return kNames[static_cast<size_t>(kind)];
}

constexpr std::string_view name_of_grad(UnaryKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"relu_grad", "sigmoid_grad", "tanh_grad", "gelu_grad"};
  return kNames[static_cast<size_t>(kind)];
}

constexpr std::string_view name_of(BinaryKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"add", "sub", "mul", "div"};
  return kNames[static_cast<size_t>(kind)];
}

constexpr std::string_view name_of(ReduceKind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"sum", "mean", "max"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

std::string_view op_name(const Op& op) {
  using S = std::string_view;
  return std::visit(Overloaded{
                        [](const MatMul&) -> S { return "matmul"; },
                        [](const Dense&) -> S { return "dense"; },
                        [](const DenseFilterGrad&) -> S { return "dense_filter_grad"; },
                        [](const Conv2d&) -> S { return "conv2d"; },
                        [](const Conv2dInputGrad&) -> S { return "conv2d_input_grad"; },
                        [](const Conv2dFilterGrad&) -> S { return "conv2d_filter_grad"; },
                        [](const MaxPool&) -> S { return "max_pool"; },
                        [](const MaxPoolGrad&) -> S { return "max_pool_grad"; },
                        [](const AvgPool&) -> S { return "avg_pool"; },
                        [](const AvgPoolGrad&) -> S { return "avg_pool_grad"; },
                        [](const ConvBlock&) -> S { return "conv_block"; },
                        [](const ConvBlockInputGrad&) -> S { return "conv_block_input_grad"; },
                        [](const ConvBlockFilterGrad&) -> S { return "conv_block_filter_grad"; },
                        [](const Unary& o) -> S { return name_of(o.kind); },
                        [](const UnaryGrad& o) -> S { return name_of_grad(o.kind); },
                        [](const Scale&) -> S { return "scale"; },
                        [](const Binary& o) -> S { return name_of(o.kind); },
                        [](const Cast&) -> S { return "cast"; },
                        [](const Dropout&) -> S { return "dropout"; },
                        [](const Reshape&) -> S { return "reshape"; },
                        [](const CopyToDevice&) -> S { return "copy_to_device"; },
                        [](const Transpose&) -> S { return "transpose"; },
                        [](const Concat&) -> S { return "concat"; },
                        [](const Slice&) -> S { return "slice"; },
                        [](const SliceGrad&) -> S { return "slice_grad"; },
                        [](const Gather&) -> S { return "gather"; },
                        [](const GatherGrad&) -> S { return "gather_grad"; },
                        [](const TakeBatch&) -> S { return "take_batch"; },
                        [](const BroadcastTo&) -> S { return "broadcast_to"; },
                        [](const Fill&) -> S { return "fill"; },
                        [](const Reduce& o) -> S { return name_of(o.kind); },
                        [](const ReduceMaxGrad&) -> S { return "max_grad"; },
                        [](const ArgMax&) -> S { return "argmax"; },
                        [](const Accuracy&) -> S { return "accuracy"; },
                        [](const Softmax&) -> S { return "softmax"; },
                        [](const SoftmaxGrad&) -> S { return "softmax_grad"; },
                        [](const CrossEntropy&) -> S { return "cross_entropy"; },
                        [](const CrossEntropyGrad&) -> S { return "cross_entropy_grad"; },
                        [](const ClassifierHead&) -> S { return "classifier_head"; },
                        [](const BatchNorm&) -> S { return "batch_norm"; },
                        [](const BatchNormGrad&) -> S { return "batch_norm_grad"; },
                        [](const BatchNormInference&) -> S { return "batch_norm_inference"; },
                        [](const AllReduce&) -> S { return "all_reduce"; },
                        [](const SgdUpdate&) -> S { return "sgd_update"; },
                        [](const RmspropUpdate&) -> S { return "rmsprop_update"; },
                        [](const AdamUpdate&) -> S { return "adam_update"; },
                        [](const MovingAverageUpdate&) -> S { return "moving_average_update"; },
                        [](const CounterUpdate&) -> S { return "counter_update"; },
                        [](const RowUpdate&) -> S { return "row_update"; },
                        [](const AllGatherUpdate&) -> S { return "all_gather_update"; },
                    },
                    op);
}

std::span<const std::string_view> op_names() {
  static constexpr auto kNames = std::to_array<std::string_view>({
      "matmul",
      "dense",
      "dense_filter_grad",
      "conv2d",
      "conv2d_input_grad",
      "conv2d_filter_grad",
      "max_pool",
      "max_pool_grad",
      "avg_pool",
      "avg_pool_grad",
      "conv_block",
      "conv_block_input_grad",
      "conv_block_filter_grad",
      "relu",
      "sigmoid",
      "tanh",
      "gelu",
      "relu_grad",
      "sigmoid_grad",
      "tanh_grad",
      "gelu_grad",
      "scale",
      "add",
      "sub",
      "mul",
      "div",
      "cast",
      "dropout",
      "reshape",
      "copy_to_device",
      "transpose",
      "concat",
      "slice",
      "slice_grad",
      "gather",
      "gather_grad",
      "take_batch",
      "broadcast_to",
      "fill",
      "sum",
      "mean",
      "max",
      "max_grad",
      "argmax",
      "accuracy",
      "softmax",
      "softmax_grad",
      "cross_entropy",
      "cross_entropy_grad",
      "classifier_head",
      "batch_norm",
      "batch_norm_grad",
      "batch_norm_inference",
      "all_reduce",
      "sgd_update",
      "rmsprop_update",
      "adam_update",
      "moving_average_update",
      "counter_update",
      "row_update",
      "all_gather_update",
  });
  return kNames;
}

Library library_of(const Op& op) {
  return std::visit(Overloaded{
                        [](const MatMul&) { return Library::kBlas; },
                        [](const Dense&) { return Library::kBlas; },
                        [](const DenseFilterGrad&) { return Library::kBlas; },
                        [](const ClassifierHead&) { return Library::kBlas; },
                        [](const Conv2d&) { return Library::kDnn; },
                        [](const Conv2dInputGrad&) { return Library::kDnn; },
                        [](const Conv2dFilterGrad&) { return Library::kDnn; },
                        [](const ConvBlock&) { return Library::kDnn; },
                        [](const ConvBlockInputGrad&) { return Library::kDnn; },
                        [](const ConvBlockFilterGrad&) { return Library::kDnn; },
                        [](const auto&) { return Library::kNone; },
                    },
                    op);
}

int in_place_input(const Op& op, std::span<const TensorSpec> inputs, const TensorSpec& output, size_t index) {
  if (const auto* reduce = std::get_if<AllReduce>(&op))
    return static_cast<int>(index) + (reduce->follows ? 1 : 0);
  if (index != 0) return -1;
  const auto fits = [&](size_t i) { return inputs[i].bytes() == output.bytes(); };
  return std::visit(Overloaded{
                        [&](const Unary&) { return 0; },
                        [&](const UnaryGrad&) { return 0; },
                        [&](const Scale&) { return 0; },
                        [&](const Dropout&) { return 0; },
                        [&](const Softmax&) { return 0; },
                        [&](const SoftmaxGrad&) { return 0; },
                        [&](const CrossEntropyGrad&) { return 0; },
                        // The operand that is not broadcast; an element is read before it is written.
                        [&](const Binary&) { return fits(0)   ? 0
                                                    : fits(1) ? 1
                                                              : -1; },
                        [&](const auto&) { return -1; },
                    },
                    op);
}

bool is_optional_output(const Op& op, size_t index) {
  return index == 1 && (std::holds_alternative<MaxPool>(op) || std::holds_alternative<ConvBlock>(op));
}

bool is_update(const Op& op) {
  return std::holds_alternative<SgdUpdate>(op) || std::holds_alternative<RmspropUpdate>(op) ||
         std::holds_alternative<AdamUpdate>(op) || std::holds_alternative<MovingAverageUpdate>(op) ||
         std::holds_alternative<CounterUpdate>(op) || std::holds_alternative<RowUpdate>(op) ||
         std::holds_alternative<AllGatherUpdate>(op);
}

namespace {

// Of an update of many variables: `operands` for each after the first `shared`, of which those `changed`.
std::vector<int> mutated_of_each(size_t inputs, size_t shared, size_t operands, std::vector<size_t> changed) {
  std::vector<int> positions;
  for (size_t first = shared; first < inputs; first += operands) {
    for (size_t i : changed) positions.push_back(static_cast<int>(first + i));
  }
  return positions;
}

}  // namespace

std::vector<int> mutated_inputs(const Op& op, size_t inputs) {
  return std::visit(Overloaded{
                        [&](const SgdUpdate& o) {
                          return o.momentum != 0 ? mutated_of_each(inputs, 1, 3, {0, 2})
                                                 : mutated_of_each(inputs, 1, 2, {0});
                        },
                        [&](const RmspropUpdate&) {
                          return mutated_of_each(inputs, 1, 3, {0, 2});
                        },
                        [&](const AdamUpdate&) {
                          return mutated_of_each(inputs, 2, 4, {0, 2, 3});
                        },
                        [](const MovingAverageUpdate&) { return std::vector<int>{0}; },
                        [](const CounterUpdate&) { return std::vector<int>{0}; },
                        [&](const RowUpdate&) { return mutated_of_each(inputs, 1, 2, {0}); },
                        [&](const AllGatherUpdate&) { return mutated_of_each(inputs, 0, 1, {0}); },
                        [](const auto&) { return std::vector<int>{}; },
                    },
                    op);
}

}  // namespace headroom
