#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "base/random.h"
#include "tests/kernels/reference.h"

namespace headroom::test {
namespace {

double normal_cdf(double x) {
  return 0.5 * (1 + std::erf(x / std::numbers::sqrt2));
}

double sign_of(double x) {
  return x > 0 ? 1 : x < 0 ? -1 : x;
}

double activation(const Unary& op, double x) {
  const auto alpha = static_cast<double>(op.alpha), beta = static_cast<double>(op.beta);
  switch (op.kind) {
    case UnaryKind::kRelu:
      return std::max(x, 0.0);
    case UnaryKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case UnaryKind::kTanh:
      return std::tanh(x);
    case UnaryKind::kGelu:
      return x * normal_cdf(x);
    case UnaryKind::kExp:
      return std::exp(x);
    case UnaryKind::kSqrt:
      return std::sqrt(x);
    case UnaryKind::kReciprocal:
      return 1 / x;
    case UnaryKind::kTanhGelu:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case UnaryKind::kLog:
      return std::log(x);
    case UnaryKind::kErf:
      return std::erf(x);
    case UnaryKind::kAbs:
      return std::abs(x);
    case UnaryKind::kSin:
      return std::sin(x);
    case UnaryKind::kCos:
      return std::cos(x);
    case UnaryKind::kSoftplus:
      return std::log(1 + std::exp(x));
    case UnaryKind::kClip:
      return std::isnan(x) ? x : std::clamp(x, alpha, beta);
    case UnaryKind::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case UnaryKind::kElu:
      return x < 0 ? alpha * (std::exp(x) - 1) : x;
    case UnaryKind::kHardSigmoid:
      return std::isnan(x) ? x : std::clamp(alpha * x + beta, 0.0, 1.0);
    case UnaryKind::kPower:
      return std::pow(x, alpha);
    case UnaryKind::kFloor:
      return std::floor(x);
    case UnaryKind::kCeil:
      return std::ceil(x);
    case UnaryKind::kRound:
      return std::nearbyint(x);
    case UnaryKind::kSign:
      return sign_of(x);
  }
  return 0;
}

double slope(const UnaryGrad& op, double saved) {
  const auto alpha = static_cast<double>(op.alpha), beta = static_cast<double>(op.beta);
  switch (op.kind) {
    case UnaryKind::kRelu:
      return saved > 0 ? 1 : 0;
    case UnaryKind::kSigmoid:
      return saved * (1 - saved);
    case UnaryKind::kTanh:
      return 1 - saved * saved;
    case UnaryKind::kGelu:
      return normal_cdf(saved) + saved * std::exp(-saved * saved / 2) / std::sqrt(2 * std::numbers::pi);
    case UnaryKind::kExp:
      return saved;
    case UnaryKind::kSqrt:
      return 0.5 / saved;
    case UnaryKind::kReciprocal:
      return -saved * saved;
    case UnaryKind::kTanhGelu: {
      const double scale = std::sqrt(2 / std::numbers::pi);
      const double t = std::tanh(scale * (saved + 0.044715 * saved * saved * saved));
      return (1 + t) / 2 + saved / 2 * (1 - t * t) * scale * (1 + 3 * 0.044715 * saved * saved);
    }
    case UnaryKind::kLog:
      return 1 / saved;
    case UnaryKind::kErf:
      return 2 / std::sqrt(std::numbers::pi) * std::exp(-saved * saved);
    case UnaryKind::kAbs:
      return sign_of(saved);
    case UnaryKind::kSin:
      return std::cos(saved);
    case UnaryKind::kCos:
      return -std::sin(saved);
    case UnaryKind::kSoftplus:
      return 1 / (1 + std::exp(-saved));
    case UnaryKind::kClip:
      return std::isnan(saved) ? saved : saved >= alpha && saved <= beta ? 1 : 0;
    case UnaryKind::kLeakyRelu:
      return std::isnan(saved) ? saved : saved < 0 ? alpha : 1;
    case UnaryKind::kElu:
      return std::isnan(saved) ? saved : saved < 0 ? alpha * std::exp(saved) : 1;
    case UnaryKind::kHardSigmoid: {
      const double y = alpha * saved + beta;
      return std::isnan(saved) ? saved : y > 0 && y < 1 ? alpha : 0;
    }
    case UnaryKind::kPower:
      return alpha * std::pow(saved, alpha - 1);
    case UnaryKind::kFloor:
    case UnaryKind::kCeil:
    case UnaryKind::kRound:
    case UnaryKind::kSign:
      break;
  }
  return 0;
}

double combined(BinaryKind kind, bool is_whole, double a, double b) {
  if (is_whole && b == 0 && (kind == BinaryKind::kDiv || kind == BinaryKind::kMod)) return 0;
  switch (kind) {
    case BinaryKind::kAdd:
      return a + b;
    case BinaryKind::kSub:
      return a - b;
    case BinaryKind::kMul:
      return a * b;
    case BinaryKind::kDiv:
      return is_whole ? std::trunc(a / b) : a / b;
    case BinaryKind::kPow:
      return std::pow(a, b);
    case BinaryKind::kMax:
      return std::isnan(a) || a > b ? a : b;
    case BinaryKind::kMin:
      return std::isnan(a) || a < b ? a : b;
    case BinaryKind::kMod:
      return a - b * std::floor(a / b);
  }
  return 0;
}

bool holds(CompareKind kind, double a, double b) {
  switch (kind) {
    case CompareKind::kEqual:
      return a == b;
    case CompareKind::kNotEqual:
      return a != b;
    case CompareKind::kLess:
      return a < b;
    case CompareKind::kLessEqual:
      return a <= b;
  }
  return false;
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
  // An operand's element, with broadcasting.
  const auto at = [&](size_t i, const Index& index) { return in[i][position_of(in[i].shape(), index)]; };
  return std::visit(
      Overloaded{
          [&](const Unary& o) {
            return each([&](const Index&, int64_t i) { return activation(o, in[0][i]); });
          },
          [&](const UnaryGrad& o) {
            return each([&](const Index&, int64_t i) { return in[0][i] * slope(o, in[1][i]); });
          },
          [&](const Scale& o) {
            return each([&](const Index&, int64_t i) { return static_cast<double>(o.factor) * in[0][i]; });
          },
          [&](const Binary& o) {
            return each([&](const Index& index, int64_t) {
              return combined(o.kind, in[0].spec.dtype != DType::kF32, at(0, index), at(1, index));
            });
          },
          [&](const Compare& o) {
            return each(
                [&](const Index& index, int64_t) { return holds(o.kind, at(0, index), at(1, index)); });
          },
          [&](const Where&) {
            return each([&](const Index& index, int64_t) { return at(at(0, index) != 0 ? 1 : 2, index); });
          },
          [&](const Cast& o) {
            for (size_t t = 0; t < in.size(); ++t) {
              for (int64_t i = 0; i < in[t].shape().elements(); ++i) out[t][i] = converted(o.to, in[t][i]);
            }
            return out;
          },
          [&](const AddPairs&) {
            for (size_t t = 0; t < out.size(); ++t) {
              for (int64_t i = 0; i < in[t].shape().elements(); ++i) {
                out[t][i] = in[t][i] + in[out.size() + t][i];
              }
            }
            return out;
          },
          [&](const Expression& o) {
            return each([&](const Index& index, int64_t) {
              std::vector<double> values;
              const auto along = static_cast<size_t>(out[0].shape().rank() - 1 - o.windows.axis_from_end);
              for (size_t k = 0; k < o.operands; ++k) {
                Index moved = index;
                if (o.windows.has(k)) {
                  moved[along] -= o.windows.begin[k];
                  const int64_t extent = in[k].shape()[in[k].shape().rank() - 1 - o.windows.axis_from_end];
                  if (moved[along] < 0 || moved[along] >= extent) {
                    values.push_back(0);
                    continue;
                  }
                }
                values.push_back(at(k, moved));
              }
              for (const Instruction& step : o.steps()) {
                if (step.code == Instruction::Code::kInside) {
                  const auto i = static_cast<float>(index[along]);
                  values.push_back(step.alpha <= i && i < step.beta ? values[step.a] : 0);
                  continue;
                }
                values.push_back(visit_op(step, [&]<typename T>(const T& part) {
                  if constexpr (std::is_same_v<T, Unary>) return activation(part, values[step.a]);
                  if constexpr (std::is_same_v<T, UnaryGrad>)
                    return values[step.a] * slope(part, values[step.b]);
                  if constexpr (std::is_same_v<T, Scale>)
                    return static_cast<double>(part.factor) * values[step.a];
                  if constexpr (std::is_same_v<T, Binary>)
                    return combined(part.kind, false, values[step.a], values[step.b]);
                }));
              }
              return values.back();
            });
          },
          [&](const ReducedExpression& o) { return reference(o.by, reference(o.of, in)); },
          [&](const Dropout& o) {
            return each([&](const Index&, int64_t i) {
              // The stream of words is the definition; the test checks that every element uses its own.
              const double rate = static_cast<double>(o.rate);
              const uint32_t word = random_words(o.seed, static_cast<uint32_t>(in[1][0]),
                                                 static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)];
              return static_cast<double>(word) < std::floor(rate * 0x1p32) ? 0 : in[0][i] / (1 - rate);
            });
          },
          [&](const RandomUniform& o) {
            return each([&](const Index&, int64_t i) {
              return static_cast<double>(random_unit_float(
                  o.seed, static_cast<uint32_t>(static_cast<int32_t>(in[0][0])), static_cast<uint64_t>(i)));
            });
          },
          [](const auto&) { return std::vector<Values>(); },
      },
      op);
}

}  // namespace headroom::test
