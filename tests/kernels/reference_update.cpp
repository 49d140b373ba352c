#include <cmath>

#include "tests/kernels/reference.h"

namespace headroom::test {
namespace {

double wide(float value) {
  return static_cast<double>(value);
}

}  // namespace

std::vector<Values> reference_update(const Op& op, const std::vector<Values>& in) {
  using All = std::vector<Values>;
  Values w = in[0];
  const int64_t n = w.shape().elements();
  return std::visit(
      Overloaded{
          [&](const SgdUpdate& o) {
            const double momentum = wide(o.momentum);
            Values v = momentum != 0 ? in[3] : Values{w.spec, std::vector<double>(w.data.size())};
            for (int64_t i = 0; i < n; ++i) {
              v[i] = momentum * v[i] + in[1][i];
              w[i] -= in[2][0] * (o.nesterov ? in[1][i] + momentum * v[i] : v[i]);
            }
            return momentum != 0 ? All{w, v} : All{w};
          },
          [&](const RmspropUpdate& o) {
            Values s = in[3];
            for (int64_t i = 0; i < n; ++i) {
              s[i] = wide(o.rho) * s[i] + (1 - wide(o.rho)) * in[1][i] * in[1][i];
              w[i] -= in[2][0] * in[1][i] / (std::sqrt(s[i]) + wide(o.epsilon));
            }
            return All{w, s};
          },
          [&](const AdamUpdate& o) {
            Values m = in[4], v = in[5];
            const double t = in[3][0] + 1;
            for (int64_t i = 0; i < n; ++i) {
              m[i] = wide(o.beta1) * m[i] + (1 - wide(o.beta1)) * in[1][i];
              v[i] = wide(o.beta2) * v[i] + (1 - wide(o.beta2)) * in[1][i] * in[1][i];
              const double mean = m[i] / (1 - std::pow(wide(o.beta1), t));
              const double square = v[i] / (1 - std::pow(wide(o.beta2), t));
              w[i] -= in[2][0] * wide(o.weight_decay) * w[i];
              w[i] -= in[2][0] * mean / (std::sqrt(square) + wide(o.epsilon));
            }
            return All{w, m, v};
          },
          [&](const MovingAverageUpdate& o) {
            for (int64_t i = 0; i < n; ++i)
              w[i] = wide(o.momentum) * w[i] + (1 - wide(o.momentum)) * in[1][i];
            return All{w};
          },
          [&](const CounterUpdate&) {
            w[0] += 1;
            return All{w};
          },
          [](const auto&) { return All(); },
      },
      op);
}

}  // namespace headroom::test
