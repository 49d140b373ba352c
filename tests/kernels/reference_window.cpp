#include <limits>

#include "tests/kernels/reference.h"

namespace headroom::test {
namespace {

// Calls f(output position, input position, position inside the window) for every pair that meets.
template <typename F>
void for_each_meeting(const Pool2d& pool, const Shape& x, const Shape& y, F f) {
  for_each_index(y, [&](const Index& at, int64_t output) {
    for (int64_t row = 0; row < pool.window[0]; ++row) {
      for (int64_t column = 0; column < pool.window[1]; ++column) {
        const int64_t h = at[1] * pool.stride[0] - pool.padding[0] + row;
        const int64_t w = at[2] * pool.stride[1] - pool.padding[1] + column;
        if (h < 0 || h >= x[1] || w < 0 || w >= x[2]) continue;
        f(output, position_of(x, {at[0], h, w, at[3]}), row * pool.window[1] + column);
      }
    }
  });
}

}  // namespace

std::vector<Values> reference_window(const Op& op, const std::vector<Values>& in, std::vector<Values> out) {
  return std::visit(Overloaded{
                        [&](const MatMul& o) {
                          const Shape &a = in[0].shape(), &b = in[1].shape();
                          const int64_t inner = o.transpose_a ? a[a.rank() - 2] : a.last();
                          for_each_index(out[0].shape(), [&](const Index& index, int64_t i) {
                            Index left = index, right = index;
                            const size_t row = index.size() - 2, column = index.size() - 1;
                            for (int64_t k = 0; k < inner; ++k) {
                              left[row] = o.transpose_a ? k : index[row];
                              left[column] = o.transpose_a ? index[row] : k;
                              right[row] = o.transpose_b ? index[column] : k;
                              right[column] = o.transpose_b ? k : index[column];
                              out[0][i] += in[0][position_of(a, left)] * in[1][position_of(b, right)];
                            }
                          });
                          return out;
                        },
                        [&](const Dense& o) {
                          const int64_t inner = in[0].shape().last(), columns = out[0].shape().last();
                          for_each_index(out[0].shape(), [&](const Index&, int64_t i) {
                            const int64_t row = i / columns, column = i % columns;
                            double sum = in[2].shape().rank() == 1 ? in[2][column] : in[2][i];
                            if (in.size() == 4) sum += in[3][i];
                            for (int64_t k = 0; k < inner; ++k) {
                              const int64_t place = o.transpose_b ? column * inner + k : k * columns + column;
                              sum += in[0][row * inner + k] * in[1][place];
                            }
                            out[0][i] = o.relu && sum < 0 ? 0 : sum;
                          });
                          return out;
                        },
                        [&](const DenseFilterGrad&) {
                          const int64_t inner = out[0].shape()[0], columns = out[0].shape()[1];
                          for_each_index(in[1].shape(), [&](const Index& at, int64_t i) {
                            out[1][at[1]] += in[1][i];
                            for (int64_t k = 0; k < inner; ++k)
                              out[0][k * columns + at[1]] += in[0][at[0] * inner + k] * in[1][i];
                          });
                          return out;
                        },
                        [&](const MaxPool& o) {
                          for (double& value : out[0].data) value = -std::numeric_limits<double>::infinity();
                          for_each_meeting(o.pool, in[0].shape(), out[0].shape(),
                                           [&](int64_t output, int64_t input, int64_t position) {
                                             if (in[0][input] <= out[0][output]) return;
                                             out[0][output] = in[0][input];
                                             out[1][output] = static_cast<double>(position);
                                           });
                          return out;
                        },
                        [&](const MaxPoolGrad& o) {
                          if (in.size() > 2) out[0].data = in[2].data;
                          for_each_meeting(o.pool, out[0].shape(), in[0].shape(),
                                           [&](int64_t output, int64_t input, int64_t position) {
                                             if (in[1][output] == static_cast<double>(position))
                                               out[0][input] += in[0][output];
                                           });
                          return out;
                        },
                        [&](const AvgPool& o) {
                          std::vector<double> counts(out[0].data.size());
                          for_each_meeting(o.pool, in[0].shape(), out[0].shape(),
                                           [&](int64_t output, int64_t input, int64_t) {
                                             out[0][output] += in[0][input];
                                             ++counts[static_cast<size_t>(output)];
                                           });
                          for (size_t i = 0; i < counts.size(); ++i) out[0].data[i] /= counts[i];
                          return out;
                        },
                        [&](const AvgPoolGrad& o) {
                          std::vector<double> counts(in[0].data.size());
                          const Shape &x = out[0].shape(), &y = in[0].shape();
                          for_each_meeting(o.pool, x, y, [&](int64_t output, int64_t, int64_t) {
                            ++counts[static_cast<size_t>(output)];
                          });
                          for_each_meeting(o.pool, x, y, [&](int64_t output, int64_t input, int64_t) {
                            out[0][input] += in[0][output] / counts[static_cast<size_t>(output)];
                          });
                          return out;
                        },
                        [](const auto&) { return std::vector<Values>(); },
                    },
                    op);
}

}  // namespace headroom::test
