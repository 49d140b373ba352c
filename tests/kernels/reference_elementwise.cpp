#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/base/random.h"
#include "tests/kernels/reference.h"

namespace headroom::test {
namespace {

double normal_cdf(double x) {
  return 0.5 * (1 + std::erf(x / std::numbers::sqrt2));
}

double activation(UnaryKind kind, double x) {
  switch (kind) {
    case UnaryKind::kRelu:
      return std::max(x, 0.0);
    case UnaryKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case UnaryKind::kTanh:
      return std::tanh(x);
    case UnaryKind::kGelu:
      return x * normal_cdf(x);
  }
  return 0;
}

double slope(UnaryKind kind, double saved) {
  switch (kind) {
    case UnaryKind::kRelu:
      return saved > 0 ? 1 : 0;
    case UnaryKind::kSigmoid:
      return saved * (1 - saved);
    case UnaryKind::kTanh:
      return 1 - saved * saved;
    case UnaryKind::kGelu:
      return normal_cdf(saved) + saved * std::exp(-saved * saved / 2) / std::sqrt(2 * std::numbers::pi);
  }
  return 0;
}

double combined(BinaryKind kind, double a, double b) {
  switch (kind) {
    case BinaryKind::kAdd:
      return a + b;
    case BinaryKind::kSub:
      return a - b;
    case BinaryKind::kMul:
      return a * b;
    case BinaryKind::kDiv:
      return a / b;
  }
  return 0;
}

double converted(DType to, double x) {
  if (to == DType::kF32) return static_cast<double>(static_cast<float>(x));
  if (std::isnan(x)) return 0;
  const double low = to == DType::kU8 ? 0 : -2147483648.0, high = to == DType::kU8 ? 255 : 2147483647.0;
  return std::trunc(std::clamp(x, low, high));
}

}  // namespace

std::vector<Values> reference_elementwise(const Op& op, const std::vector<Values>& in,
                                          std::vector<Values> out) {
  const auto each = [&](auto f) {
    for_each_index(out[0].shape(), [&](const Index& index, int64_t i) { out[0][i] = f(index, i); });
    return out;
  };
  return std::visit(
      Overloaded{
          [&](const Unary& o) {
            return each([&](const Index&, int64_t i) { return activation(o.kind, in[0][i]); });
          },
          [&](const UnaryGrad& o) {
            return each([&](const Index&, int64_t i) { return in[0][i] * slope(o.kind, in[1][i]); });
          },
          [&](const Scale& o) {
            return each([&](const Index&, int64_t i) { return static_cast<double>(o.factor) * in[0][i]; });
          },
          [&](const Binary& o) {
            return each([&](const Index& index, int64_t) {
              return combined(o.kind, in[0][position_of(in[0].shape(), index)],
                              in[1][position_of(in[1].shape(), index)]);
            });
          },
          [&](const Cast& o) {
            return each([&](const Index&, int64_t i) { return converted(o.to, in[0][i]); });
          },
          [&](const Dropout& o) {
            return each([&](const Index&, int64_t i) {
              // The stream of words is the definition; what is tested is that every element meets its own.
              const double rate = static_cast<double>(o.rate);
              const uint32_t word = random_words(o.seed, static_cast<uint32_t>(in[1][0]),
                                                 static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)];
              return static_cast<double>(word) < std::floor(rate * 0x1p32) ? 0 : in[0][i] / (1 - rate);
            });
          },
          [](const auto&) { return std::vector<Values>(); },
      },
      op);
}

}  // namespace headroom::test
