#include "runtime/onnx/op_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace headroom::onnx {
namespace {

template <UnaryKind kKind>
void unary(NodeImport& n) {
  add_unary(n, kKind);
}
template <BinaryKind kKind>
void binary(NodeImport& n) {
  add_binary(n, kKind);
}
template <CompareKind kKind, bool kSwaps = false>
void compare(NodeImport& n) {
  add_compare(n, kKind, kSwaps);
}
template <ReduceKind kKind>
void reduce(NodeImport& n) {
  add_reduction(n, kKind);
}

constexpr OpRow kOps[] = {
    {"Abs", 1, "abs", unary<UnaryKind::kAbs>},
    {"Acosh", 9, "mul, sub, sqrt, add, log", import_acosh},
    {"Add", 1, "add", binary<BinaryKind::kAdd>, "axis broadcast"},
    {"And", 1, "minimum of 0 and 1", binary<BinaryKind::kMin>, "axis broadcast"},
    {"ArgMax", 1, "argmax", import_arg_max, "axis keepdims select_last_index"},
    {"ArgMin", 1, "argmax of the negated", import_arg_min, "axis keepdims select_last_index"},
    {"Asinh", 9, "abs, mul, add, sqrt, log, sign", import_asinh},
    {"Atanh", 9, "add, sub, div, log, mul", import_atanh},
    {"Attention", 23, "matmul, scale, add, softmax; no lengths of keys", import_attention,
     "is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode right_window_size scale "
     "softcap "
     "softmax_precision"},
    {"AveragePool", 1, "avg_pool; no dilation", import_average_pool,
     "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides"},
    {"BatchNormalization", 1, "batch_norm when training, else batch_norm_apply", import_batch_normalization,
     "epsilon momentum spatial training_mode"},
    {"Bernoulli", 15, "random_uniform, less", import_bernoulli, "dtype seed"},
    {"Cast", 1, "cast; 64-bit integers become 32-bit, 16-bit and 64-bit floats 32-bit", import_cast,
     "round_mode saturate to"},
    {"CastLike", 15, "cast", import_cast_like, "round_mode saturate"},
    {"Ceil", 1, "ceil", unary<UnaryKind::kCeil>},
    {"Celu", 12, "elu", import_celu, "alpha"},
    {"CenterCropPad", 18, "slice, slice_grad; the shape is a constant", import_center_crop_pad, "axes"},
    {"Clip", 1, "clip; maximum and minimum for limits from data", import_clip, "max min"},
    {"Concat", 1, "concat", import_concat, "axis"},
    {"ConcatFromSequence", 11, "concat", import_concat_from_sequence, "axis new_axis"},
    {"Constant", 1, "folded", import_constant, "value value_float value_floats value_int value_ints"},
    {"ConstantOfShape", 9, "folded", import_constant_of_shape, "value"},
    {"Conv", 1, "conv2d with the channels last; of volumes one for each of up to 64 planes", import_conv,
     "auto_pad dilations group kernel_shape pads strides"},
    {"ConvTranspose", 1, "conv2d_input_grad; of volumes one for each of up to 64 planes",
     import_conv_transpose, "auto_pad dilations group kernel_shape output_padding output_shape pads strides"},
    {"Cos", 7, "cos", unary<UnaryKind::kCos>},
    {"Cosh", 9, "exp, add, mul", import_cosh},
    {"CumProd", 26, "slice, mul, concat; up to 4,096 numbers", import_cum_prod, "exclusive reverse"},
    {"CumSum", 11, "cumulative_sum", import_cum_sum, "exclusive reverse"},
    {"DepthToSpace", 1, "reshape, transpose", import_depth_to_space, "blocksize mode"},
    {"DequantizeLinear", 10, "cast, sub, mul where its result is used; the weight stays in 8 or 4 bits",
     import_dequantize_linear, "axis block_size output_dtype"},
    {"Div", 1, "div", binary<BinaryKind::kDiv>, "axis broadcast"},
    {"Dropout", 1, "dropout when training, else nothing", import_dropout, "ratio seed"},
    {"DynamicQuantizeLinear", 11, "max, round", import_dynamic_quantize_linear},
    {"Einsum", 12, "transpose, matmul, sum; no diagonals", import_einsum, "equation"},
    {"Elu", 1, "elu", import_elu, "alpha"},
    {"Equal", 1, "equal", compare<CompareKind::kEqual>, "axis broadcast"},
    {"Erf", 9, "erf", unary<UnaryKind::kErf>},
    {"Exp", 1, "exp", unary<UnaryKind::kExp>},
    {"Expand", 8, "broadcast_to", import_expand},
    {"EyeLike", 9, "folded", import_eye_like, "dtype k"},
    {"Flatten", 1, "reshape", import_flatten, "axis"},
    {"Floor", 1, "floor", unary<UnaryKind::kFloor>},
    {"GRU", 1, "matmul, sigmoid, tanh, mul, add for each step", import_gru,
     "activation_alpha activation_beta activations clip direction hidden_size layout linear_before_reset"},
    {"Gather", 1, "slice for one index, else gather; indices that depend on the data are not negative",
     import_gather, "axis"},
    {"GatherElements", 11, "gather", import_gather_elements, "axis"},
    {"GatherND", 11, "gather", import_gather_nd, "batch_dims"},
    {"Gelu", 20, "gelu, tanh_gelu", import_gelu, "approximate"},
    {"Gemm", 1, "matmul, add", import_gemm, "alpha beta broadcast transA transB"},
    {"GlobalAveragePool", 1, "mean", import_global_average_pool},
    {"GlobalMaxPool", 1, "max", import_global_max_pool},
    {"Greater", 1, "less", compare<CompareKind::kLess, true>, "axis broadcast"},
    {"GreaterOrEqual", 12, "less_equal", compare<CompareKind::kLessEqual, true>},
    {"GridSample", 16, "add, mul, floor, where, gather; of sequences, images and volumes", import_grid_sample,
     "align_corners mode padding_mode"},
    {"GroupNormalization", 18, "layer_norm, mul, add", import_group_normalization,
     "epsilon num_groups stash_type"},
    {"HardSigmoid", 1, "hard_sigmoid", import_hard_sigmoid, "alpha beta"},
    {"HardSwish", 14, "hard_sigmoid, mul", import_hard_swish},
    {"Hardmax", 1, "arg_max, equal", import_hardmax, "axis"},
    {"Identity", 1, "nothing", import_identity},
    {"If", 1, "the branch; its condition is a constant once the free axes are bound", import_if,
     "else_branch then_branch"},
    {"InstanceNormalization", 1, "layer_norm, mul, add", import_instance_normalization, "epsilon"},
    {"IsInf", 10, "equal", import_is_inf, "detect_negative detect_positive"},
    {"IsNaN", 9, "not_equal", import_is_nan},
    {"LRN", 1, "mul, matmul by a band, scale, add, power, div", import_lrn, "alpha beta bias size"},
    {"LSTM", 1, "matmul, sigmoid, tanh, mul, add for each step", import_lstm,
     "activation_alpha activation_beta activations clip direction hidden_size input_forget layout"},
    {"LayerNormalization", 17, "layer_norm", import_layer_normalization, "axis epsilon stash_type"},
    {"LeakyRelu", 1, "leaky_relu", import_leaky_relu, "alpha"},
    {"Less", 1, "less", compare<CompareKind::kLess>, "axis broadcast"},
    {"LessOrEqual", 12, "less_equal", compare<CompareKind::kLessEqual>},
    {"Log", 1, "log", unary<UnaryKind::kLog>},
    {"LogSoftmax", 1, "max, sub, exp, sum, log", import_log_softmax, "axis"},
    {"Loop", 1, "its graph for each turn; their number is a constant", import_loop, "body"},
    {"LpNormalization", 1, "abs or mul, sum, sqrt, div; p of 1 or 2", import_lp_normalization, "axis p"},
    {"MatMul", 1, "matmul; a transposed operand is not copied", import_mat_mul},
    {"Max", 1, "maximum", import_max},
    {"MaxPool", 1, "max_pool; no dilation, no indices, windows up to 255 positions", import_max_pool,
     "auto_pad ceil_mode dilations kernel_shape pads storage_order strides"},
    {"Mean", 1, "add, scale", import_mean},
    {"MeanVarianceNormalization", 9, "mean, sub, mul, sqrt, div", import_mean_variance_normalization, "axes"},
    {"Min", 1, "minimum", import_min},
    {"Mish", 18, "softplus, tanh, mul", import_mish},
    {"Mod", 10, "mod", import_mod, "fmod"},
    {"Mul", 1, "mul, scale", binary<BinaryKind::kMul>, "axis broadcast"},
    {"Neg", 1, "scale", import_neg},
    {"NegativeLogLikelihoodLoss", 12, "equal, where, sum", import_negative_log_likelihood_loss,
     "ignore_index reduction"},
    {"Not", 1, "equal", import_not},
    {"OneHot", 9, "equal, where", import_one_hot, "axis"},
    {"Or", 1, "maximum of 0 and 1", binary<BinaryKind::kMax>, "axis broadcast"},
    {"PRelu", 1, "where", import_prelu},
    {"Pad", 1, "slice_grad, gather; the pads are constants", import_pad, "mode paddings pads value"},
    {"Pow", 1, "pow, power, sqrt", import_pow, "axis broadcast"},
    {"QuantizeLinear", 10, "round, clip", import_quantize_linear,
     "axis block_size output_dtype precision saturate"},
    {"RMSNormalization", 23, "mean, sqrt, div, mul", import_rms_normalization, "axis epsilon stash_type"},
    {"RNN", 1, "matmul, add, tanh or relu for each step", import_rnn,
     "activation_alpha activation_beta activations clip direction hidden_size layout"},
    {"RandomNormal", 1, "random_uniform, log, sqrt, cos, mul", import_random_normal,
     "dtype mean scale seed shape"},
    {"RandomNormalLike", 1, "random_uniform, log, sqrt, cos, mul", import_random_normal_like,
     "dtype mean scale seed"},
    {"RandomUniform", 1, "random_uniform", import_random_uniform, "dtype high low seed shape"},
    {"RandomUniformLike", 1, "random_uniform", import_random_uniform_like, "dtype high low seed"},
    {"Range", 11, "folded", import_range, "stash_type"},
    {"Reciprocal", 1, "reciprocal", unary<UnaryKind::kReciprocal>},
    {"ReduceL1", 1, "abs, sum", import_reduce_l1, "axes keepdims noop_with_empty_axes"},
    {"ReduceL2", 1, "mul, sum, sqrt", import_reduce_l2, "axes keepdims noop_with_empty_axes"},
    {"ReduceLogSum", 1, "sum, log", import_reduce_log_sum, "axes keepdims noop_with_empty_axes"},
    {"ReduceLogSumExp", 1, "max, exp, sum, log", import_reduce_log_sum_exp,
     "axes keepdims noop_with_empty_axes"},
    {"ReduceMax", 1, "max", reduce<ReduceKind::kMax>, "axes keepdims noop_with_empty_axes"},
    {"ReduceMean", 1, "mean", reduce<ReduceKind::kMean>, "axes keepdims noop_with_empty_axes"},
    {"ReduceMin", 1, "max of the negated", import_reduce_min, "axes keepdims noop_with_empty_axes"},
    {"ReduceProd", 1, "mul", import_reduce_prod, "axes keepdims noop_with_empty_axes"},
    {"ReduceSum", 1, "sum", reduce<ReduceKind::kSum>, "axes keepdims noop_with_empty_axes"},
    {"ReduceSumSquare", 1, "mul, sum", import_reduce_sum_square, "axes keepdims noop_with_empty_axes"},
    {"Relu", 1, "relu", unary<UnaryKind::kRelu>},
    {"Reshape", 1, "reshape; the shape is a constant once the free axes are bound", import_reshape,
     "allowzero shape"},
    {"Resize", 10, "matmul by the weights of each axis; no antialias, no cropping", import_resize,
     "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside keep_aspect_ratio_policy "
     "mode "
     "nearest_mode"},
    {"ReverseSequence", 10, "gather", import_reverse_sequence, "batch_axis time_axis"},
    {"RotaryEmbedding", 23, "slice, mul, add, concat", import_rotary_embedding,
     "interleaved num_heads rotary_embedding_dim"},
    {"Round", 11, "round", unary<UnaryKind::kRound>},
    {"Scan", 8, "its graph for each turn; since opset 9", import_scan,
     "body num_scan_inputs scan_input_axes scan_input_directions scan_output_axes scan_output_directions"},
    {"ScatterElements", 11, "concat, gather; constant indices, no reduction", import_scatter_elements,
     "axis reduction"},
    {"ScatterND", 11, "concat, gather; rows at any indices, else constant ones; no reduction",
     import_scatter_nd, "reduction"},
    {"Selu", 1, "elu", import_selu, "alpha gamma"},
    {"SequenceAt", 11, "nothing", import_sequence_at},
    {"SequenceConstruct", 11, "nothing", import_sequence_construct},
    {"SequenceEmpty", 11, "nothing", import_sequence_empty, "dtype"},
    {"SequenceErase", 11, "nothing", import_sequence_erase},
    {"SequenceInsert", 11, "nothing", import_sequence_insert},
    {"SequenceLength", 11, "folded", import_sequence_length},
    {"Shape", 1, "folded", import_shape, "end start"},
    {"Shrink", 9, "less, where, sub, add", import_shrink, "bias lambd"},
    {"Sigmoid", 1, "sigmoid", unary<UnaryKind::kSigmoid>},
    {"Sign", 9, "sign", unary<UnaryKind::kSign>},
    {"Sin", 7, "sin", unary<UnaryKind::kSin>},
    {"Sinh", 9, "exp, sub, mul", import_sinh},
    {"Size", 1, "folded", import_size},
    {"Slice", 1, "slice", import_slice, "axes ends starts"},
    {"Softmax", 1, "softmax", import_softmax, "axis"},
    {"SoftmaxCrossEntropyLoss", 12, "max, sub, exp, sum, log, equal, where",
     import_softmax_cross_entropy_loss, "axis ignore_index reduction"},
    {"Softplus", 1, "softplus", unary<UnaryKind::kSoftplus>},
    {"Softsign", 1, "abs, div", import_softsign},
    {"SpaceToDepth", 1, "reshape, transpose", import_space_to_depth, "blocksize mode"},
    {"Split", 1, "slice", import_split, "axis num_outputs split"},
    {"SplitToSequence", 11, "slice", import_split_to_sequence, "axis keepdims"},
    {"Sqrt", 1, "sqrt", unary<UnaryKind::kSqrt>},
    {"Squeeze", 1, "reshape", import_squeeze, "axes"},
    {"Sub", 1, "sub", binary<BinaryKind::kSub>, "axis broadcast"},
    {"Sum", 1, "add", import_sum},
    {"Swish", 24, "sigmoid, mul", import_swish, "alpha"},
    {"Tan", 7, "sin, cos, div", import_tan},
    {"Tanh", 1, "tanh", unary<UnaryKind::kTanh>},
    {"ThresholdedRelu", 10, "where", import_thresholded_relu, "alpha"},
    {"Tile", 1, "broadcast_to", import_tile},
    {"TopK", 1,
     "less, equal, sum: each element beside each of its row; k is a constant, rows of up to 16,384",
     import_top_k, "axis k largest sorted"},
    {"Transpose", 1, "transpose, where the next op needs it", import_transpose, "perm"},
    {"Trilu", 14, "where", import_trilu, "upper"},
    {"Unsqueeze", 1, "reshape", import_unsqueeze, "axes"},
    {"Upsample", 7, "matmul by the weights of each axis", import_resize, "mode scales"},
    {"Where", 9, "where", import_where},
    {"Xor", 1, "not_equal", compare<CompareKind::kNotEqual>, "axis broadcast"},
};
static_assert(std::ranges::is_sorted(kOps, [](const OpRow& a, const OpRow& b) { return a.name < b.name; }));

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

std::string_view why_unknown(std::string_view domain, std::string_view op) {
  if (domain == "ai.onnx.ml")
    return "a tree, a scaler or another classical model, not a net: run it in ONNX Runtime";
  if (domain == "com.microsoft")
    return "an op of ONNX Runtime alone: take the file from before its optimizer or quantizer";
  if (!domain.empty())
    return "an op of a library that this program does not have, and the file no function for it";
  if (op.starts_with("QLinear") || op.ends_with("Integer"))
    return "computes in 8-bit integers: take the file from before it was quantized, or quantized as QDQ";
  return {};
}

bool takes_attribute(const OpRow& op, std::string_view name) {
  const std::vector<std::string_view> known = split(op.attributes, " ");
  return std::ranges::find(known, name) != known.end();
}

std::string op_table_text() {
  std::string text = "| ONNX op | since opset | becomes |\n| --- | --- | --- |\n";
  for (const OpRow& row : kOps) text += fmt::format("| {} | {} | {} |\n", row.name, row.since, row.becomes);
  return text;
}

}  // namespace headroom::onnx
