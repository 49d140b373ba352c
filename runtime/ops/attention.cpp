#include "runtime/ops/attention.h"

#include <fmt/format.h>

#include "runtime/ops/op_check.h"

namespace headroom {
namespace {

// Checks q, k, v from operand `first` on and the mask, which is operand `mask` if there is one.
void check_heads(const OpCheck& c, size_t first, size_t mask) {
  for (size_t i = first; i < first + 3; ++i) c.rank(i, 4);
  const Shape &q = c.shape(first), &k = c.shape(first + 1);
  c.require(k[0] == q[0] && k[2] == q[2] && k[3] == q[3],
            fmt::format("the keys must be ({},S,{},{})", q[0], q[2], q[3]));
  c.same_shape(first + 2, k);
  c.require(k[1] > 0 && q[3] > 0, "there is nothing to sum");
  c.require(q[3] <= kMaxHeadExtent, fmt::format("{} is the most that a head may have", kMaxHeadExtent));
  if (c.size() <= mask) return;
  const Shape scores = {q[0], q[2], q[1], k[1]};
  Shape both;
  const bool broadcasts = broadcast(c.shape(mask), scores, &both) && both == scores;
  c.require(broadcasts && c.shape(mask).last() == k[1], "the mask does not broadcast to the scores");
}

Shape statistics_of(const Shape& q) {
  return {q[0], q[2], q[1], 2};
}

}  // namespace

Outputs Attention::infer(const OpCheck& c) const {
  c.floats(c.size() == 4 ? 4 : 3);
  check_heads(c, 0, 3);
  return {c.input(0), f32(statistics_of(c.shape(0)))};
}

Outputs AttentionGrad::infer(const OpCheck& c) const {
  c.floats(c.size() == 7 ? 7 : 6);
  check_heads(c, 1, 6);
  c.same_shape(0, c.shape(1));
  c.same_shape(4, c.shape(1));
  c.same_shape(5, statistics_of(c.shape(1)));
  return {c.input(1), c.input(2), c.input(3)};
}

}  // namespace headroom
