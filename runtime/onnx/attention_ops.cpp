// ONNX ops of attention: the whole of it, and rotary position embeddings.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
namespace {

// (B,H,T,D) of an operand that may be (B,T,H D).
Item heads_of(const NodeImport& n, const Item& x, int64_t heads) {
  if (x.rank() == 4) return x;
  if (x.rank() != 3) n.fail(fmt::format("takes operands of rank 3 or 4, not {}", to_string(x.shape)));
  if (heads < 1 || x.shape[2] % heads != 0) n.fail(fmt::format("splits {} into {} heads", x.shape[2], heads));
  return n.im.transpose(n.im.reshape(x, {x.shape[0], x.shape[1], heads, x.shape[2] / heads}), {0, 2, 1, 3});
}

// Returns -inf for keys more than `before` positions before a row or more than `after` after it; a negative
// number leaves that side without a bound. The rows come after `past` columns.
Item window_bias(const NodeImport& n, int64_t rows, int64_t columns, int64_t past, int64_t before,
                 int64_t after) {
  if (rows * columns > Importer::kMaxFolded) n.fail("is too large");
  const HostTensor bias({DType::kF32, {rows, columns}});
  const std::span<float> values = bias.data<float>();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t behind = j - (past + i);
      const bool is_hidden = (before >= 0 && -behind > before) || (after >= 0 && behind > after);
      values[static_cast<size_t>(i * columns + j)] = is_hidden ? -std::numeric_limits<float>::infinity() : 0;
    }
  }
  return n.im.constant(bias, ElementType::kFloat);
}

// The mask as numbers to add, as many columns as there are keys.
Item bias_of(const NodeImport& n, const Item& mask, int64_t columns) {
  const Item never = n.im.number(-std::numeric_limits<float>::infinity());
  Item bias = mask;
  if (mask.type == ElementType::kBool) bias = n.im.where(mask, n.im.number(0), never);
  if (bias.rank() < 1 || bias.dtype() != DType::kF32)
    n.fail("its mask is not a tensor of floats or booleans");
  const int64_t missing = columns - bias.shape.last();
  if (bias.shape.last() == 1 || missing <= 0) return bias;
  Item rest = never;
  rest.shape = bias.shape.with(bias.rank() - 1, missing);
  return n.im.concat({bias, rest}, bias.rank() - 1);
}

}  // namespace

void import_attention(NodeImport& n) {
  for (size_t i : {0, 1, 2}) {
    if (n.in(i).dtype() != DType::kF32) n.fail("takes integers");
  }
  if (n.has(6)) n.fail("takes lengths of keys, which is not supported");
  const bool is_joined = n.in(0).rank() == 3;
  const Item q = heads_of(n, n.in(0), n.integer("q_num_heads", 0));
  Item k = heads_of(n, n.in(1), n.integer("kv_num_heads", 0));
  Item v = heads_of(n, n.in(2), n.integer("kv_num_heads", 0));
  const int64_t past = n.has(4) ? n.in(4).shape[2] : 0;
  if (n.has(4)) k = n.im.concat({n.in(4), k}, 2);
  if (n.has(5)) v = n.im.concat({n.in(5), v}, 2);
  const Item present_key = k, present_value = v;
  const int64_t batch = q.shape[0], heads = q.shape[1], rows = q.shape[2], groups = k.shape[1];
  const int64_t columns = k.shape[2], width = v.shape[3];
  if (groups < 1 || heads % groups != 0) n.fail(fmt::format("{} heads share {} of keys", heads, groups));
  // Heads that share keys stand side by side: their product broadcasts, and keys are not copied.
  const bool shares = heads != groups;
  const auto grouped = [&](const Item& x, int64_t each) {
    return shares ? n.im.reshape(x, {batch, groups, each, x.shape[2], x.shape[3]}) : x;
  };
  const Axes exchanged = shares ? Axes{0, 1, 2, 4, 3} : Axes{0, 1, 3, 2};
  Item scores = n.im.matmul(grouped(q, heads / groups), n.im.transpose(grouped(k, 1), exchanged));
  scores = n.im.reshape(scores, {batch, heads, rows, columns});
  const float usual = 1 / std::sqrt(static_cast<float>(q.shape[3]));
  const float scale = n.number("scale", 0);
  scores = n.im.binary(BinaryKind::kMul, scores, n.im.number(scale == 0 ? usual : scale));
  const int64_t wanted = n.integer("qk_matmul_output_mode", 0);
  Item side = scores;
  // Before the mask, whose infinities it would turn into numbers.
  if (const float cap = n.number("softcap", 0); cap > 0) {
    const Item capped =
        n.im.unary(UnaryKind::kTanh, n.im.binary(BinaryKind::kMul, scores, n.im.number(1 / cap)));
    scores = n.im.binary(BinaryKind::kMul, capped, n.im.number(cap));
  }
  if (wanted == 1) side = scores;
  if (n.has(3)) scores = n.im.binary(BinaryKind::kAdd, scores, bias_of(n, n.in(3), columns));
  const int64_t before = n.integer("left_window_size", -1);
  int64_t after = n.integer("right_window_size", -1);
  if (before < -1 || after < -1)
    n.fail(fmt::format("a window of {} keys before and {} after", before, after));
  if (n.integer("is_causal", 0) != 0) after = 0;
  const bool has_window = before >= 0 || after >= 0;
  if (has_window)
    scores = n.im.binary(BinaryKind::kAdd, scores, window_bias(n, rows, columns, past, before, after));
  if (wanted == 2) side = scores;
  // A row that is masked throughout gives zeros.
  const bool may_be_masked = n.has(3) || has_window;
  const Item shares_of = n.im.apply(Softmax{.zero_nan_rows = may_be_masked}, {scores}, scores.type);
  if (wanted == 3) side = shares_of;
  Item y = n.im.matmul(grouped(shares_of, heads / groups), grouped(v, 1));
  y = n.im.reshape(y, {batch, heads, rows, width});
  if (is_joined) y = n.im.reshape(n.im.transpose(y, {0, 2, 1, 3}), {batch, rows, heads * width});
  n.out(y);
  n.out(present_key);
  n.out(present_value);
  n.out(side);
}

// Pairs of numbers turned by an angle for each position, whose cosine and sine are tables.
void import_rotary_embedding(NodeImport& n) {
  const Item& x = n.in(0);
  const bool is_joined = x.rank() == 3;
  const Item all = heads_of(n, x, n.integer("num_heads", 0));  // (B,H,T,D)
  const int64_t batch = all.shape[0], positions = all.shape[2], width = all.shape[3];
  const int64_t given = n.integer("rotary_embedding_dim", 0), turned = given == 0 ? width : given;
  if (turned < 2 || turned > width || turned % 2 != 0)
    n.fail(fmt::format("turns {} of {} numbers", turned, width));
  const auto table = [&](size_t i) {  // (B or 1,1,T,turned / 2)
    const Item rows = n.has(3) ? n.im.gather(n.in(i), n.in(3), 0) : n.in(i);
    if (rows.rank() != 3 || rows.shape[1] != positions || rows.shape[2] != turned / 2)
      n.fail(fmt::format("its table is {}", to_string(rows.shape)));
    return n.im.reshape(rows, {rows.shape[0], 1, positions, turned / 2});
  };
  const Item cosine = table(1), sine = table(2);
  const auto part = [&](const Item& of, int64_t begin, int64_t count, int64_t step) {
    Slice slice{std::vector<int64_t>(static_cast<size_t>(of.rank()), 0), of.shape.with(3, count),
                std::vector<int64_t>(static_cast<size_t>(of.rank()), 1)};
    slice.begin[3] = begin;
    slice.steps[3] = step;
    return n.im.slice(of, slice);
  };
  const bool interleaved = n.integer("interleaved", 0) != 0;
  const int64_t half = turned / 2, step = interleaved ? 2 : 1;
  const Item a = part(all, 0, half, step), b = part(all, interleaved ? 1 : half, half, step);
  const auto times = [&](const Item& one, const Item& other) {
    return n.im.binary(BinaryKind::kMul, one, other);
  };
  const Item real = n.im.binary(BinaryKind::kSub, times(a, cosine), times(b, sine));
  const Item imaginary = n.im.binary(BinaryKind::kAdd, times(a, sine), times(b, cosine));
  Item y;
  if (interleaved) {
    const Shape one = {batch, all.shape[1], positions, half, 1};
    y = n.im.reshape(n.im.concat({n.im.reshape(real, one), n.im.reshape(imaginary, one)}, 4),
                     all.shape.with(3, turned));
  } else {
    y = n.im.concat({real, imaginary}, 3);
  }
  if (turned < width) y = n.im.concat({y, part(all, turned, width - turned, 1)}, 3);
  n.out(is_joined ? n.im.reshape(n.im.transpose(y, {0, 2, 1, 3}), x.shape) : y);
}

}  // namespace headroom::onnx
