#include "runtime/onnx/op_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace headroom::onnx {
namespace {

constexpr OpRow kOps[] = {
    {"Abs", 1, "abs", import_abs},
    {"Add", 1, "add", import_add},
    {"And", 1, "minimum of 0 and 1", import_and},
    {"ArgMax", 1, "argmax", import_arg_max},
    {"ArgMin", 1, "argmax of the negated", import_arg_min},
    {"Attention", 23, "matmul, scale, add, softmax; no lengths of keys", import_attention},
    {"AveragePool", 1, "avg_pool; no dilation", import_average_pool},
    {"BatchNormalization", 1, "batch_norm when training, else batch_norm_apply",
     import_batch_normalization},
    {"Cast", 1, "cast; 64-bit integers become 32-bit, 16-bit and 64-bit floats 32-bit", import_cast},
    {"CastLike", 15, "cast", import_cast_like},
    {"Ceil", 1, "ceil", import_ceil},
    {"Celu", 12, "elu", import_celu},
    {"Clip", 1, "clip; the limits are constants", import_clip},
    {"Concat", 1, "concat", import_concat},
    {"Constant", 1, "folded", import_constant},
    {"ConstantOfShape", 9, "folded", import_constant_of_shape},
    {"Conv", 1, "conv2d with the channels last; sequences and images", import_conv},
    {"ConvTranspose", 1, "conv2d_input_grad", import_conv_transpose},
    {"Cos", 7, "cos", import_cos},
    {"CumSum", 11, "cumulative_sum", import_cum_sum},
    {"DepthToSpace", 1, "reshape, transpose", import_depth_to_space},
    {"Div", 1, "div", import_div},
    {"Dropout", 1, "dropout when training, else nothing", import_dropout},
    {"Einsum", 12, "transpose, matmul, sum; no diagonals", import_einsum},
    {"Elu", 1, "elu", import_elu},
    {"Equal", 1, "equal", import_equal},
    {"Erf", 9, "erf", import_erf},
    {"Exp", 1, "exp", import_exp},
    {"Expand", 8, "broadcast_to", import_expand},
    {"EyeLike", 9, "folded", import_eye_like},
    {"Flatten", 1, "reshape", import_flatten},
    {"Floor", 1, "floor", import_floor},
    {"GRU", 1, "matmul, sigmoid, tanh, mul, add for each step; one length for all sequences", import_gru},
    {"Gather", 1, "slice for one index, else gather; indices that depend on the data are not negative",
     import_gather},
    {"GatherElements", 11, "gather", import_gather_elements},
    {"GatherND", 11, "gather", import_gather_nd},
    {"Gelu", 20, "gelu, tanh_gelu", import_gelu},
    {"Gemm", 1, "matmul, add", import_gemm},
    {"GlobalAveragePool", 1, "mean", import_global_average_pool},
    {"GlobalMaxPool", 1, "max", import_global_max_pool},
    {"Greater", 1, "less", import_greater},
    {"GreaterOrEqual", 12, "less_equal", import_greater_or_equal},
    {"GroupNormalization", 18, "layer_norm, mul, add", import_group_normalization},
    {"HardSigmoid", 1, "hard_sigmoid", import_hard_sigmoid},
    {"HardSwish", 14, "hard_sigmoid, mul", import_hard_swish},
    {"Identity", 1, "nothing", import_identity},
    {"InstanceNormalization", 1, "layer_norm, mul, add", import_instance_normalization},
    {"IsInf", 10, "equal", import_is_inf},
    {"IsNaN", 9, "not_equal", import_is_nan},
    {"LRN", 1, "mul, matmul by a band, scale, add, power, div", import_lrn},
    {"LSTM", 1, "matmul, sigmoid, tanh, mul, add for each step; one length for all sequences", import_lstm},
    {"LayerNormalization", 17, "layer_norm", import_layer_normalization},
    {"LeakyRelu", 1, "leaky_relu", import_leaky_relu},
    {"Less", 1, "less", import_less},
    {"LessOrEqual", 12, "less_equal", import_less_or_equal},
    {"Log", 1, "log", import_log},
    {"LogSoftmax", 1, "max, sub, exp, sum, log", import_log_softmax},
    {"MatMul", 1, "matmul; a transposed operand is not copied", import_mat_mul},
    {"Max", 1, "maximum", import_max},
    {"MaxPool", 1, "max_pool; no dilation, no indices, windows up to 255 positions", import_max_pool},
    {"Mean", 1, "add, scale", import_mean},
    {"Min", 1, "minimum", import_min},
    {"Mish", 18, "softplus, tanh, mul", import_mish},
    {"Mod", 10, "mod", import_mod},
    {"Mul", 1, "mul, scale", import_mul},
    {"Neg", 1, "scale", import_neg},
    {"Not", 1, "equal", import_not},
    {"OneHot", 9, "equal, where", import_one_hot},
    {"Or", 1, "maximum of 0 and 1", import_or},
    {"PRelu", 1, "where", import_prelu},
    {"Pad", 1, "slice_grad, gather; the pads are constants", import_pad},
    {"Pow", 1, "pow, power, sqrt", import_pow},
    {"RMSNormalization", 23, "mean, sqrt, div, mul", import_rms_normalization},
    {"RNN", 1, "matmul, add, tanh or relu for each step; one length for all sequences", import_rnn},
    {"Range", 11, "folded", import_range},
    {"Reciprocal", 1, "reciprocal", import_reciprocal},
    {"ReduceL1", 1, "abs, sum", import_reduce_l1},
    {"ReduceL2", 1, "mul, sum, sqrt", import_reduce_l2},
    {"ReduceLogSum", 1, "sum, log", import_reduce_log_sum},
    {"ReduceLogSumExp", 1, "max, exp, sum, log", import_reduce_log_sum_exp},
    {"ReduceMax", 1, "max", import_reduce_max},
    {"ReduceMean", 1, "mean", import_reduce_mean},
    {"ReduceMin", 1, "max of the negated", import_reduce_min},
    {"ReduceProd", 1, "mul", import_reduce_prod},
    {"ReduceSum", 1, "sum", import_reduce_sum},
    {"ReduceSumSquare", 1, "mul, sum", import_reduce_sum_square},
    {"Relu", 1, "relu", import_relu},
    {"Reshape", 1, "reshape; the shape is a constant once the free axes are bound", import_reshape},
    {"Resize", 10, "matmul by the weights of each axis; no antialias, no cropping", import_resize},
    {"RotaryEmbedding", 23, "slice, mul, add, concat", import_rotary_embedding},
    {"Round", 11, "round", import_round},
    {"ScatterElements", 11, "concat, gather; constant indices, no reduction", import_scatter_elements},
    {"ScatterND", 11, "concat, gather; constant indices, no reduction", import_scatter_nd},
    {"Selu", 1, "elu", import_selu},
    {"SequenceAt", 11, "nothing", import_sequence_at},
    {"Shape", 1, "folded", import_shape},
    {"Sigmoid", 1, "sigmoid", import_sigmoid},
    {"Sign", 9, "sign", import_sign},
    {"Sin", 7, "sin", import_sin},
    {"Size", 1, "folded", import_size},
    {"Slice", 1, "slice", import_slice},
    {"Softmax", 1, "softmax", import_softmax},
    {"Softplus", 1, "softplus", import_softplus},
    {"Softsign", 1, "abs, div", import_softsign},
    {"SpaceToDepth", 1, "reshape, transpose", import_space_to_depth},
    {"Split", 1, "slice", import_split},
    {"SplitToSequence", 11, "slice", import_split_to_sequence},
    {"Sqrt", 1, "sqrt", import_sqrt},
    {"Squeeze", 1, "reshape", import_squeeze},
    {"Sub", 1, "sub", import_sub},
    {"Sum", 1, "add", import_sum},
    {"Tanh", 1, "tanh", import_tanh},
    {"ThresholdedRelu", 10, "where", import_thresholded_relu},
    {"Tile", 1, "broadcast_to", import_tile},
    {"Transpose", 1, "transpose, where the next op needs it", import_transpose},
    {"Trilu", 14, "where", import_trilu},
    {"Unsqueeze", 1, "reshape", import_unsqueeze},
    {"Upsample", 7, "matmul by the weights of each axis", import_resize},
    {"Where", 9, "where", import_where},
    {"Xor", 1, "not_equal", import_xor},
};
static_assert(std::is_sorted(std::begin(kOps), std::end(kOps),
                             [](const OpRow& a, const OpRow& b) { return a.name < b.name; }));

}  // namespace

std::span<const OpRow> op_table() {
  return kOps;
}

const OpRow* find_op(std::string_view name) {
  const auto* const found =
      std::lower_bound(std::begin(kOps), std::end(kOps), name,
                       [](const OpRow& row, std::string_view n) { return row.name < n; });
  return found != std::end(kOps) && found->name == name ? found : nullptr;
}

std::string op_table_text() {
  std::string text = "| ONNX op | since opset | becomes |\n| --- | --- | --- |\n";
  for (const OpRow& row : kOps) text += fmt::format("| {} | {} | {} |\n", row.name, row.since, row.becomes);
  return text;
}

}  // namespace headroom::onnx
