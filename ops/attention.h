// Attention: each query's mean of values, weighted by the softmax of its products with the keys.
#pragma once

#include <span>

#include "ops/op.h"

namespace headroom {

// The longest query, key and value of one head that kernels take.
inline constexpr int64_t kMaxHeadExtent = 128;
// Queries, and keys, of a tile of scores.
inline constexpr int64_t kAttentionTile = 64;

// Classifies the scores of each tile of 64 queries and 64 keys by a mask, so that attention skips hidden
// tiles: mask -> u8 (strips of queries, tiles of keys), MaskTile of kernels/attention_tiles.h. One result
// serves all layers that read the mask. `scores` is (B,H,T,S).
struct MaskTiles {
  static constexpr OpTraits kTraits{.name = "mask_tiles", .differentiable = false};
  Shape scores;
  Outputs infer(const OpCheck& c) const;
};

// Attention of heads (Vaswani et al. 2017) without a tensor of scores (Rabe, Staats 2021; Dao et al. 2022). q
// (B,T,H,D), k (B,S,G,D), v (B,S,G,D), [mask, its MaskTiles] -> y (B,T,H,D), the softmax of scale q k^T +
// mask times v, and statistics (B,H,T,2) of each softmax for the gradient: with scores in powers of 2, that
// is times log2(e), the largest score and the logarithm to base 2 of the sum of 2^(score - largest). There
// are two statistics because a single number loses the sum if a mask of large numbers hides all scores of a
// row. H / G neighboring heads of q share one of k and v (Ainslie et al. 2023). With a `softcap` c the scores
// are c tanh(scale q k^T / c) before the mask (Gemma Team 2024). The mask broadcasts to (B,H,T,S), except
// along the last axis. With zero_nan_rows the result is 0 if that softmax is NaN, for example if a mask row
// is -inf throughout; the largest score is then +inf. If q, k and v are `packed`, they and their gradients
// are one tensor (B,T,3,H,D), as a single product gives them.
struct Attention {
  static constexpr OpTraits kTraits{.name = "attention"};
  float scale = 1;
  bool zero_nan_rows = false;
  bool packed = false;
  float softcap = 0;  // 0: none
  Outputs infer(const OpCheck& c) const;
};
// dy, q, k, v, y, statistics, [mask, its MaskTiles] -> dq, dk, dv. A mask has no gradient.
struct AttentionGrad {
  static constexpr OpTraits kTraits{.name = "attention_grad", .differentiable = false};
  float scale = 1;
  bool packed = false;
  float softcap = 0;
  Outputs infer(const OpCheck& c) const;
};

// New rows that attention to a cache takes at once.
inline constexpr int64_t kMaxNewRows = 16;

// Attention to a cache of keys and values of which a step replaces N rows, as a step of decoding does. q
// (B,T,H,D), new keys and values (B,G,N,D), those of the cache (B,G,L,D), i32 indices (N) modulo L of the
// rows that the new ones stand for, mask, its MaskTiles for (B,H,T,L) -> y (B,T,H,D), as Attention computes
// it. The cache stays as it is: an update replaces its rows when the step has succeeded.
struct CachedAttention {
  static constexpr OpTraits kTraits{.name = "cached_attention", .differentiable = false};
  float scale = 1;
  bool zero_nan_rows = false;
  float softcap = 0;
  Outputs infer(const OpCheck& c) const;

  // Positions of operands.
  static constexpr size_t kQ = 0, kNewK = 1, kNewV = 2, kK = 3, kV = 4, kIndices = 5, kMask = 6, kTiles = 7;
};

// Positions of q, k and v among the operands of an attention.
struct HeadOperands {
  size_t first, count;  // one that is packed, or three
  Shape q, k;           // (B,T,H,D), (B,S,G,D)

  HeadOperands(const Attention& op, std::span<const TensorSpec> operands);
  HeadOperands(const AttentionGrad& op, std::span<const TensorSpec> operands);

  // Returns the position of the mask, if there is one; its tiles follow.
  size_t mask() const { return first + count + (first > 0 ? 2 : 0); }
  bool is_packed() const { return count == 1; }
  // Elements between a query of a head and the next one, and between keys or values.
  int64_t row_step() const { return q[2] * q[3] * (is_packed() ? 3 : 1); }
  int64_t key_step() const { return k[2] * k[3] * (is_packed() ? 3 : 1); }

 private:
  HeadOperands(size_t first, bool packed, std::span<const TensorSpec> operands);
};

}  // namespace headroom
