#include "ops/linear.h"

#include <fmt/format.h>

#include "ops/op_check.h"

namespace headroom {

Outputs MatMul::infer(const OpCheck& c) const {
  c.floats(2);
  const Shape &a = c.shape(0), &b = c.shape(1);
  c.require(a.rank() >= 2 && b.rank() >= 2, "operands must be matrices or batches of them");
  const int ra = a.rank(), rb = b.rank();
  const int64_t m = transpose_a ? a[ra - 1] : a[ra - 2], ka = transpose_a ? a[ra - 2] : a[ra - 1];
  const int64_t kb = transpose_b ? b[rb - 1] : b[rb - 2], n = transpose_b ? b[rb - 2] : b[rb - 1];
  c.require(ka == kb, fmt::format("inner extents differ: {} and {}", ka, kb));
  Shape batch;
  c.require(broadcast(Shape(extents_of(a).first(static_cast<size_t>(ra - 2))),
                      Shape(extents_of(b).first(static_cast<size_t>(rb - 2))), &batch),
            "batch extents do not broadcast");
  const std::array<int64_t, 2> matrix = {m, n};
  return {f32(concatenated(extents_of(batch), matrix))};
}

Outputs Dense::infer(const OpCheck& c) const {
  c.floats(c.size() == 4 ? 4 : 3);
  const Shape &x = c.shape(0), &w = c.shape(1);
  c.require(x.rank() >= 2, "takes rank 2 at least");
  c.require(x.last() > 0, "there is nothing to sum");
  c.require(w.rank() == 2 && w[transpose_b ? 1 : 0] == x.last(),
            transpose_b ? fmt::format("the weights must be (N,{})", x.last())
                        : fmt::format("the weights must be ({},N)", x.last()));
  const int64_t columns = w[transpose_b ? 0 : 1];
  const Shape y = x.with(x.rank() - 1, columns);
  const auto has_rows = [&](const Shape& s) {
    return s.rank() >= 2 && s.last() == columns && s.elements() == y.elements();
  };
  if (c.size() == 4 || !has_rows(c.shape(2))) c.same_shape(2, {columns});
  const Shape& last = c.shape(c.size() - 1);
  if (c.size() == 4 && !has_rows(last)) c.same_shape(3, y);
  return {f32(has_rows(last) ? last : y)};
}

Outputs DenseFilterGrad::infer(const OpCheck& c) const {
  c.floats(2);
  c.rank(0, 2);
  const Shape &x = c.shape(0), &dy = c.shape(1);
  c.require(x[1] > 0, "there is nothing to sum");
  c.require(dy.rank() == 2 && dy[0] == x[0], fmt::format("the gradient must be ({},N)", x[0]));
  return {f32({x[1], dy[1]}), f32({dy[1]})};
}

}  // namespace headroom
