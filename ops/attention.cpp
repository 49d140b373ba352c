#include "ops/attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/op_check.h"

namespace headroom {
namespace {

void check_mask(const OpCheck& c, size_t i, const Shape& scores) {
  const Shape& mask = c.shape(i);
  Shape both;
  const bool broadcasts = broadcast(mask, scores, &both) && both == scores;
  c.require(broadcasts && mask.last() == scores.last(), "the mask does not broadcast to the scores");
}

// The extents of a mask that broadcasts to (B,H,T,S), with 1 in front.
Shape mask_tiles_shape(const Shape& mask, const Shape& scores) {
  const auto tiles = [](int64_t rows) { return (rows + kAttentionTile - 1) / kAttentionTile; };
  const auto extent = [&](int axis) { return mask.rank() < axis ? 1 : mask[mask.rank() - axis]; };
  return {extent(4) * extent(3) * tiles(extent(2)), tiles(scores.last())};
}

void check_heads(const OpCheck& c, const HeadOperands& heads) {
  const Shape &q = heads.q, &k = heads.k;
  if (!heads.is_packed()) {
    c.require(k[0] == q[0] && k[2] > 0 && q[2] % k[2] == 0 && k[3] == q[3],
              fmt::format("the keys must be ({},S,{},{}), or of a divisor of these heads", q[0], q[2], q[3]));
    c.same_shape(heads.first + 2, k);
  }
  c.require(k[1] > 0 && q[3] > 0, "there is nothing to sum");
  c.require(q[3] <= kMaxHeadExtent, fmt::format("{} is the most that a head may have", kMaxHeadExtent));
  if (c.size() <= heads.mask()) return;
  const Shape scores = {q[0], q[2], q[1], k[1]};
  check_mask(c, heads.mask(), scores);
  c.dtype(heads.mask() + 1, DType::kU8);
  c.same_shape(heads.mask() + 1, mask_tiles_shape(c.shape(heads.mask()), scores));
}

// Checks the ranks of q, k and v, and that the operands are floats.
void check_operands(const OpCheck& c, size_t first, bool packed) {
  const size_t factors = packed ? 1 : 3, least = first + factors + (first > 0 ? 2 : 0);
  c.count(c.size() > least ? least + 2 : least);
  for (size_t i = 0; i < std::min(c.size(), least + 1); ++i) c.dtype(i, DType::kF32);
  for (size_t i = first; i < first + factors; ++i) c.rank(i, packed ? 5 : 4);
  if (packed) c.require(c.shape(first)[2] == 3, "q, k and v must be packed as (B,T,3,H,D)");
}

Shape statistics_of(const Shape& q) {
  return {q[0], q[2], q[1], 2};
}

}  // namespace

HeadOperands::HeadOperands(const Attention& op, std::span<const TensorSpec> operands)
    : HeadOperands(0, op.packed, operands) {}

HeadOperands::HeadOperands(const AttentionGrad& op, std::span<const TensorSpec> operands)
    : HeadOperands(1, op.packed, operands) {}

HeadOperands::HeadOperands(size_t begin, bool packed, std::span<const TensorSpec> operands)
    : first(begin), count(packed ? 1 : 3) {
  const Shape& s = operands[begin].shape;
  q = packed ? Shape{s[0], s[1], s[3], s[4]} : s;
  k = packed ? q : operands[begin + 1].shape;
}

Outputs MaskTiles::infer(const OpCheck& c) const {
  c.floats(1);
  c.require(scores.rank() == 4, "the scores are (B,H,T,S)");
  check_mask(c, 0, scores);
  return {u8(mask_tiles_shape(c.shape(0), scores))};
}

Outputs Attention::infer(const OpCheck& c) const {
  check_operands(c, 0, packed);
  const HeadOperands heads(*this, c.inputs());
  check_heads(c, heads);
  return {{c.input(0).dtype, heads.q}, f32(statistics_of(heads.q))};
}

Outputs CachedAttention::infer(const OpCheck& c) const {
  c.count(kTiles + 1);
  for (const size_t i : {kQ, kNewK, kNewV, kK, kV}) {
    c.dtype(i, DType::kF32);
    c.rank(i, 4);
  }
  c.dtype(kIndices, DType::kI32);
  c.rank(kIndices, 1);
  const Shape &q = c.shape(kQ), &k = c.shape(kK);
  const int64_t rows = c.shape(kIndices)[0];
  c.require(k[0] == q[0] && k[1] > 0 && q[2] % k[1] == 0 && k[3] == q[3],
            fmt::format("the cache must be ({},{},L,{}), or of a divisor of these heads", q[0], q[2], q[3]));
  c.require(k[2] > 0 && q[3] > 0, "there is nothing to sum");
  c.require(q[3] <= kMaxHeadExtent, fmt::format("{} is the most that a head may have", kMaxHeadExtent));
  c.require(rows <= kMaxNewRows, fmt::format("{} new rows are the most", kMaxNewRows));
  c.same_shape(kV, k);
  for (const size_t i : {kNewK, kNewV}) c.same_shape(i, k.with(2, rows));
  const Shape scores = {q[0], q[2], q[1], k[2]};
  c.dtype(kMask, DType::kF32);
  check_mask(c, kMask, scores);
  c.dtype(kTiles, DType::kU8);
  c.same_shape(kTiles, mask_tiles_shape(c.shape(kMask), scores));
  return {c.input(kQ)};
}

Outputs AttentionGrad::infer(const OpCheck& c) const {
  check_operands(c, 1, packed);
  const HeadOperands heads(*this, c.inputs());
  check_heads(c, heads);
  c.same_shape(0, heads.q);
  c.same_shape(1 + heads.count, heads.q);
  c.same_shape(2 + heads.count, statistics_of(heads.q));
  if (packed) return {c.input(1)};
  return {c.input(1), c.input(2), c.input(3)};
}

}  // namespace headroom
