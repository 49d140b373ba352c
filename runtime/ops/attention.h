// Attention: each query's mean of values, weighted by the softmax of its products with the keys.
#pragma once

#include "runtime/ops/op.h"

namespace headroom {

// The longest query, key and value of one head that kernels take.
inline constexpr int64_t kMaxHeadExtent = 128;

// Attention of heads (Vaswani et al. 2017) whose scores are never a tensor (Rabe, Staats 2021; Dao et al.
// 2022). q (B,T,H,D), k (B,S,H,D), v (B,S,H,D), [mask] -> y (B,T,H,D), the softmax of scale q k^T + mask
// times v, and statistics (B,H,T,2) of each softmax for the gradient: with scores in powers of 2, that is
// times log2(e), the largest score and the logarithm to base 2 of the sum of 2^(score - largest). They are
// two, since one number loses the sum where a mask of large numbers hides all scores of a row. The mask
// broadcasts to (B,H,T,S), but for the last axis. With zero_nan_rows the result is 0 where that softmax is
// NaN, as where a mask is -inf throughout; the largest score is +inf there.
struct Attention {
  static constexpr OpTraits kTraits{.name = "attention"};
  float scale = 1;
  bool zero_nan_rows = false;
  Outputs infer(const OpCheck& c) const;
};
// dy, q, k, v, y, statistics, [mask] -> dq, dk, dv. A mask has no gradient.
struct AttentionGrad {
  static constexpr OpTraits kTraits{.name = "attention_grad", .differentiable = false};
  float scale = 1;
  Outputs infer(const OpCheck& c) const;
};

}  // namespace headroom
