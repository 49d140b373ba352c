#include <cmath>

#include "tests/kernels/reference.h"

namespace headroom::test {

void replace_rows(Values& table, int axis, const Values& indices, const Values& rows) {
  const Shape& shape = table.shape();
  int64_t row = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) row *= shape[i];
  const int64_t count = std::ssize(indices.data), all = shape[axis];
  for (int64_t i = 0; i < std::ssize(rows.data); ++i) {
    const int64_t at = i / row, place = static_cast<int64_t>(indices[at % count]) % all;
    table[((at / count * all) + (place + all) % all) * row + i % row] = rows[i];
  }
}
namespace {

double wide(float value) {
  return static_cast<double>(value);
}

// The new w of each variable and its new states, in the order of the operands: f changes them, given w, g and
// the states of one variable.
template <typename F>
std::vector<Values> update_each(const std::vector<Values>& in, size_t shared, size_t operands, float scale,
                                F f) {
  std::vector<Values> changed;
  for (size_t first = shared; first < in.size(); first += operands) {
    std::vector<Values> x(in.begin() + static_cast<long>(first),
                          in.begin() + static_cast<long>(first + operands));
    for (double& g : x[1].data) g *= wide(scale);
    f(x, x[0].shape().elements());
    x.erase(x.begin() + 1);
    changed.insert(changed.end(), x.begin(), x.end());
  }
  return changed;
}

}  // namespace

std::vector<Values> reference_update(const Op& op, const std::vector<Values>& in) {
  using All = std::vector<Values>;
  return std::visit(
      Overloaded{
          [&](const SgdUpdate& o) {
            const double momentum = wide(o.momentum);
            return update_each(in, 1, momentum != 0 ? 3 : 2, o.gradient_scale, [&](All& x, int64_t n) {
              for (int64_t i = 0; i < n; ++i) {
                double velocity = x[1][i];
                if (momentum != 0) velocity = x[2][i] = momentum * x[2][i] + x[1][i];
                x[0][i] -= in[0][0] * (o.nesterov ? x[1][i] + momentum * velocity : velocity);
              }
            });
          },
          [&](const RmspropUpdate& o) {
            return update_each(in, 1, 3, o.gradient_scale, [&](All& x, int64_t n) {
              for (int64_t i = 0; i < n; ++i) {
                x[2][i] = wide(o.rho) * x[2][i] + (1 - wide(o.rho)) * x[1][i] * x[1][i];
                x[0][i] -= in[0][0] * x[1][i] / (std::sqrt(x[2][i]) + wide(o.epsilon));
              }
            });
          },
          [&](const AdamUpdate& o) {
            const double t = in[1][0] + 1;
            return update_each(in, 2, 4, o.gradient_scale, [&](All& x, int64_t n) {
              for (int64_t i = 0; i < n; ++i) {
                x[2][i] = wide(o.beta1) * x[2][i] + (1 - wide(o.beta1)) * x[1][i];
                x[3][i] = wide(o.beta2) * x[3][i] + (1 - wide(o.beta2)) * x[1][i] * x[1][i];
                const double mean = x[2][i] / (1 - std::pow(wide(o.beta1), t));
                const double square = x[3][i] / (1 - std::pow(wide(o.beta2), t));
                x[0][i] -= in[0][0] * wide(o.weight_decay) * x[0][i];
                x[0][i] -= in[0][0] * mean / (std::sqrt(square) + wide(o.epsilon));
              }
            });
          },
          [&](const MovingAverageUpdate& o) {
            All averages;
            for (size_t pair = 0; pair < in.size(); pair += 2) {
              Values average = in[pair];
              for (int64_t i = 0; i < average.shape().elements(); ++i)
                average[i] = wide(o.momentum) * average[i] + (1 - wide(o.momentum)) * in[pair + 1][i];
              averages.push_back(average);
            }
            return averages;
          },
          [&](const LossScaleUpdate& o) {
            All changed(in.begin() + 1, in.end());  // scale, streak, updates
            const bool is_finite = in[0][0] != 0, is_long = is_finite && in[2][0] + 1 >= o.interval;
            changed[0][0] *= is_long ? wide(o.growth) : is_finite ? 1 : wide(o.backoff);
            changed[1][0] = is_finite && !is_long ? in[2][0] + 1 : 0;
            changed[2][0] += is_finite ? 1 : 0;
            return changed;
          },
          [&](const CounterUpdate&) {
            Values counter = in[0];
            counter[0] += 1;
            return All{counter};
          },
          [&](const RowUpdate& o) {
            All tables;
            for (size_t i = 1; i < in.size(); i += 2) {
              tables.push_back(in[i]);
              replace_rows(tables.back(), o.axis, in[0], in[i + 1]);
            }
            return tables;
          },
          [](const auto&) { return All(); },
      },
      op);
}

}  // namespace headroom::test
