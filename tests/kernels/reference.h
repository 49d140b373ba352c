// Every op except the convolutions, as plain loops in double: slow, obvious, and independent of the kernels.
#pragma once

#include <functional>
#include <vector>

#include "ops/ops.h"

namespace headroom::test {

struct Values {
  TensorSpec spec;
  std::vector<double> data;

  double& operator[](int64_t i) { return data[static_cast<size_t>(i)]; }
  double operator[](int64_t i) const { return data[static_cast<size_t>(i)]; }
  const Shape& shape() const { return spec.shape; }
};

using Index = std::vector<int64_t>;

// Calls f(index, position) for every element in row-major order.
void for_each_index(const Shape& shape, const std::function<void(const Index&, int64_t)>& f);
// Position of an element. An index longer than the rank loses its leading axes, and an axis of extent 1 is
// read at 0: NumPy's broadcasting.
int64_t position_of(const Shape& shape, const Index& index);

// The outputs of `op`, then the new values of the inputs that it changes.
std::vector<Values> reference(const Op& op, const std::vector<Values>& inputs);

// Parts of it, by family; each empty for ops that are not its own.
std::vector<Values> reference_attention(const Op& op, const std::vector<Values>& in, std::vector<Values> out);
std::vector<Values> reference_elementwise(const Op& op, const std::vector<Values>& in,
                                          std::vector<Values> out);
std::vector<Values> reference_movement(const Op& op, const std::vector<Values>& in, std::vector<Values> out);
std::vector<Values> reference_window(const Op& op, const std::vector<Values>& in, std::vector<Values> out);
std::vector<Values> reference_statistics(const Op& op, const std::vector<Values>& in,
                                         std::vector<Values> out);
// Replaces rows of a table (..,R,..) along an axis by `rows` (..,N,..) where N indices modulo R say.
void replace_rows(Values& table, int axis, const Values& indices, const Values& rows);
std::vector<Values> reference_update(const Op& op, const std::vector<Values>& in);

}  // namespace headroom::test
