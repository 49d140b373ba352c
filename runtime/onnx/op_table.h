// The ONNX ops that are imported, a row each: since which opset, how each becomes ours, and the function that
// does it. docs/models.md shows the table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/onnx/node_import.h"

namespace headroom::onnx {

struct OpRow {
  std::string_view name;
  int since;                 // the first opset that has it
  std::string_view becomes;  // for people: our ops, and what is refused
  void (*import)(NodeImport& n);
  std::string_view attributes = {};  // that it reads, or that change nothing here, with a blank between two
};

// In the order of the alphabet.
std::span<const OpRow> op_table();
// Returns null if there is no op of that name.
const OpRow* find_op(std::string_view name);
// Why an op that the table lacks is none here, and the way round; empty for an op of ONNX's own without one.
std::string_view why_unknown(std::string_view domain, std::string_view op);
// Another attribute of a node would change its results without a word.
bool takes_attribute(const OpRow& op, std::string_view name);
// The table in Markdown, as docs/models.md has it.
std::string op_table_text();

// control_ops.cpp
void import_if(NodeImport& n);
void import_loop(NodeImport& n);
void import_scan(NodeImport& n);
void import_sequence_construct(NodeImport& n);
void import_sequence_empty(NodeImport& n);
void import_sequence_insert(NodeImport& n);
void import_sequence_erase(NodeImport& n);
void import_sequence_length(NodeImport& n);
void import_concat_from_sequence(NodeImport& n);
// quantized_ops.cpp
void import_quantize_linear(NodeImport& n);
void import_dequantize_linear(NodeImport& n);
void import_dynamic_quantize_linear(NodeImport& n);
// composed_ops.cpp
void import_acosh(NodeImport& n);
void import_asinh(NodeImport& n);
void import_atanh(NodeImport& n);
void import_center_crop_pad(NodeImport& n);
void import_cosh(NodeImport& n);
void import_cum_prod(NodeImport& n);
void import_hardmax(NodeImport& n);
void import_lp_normalization(NodeImport& n);
void import_mean_variance_normalization(NodeImport& n);
void import_negative_log_likelihood_loss(NodeImport& n);
void import_reverse_sequence(NodeImport& n);
void import_shrink(NodeImport& n);
void import_sinh(NodeImport& n);
void import_softmax_cross_entropy_loss(NodeImport& n);
void import_swish(NodeImport& n);
void import_tan(NodeImport& n);
void import_top_k(NodeImport& n);
// recurrent_ops.cpp
void import_gru(NodeImport& n);
void import_lstm(NodeImport& n);
void import_rnn(NodeImport& n);
// elementwise_ops.cpp; the first three are shared by rows of op_table.cpp
void add_unary(NodeImport& n, UnaryKind kind, float alpha = 0, float beta = 0);
void add_binary(NodeImport& n, BinaryKind kind);
void add_compare(NodeImport& n, CompareKind kind, bool swaps);
void import_dropout(NodeImport& n);
void import_random_uniform(NodeImport& n);
void import_random_uniform_like(NodeImport& n);
void import_random_normal(NodeImport& n);
void import_random_normal_like(NodeImport& n);
void import_bernoulli(NodeImport& n);
void import_pow(NodeImport& n);
void import_max(NodeImport& n);
void import_min(NodeImport& n);
void import_mean(NodeImport& n);
void import_sum(NodeImport& n);
void import_mod(NodeImport& n);
void import_neg(NodeImport& n);
void import_softsign(NodeImport& n);
void import_clip(NodeImport& n);
void import_leaky_relu(NodeImport& n);
void import_prelu(NodeImport& n);
void import_elu(NodeImport& n);
void import_selu(NodeImport& n);
void import_celu(NodeImport& n);
void import_mish(NodeImport& n);
void import_thresholded_relu(NodeImport& n);
void import_hard_sigmoid(NodeImport& n);
void import_hard_swish(NodeImport& n);
void import_gelu(NodeImport& n);
void import_not(NodeImport& n);
void import_is_nan(NodeImport& n);
void import_is_inf(NodeImport& n);
void import_where(NodeImport& n);
void import_cast(NodeImport& n);
void import_cast_like(NodeImport& n);
void import_identity(NodeImport& n);
// shape_ops.cpp
void import_constant(NodeImport& n);
void import_constant_of_shape(NodeImport& n);
void import_shape(NodeImport& n);
void import_size(NodeImport& n);
void import_range(NodeImport& n);
void import_reshape(NodeImport& n);
void import_flatten(NodeImport& n);
void import_squeeze(NodeImport& n);
void import_unsqueeze(NodeImport& n);
void import_transpose(NodeImport& n);
void import_expand(NodeImport& n);
void import_tile(NodeImport& n);
void import_concat(NodeImport& n);
void import_split(NodeImport& n);
void import_split_to_sequence(NodeImport& n);
void import_sequence_at(NodeImport& n);
void import_slice(NodeImport& n);
void import_pad(NodeImport& n);
void import_trilu(NodeImport& n);
void import_depth_to_space(NodeImport& n);
void import_space_to_depth(NodeImport& n);
void import_eye_like(NodeImport& n);
// index_ops.cpp
void import_gather(NodeImport& n);
void import_gather_elements(NodeImport& n);
void import_gather_nd(NodeImport& n);
void import_one_hot(NodeImport& n);
void import_cum_sum(NodeImport& n);
void import_arg_max(NodeImport& n);
void import_arg_min(NodeImport& n);
void import_scatter_nd(NodeImport& n);
void import_scatter_elements(NodeImport& n);
// attention_ops.cpp
void import_attention(NodeImport& n);
void import_rotary_embedding(NodeImport& n);
// einsum_ops.cpp
void import_einsum(NodeImport& n);
// linear_ops.cpp
void import_mat_mul(NodeImport& n);
void import_gemm(NodeImport& n);
void import_conv(NodeImport& n);
void import_conv_transpose(NodeImport& n);
// image_ops.cpp
void import_max_pool(NodeImport& n);
void import_average_pool(NodeImport& n);
void import_global_average_pool(NodeImport& n);
void import_global_max_pool(NodeImport& n);
void import_grid_sample(NodeImport& n);
void import_resize(NodeImport& n);
// statistics_ops.cpp; the first is shared by rows of op_table.cpp
void add_reduction(NodeImport& n, ReduceKind kind);
void import_reduce_min(NodeImport& n);
void import_reduce_l1(NodeImport& n);
void import_reduce_l2(NodeImport& n);
void import_reduce_prod(NodeImport& n);
void import_reduce_sum_square(NodeImport& n);
void import_reduce_log_sum(NodeImport& n);
void import_reduce_log_sum_exp(NodeImport& n);
void import_softmax(NodeImport& n);
void import_log_softmax(NodeImport& n);
void import_batch_normalization(NodeImport& n);
void import_layer_normalization(NodeImport& n);
void import_instance_normalization(NodeImport& n);
void import_group_normalization(NodeImport& n);
void import_rms_normalization(NodeImport& n);
void import_lrn(NodeImport& n);

}  // namespace headroom::onnx
