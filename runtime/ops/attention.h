// Attention: each query's mean of values, weighted by the softmax of its products with the keys.
#pragma once

#include "runtime/ops/op.h"

namespace headroom {

// The longest query, key and value of one head that kernels take.
inline constexpr int64_t kMaxHeadExtent = 128;

// Attention of heads (Vaswani et al. 2017) whose scores are never a tensor (Rabe, Staats 2021; Dao et al.
// 2022). q (B,T,H,D), k (B,S,H,D), v (B,S,H,D), [mask] -> y (B,T,H,D), the softmax of scale q k^T + mask
// times v, and log_sums (B,H,T), the logarithm of the sum of each softmax. The mask broadcasts to (B,H,T,S),
// but for the last axis. With zero_nan_rows the result is 0 where that softmax is NaN, as where a mask is
// -inf throughout; log_sums is infinite there.
struct Attention {
  static constexpr OpTraits kTraits{.name = "attention"};
  float scale = 1;
  bool zero_nan_rows = false;
  Outputs infer(const OpCheck& c) const;
};
// dy, q, k, v, y, log_sums, [mask] -> dq, dk, dv. A mask has no gradient.
struct AttentionGrad {
  static constexpr OpTraits kTraits{.name = "attention_grad", .differentiable = false};
  float scale = 1;
  Outputs infer(const OpCheck& c) const;
};

}  // namespace headroom
