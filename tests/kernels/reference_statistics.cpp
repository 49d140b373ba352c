#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/reference.h"

namespace headroom::test {
namespace {

Shape kept_shape(Shape x, const PerAxis<int>& axes) {
  for (int axis : axes) x = x.with(axis, 1);
  return x;
}

// The row as probabilities.
std::vector<double> softmax_of(const Values& x, int64_t row, int64_t n) {
  std::vector<double> result(x.data.begin() + row * n, x.data.begin() + (row + 1) * n);
  const double largest = *std::max_element(result.begin(), result.end());
  double sum = 0;
  for (double& value : result) sum += value = std::exp(value - largest);
  for (double& value : result) value /= sum;
  return result;
}

// Logits whose columns from `classes` on, if that is not 0, are -infinity.
Values without_padding(Values logits, int64_t classes) {
  const int64_t n = logits.shape().last();
  for (int64_t i = 0; classes > 0 && i < logits.shape().elements(); ++i) {
    if (i % n >= classes) logits[i] = -HUGE_VAL;
  }
  return logits;
}

// Mean and variance of each channel, added to zeros.
void gather_statistics(const Values& x, Values& mean, Values& variance) {
  const int64_t n = x.shape().last(), elements = x.shape().elements();
  const double rows = static_cast<double>(elements / n);
  for (int64_t i = 0; i < elements; ++i) mean[i % n] += x[i] / rows;
  for (int64_t i = 0; i < elements; ++i) variance[i % n] += std::pow(x[i] - mean[i % n], 2) / rows;
}

std::vector<Values> norm(const Values& x, const Values& gamma, const Values& beta, const Values& mean,
                         const Values& variance, float epsilon, std::vector<Values> out) {
  const int64_t n = x.shape().last();
  for (int64_t i = 0; i < x.shape().elements(); ++i) {
    const int64_t c = i % n;
    const double deviation = std::sqrt(variance[c] + static_cast<double>(epsilon));
    out[0][i] = (x[i] - mean[c]) / deviation * gamma[c] + beta[c];
  }
  return out;
}

// A normalized value in 8 bits: the sign, 3 bits of exponent and 4 of mantissa; code 64 is 1.
double normal_of(double code) {
  const double sign = code < 128 ? 1 : -1, magnitude = code < 128 ? code : code - 128;
  const double exponent = std::floor(magnitude / 16), mantissa = magnitude / 16 - exponent;
  return sign * (exponent == 0 ? mantissa / 8 : std::exp2(exponent - 4) * (1 + mantissa));
}
// The value is rounded to 10 bits of mantissa first, as an f16 has.
double code_of(double normal) {
  const double magnitude = std::abs(normal);
  const double unit = std::exp2(std::max(-3.0, magnitude > 0 ? std::floor(std::log2(magnitude)) : 0) - 10);
  const double rounded = std::nearbyint(magnitude / unit) * unit;
  double best = 0;
  for (double code = 1; code < 128; ++code) {
    if (std::abs(rounded - normal_of(code)) <= std::abs(rounded - normal_of(best))) best = code;
  }
  return normal < 0 ? best + 128 : best;
}

}  // namespace

std::vector<Values> reference_statistics(const Op& op, const std::vector<Values>& in,
                                         std::vector<Values> out) {
  const int64_t n = in.empty() ? 0 : in[0].shape().last();
  const int64_t elements = in.empty() ? 0 : in[0].shape().elements();
  return std::visit(
      Overloaded{
          [&](const Reduce& o) {
            const Shape kept = kept_shape(in[0].shape(), o.axes);
            const double count = static_cast<double>(elements) / static_cast<double>(kept.elements());
            if (o.kind == ReduceKind::kMax)
              std::fill(out[0].data.begin(), out[0].data.end(), -std::numeric_limits<double>::infinity());
            for_each_index(in[0].shape(), [&](const Index& index, int64_t i) {
              double& result = out[0][position_of(kept, index)];
              if (o.kind == ReduceKind::kMax) result = std::max(result, in[0][i]);
              if (o.kind == ReduceKind::kSum) result += in[0][i];
              if (o.kind == ReduceKind::kMean) result += in[0][i] / count;
            });
            return out;
          },
          [&](const ReduceMaxGrad&) {
            std::vector<double> ties(in[1].data.size());
            for (bool counting : {true, false}) {
              for_each_index(in[0].shape(), [&](const Index& index, int64_t i) {
                const int64_t result = position_of(in[1].shape(), index);
                if (in[0][i] != in[1][result]) return;
                if (counting) ++ties[static_cast<size_t>(result)];
                out[0][i] = in[2][result] / ties[static_cast<size_t>(result)];
              });
            }
            return out;
          },
          [&](const AllFinite&) {
            out[0][0] = 1;
            for (const Values& values : in) {
              for (double value : values.data) out[0][0] = out[0][0] * (std::isfinite(value) ? 1 : 0);
            }
            return out;
          },
          [&](const ArgMax& o) {
            const Shape kept = kept_shape(in[0].shape(), {o.axis});
            std::vector<double> largest(out[0].data.size(), -std::numeric_limits<double>::infinity());
            for_each_index(in[0].shape(), [&](const Index& index, int64_t i) {
              const int64_t result = position_of(kept, index);
              if (in[0][i] <= largest[static_cast<size_t>(result)]) return;
              largest[static_cast<size_t>(result)] = in[0][i];
              out[0][result] = static_cast<double>(index[static_cast<size_t>(o.axis)]);
            });
            return out;
          },
          [&](const Accuracy&) {
            for (int64_t row = 0; row < elements / n; ++row) {
              const auto begin = in[0].data.begin() + row * n;
              const auto best = static_cast<double>(std::max_element(begin, begin + n) - begin);
              out[0][0] += best == in[1][row] ? 1 / static_cast<double>(elements / n) : 0;
            }
            return out;
          },
          [&](const Softmax& softmax) {
            Values x = in[0];
            for_each_index(x.shape(), [&](const Index& index, int64_t i) {
              x[i] *= static_cast<double>(softmax.scale);
              if (in.size() > 1) x[i] += in[1][position_of(in[1].shape(), index)];
            });
            for (int64_t row = 0; row < elements / n; ++row) {
              std::vector<double> p = softmax_of(x, row, n);
              if (softmax.zero_nan_rows && std::isnan(p[0])) std::fill(p.begin(), p.end(), 0);
              std::copy(p.begin(), p.end(), out[0].data.begin() + row * n);
            }
            return out;
          },
          [&](const SoftmaxGrad& softmax) {
            for (int64_t row = 0; row < elements / n; ++row) {
              double product = 0;
              for (int64_t i = row * n; i < (row + 1) * n; ++i) product += in[0][i] * in[1][i];
              for (int64_t i = row * n; i < (row + 1) * n; ++i)
                out[0][i] = static_cast<double>(softmax.scale) * (in[0][i] - product) * in[1][i];
            }
            return out;
          },
          [&](const CrossEntropy& o) {
            const Values logits = without_padding(in[0], o.classes);
            for (int64_t row = 0; row < elements / n; ++row)
              out[0][row] = -std::log(softmax_of(logits, row, n)[static_cast<size_t>(in[1][row])]);
            return out;
          },
          [&](const CrossEntropyGrad& o) {
            const Values logits = without_padding(in[0], o.classes);
            std::vector<double> p;
            for (int64_t i = 0; i < elements; ++i) {
              if (i % n == 0) p = softmax_of(logits, i / n, n);
              const double hit = static_cast<double>(i % n) == in[1][i / n] ? 1 : 0;
              out[0][i] = (p[static_cast<size_t>(i % n)] - hit) * in[2][i / n];
            }
            return out;
          },
          [&](const ClassifierHead&) {
            const Values &x = in[0], &w1 = in[1], &w2 = in[3];
            const int64_t terms = x.shape()[1], hidden = w1.shape()[1], classes = w2.shape()[1];
            for (int64_t row = 0; row < x.shape()[0]; ++row) {
              for (int64_t h = 0; h < hidden; ++h) {
                double sum = in[2][h];
                for (int64_t k = 0; k < terms; ++k) sum += x[row * terms + k] * w1[k * hidden + h];
                out[0][row * hidden + h] = std::max(sum, 0.0);
              }
              for (int64_t c = 0; c < classes; ++c) {
                out[1][row * classes + c] = in[4][c];
                for (int64_t h = 0; h < hidden; ++h)
                  out[1][row * classes + c] += out[0][row * hidden + h] * w2[h * classes + c];
              }
              const std::vector<double> p = softmax_of(out[1], row, classes);
              const auto label = static_cast<int64_t>(in[5][row]);
              out[2][row] = -std::log(p[static_cast<size_t>(label)]);
              for (int64_t c = 0; c < classes; ++c)
                out[3][row * classes + c] = (p[static_cast<size_t>(c)] - (c == label ? 1 : 0)) * in[6][row];
              for (int64_t h = 0; h < hidden; ++h) {
                if (out[0][row * hidden + h] <= 0) continue;
                for (int64_t c = 0; c < classes; ++c)
                  out[4][row * hidden + h] += out[3][row * classes + c] * w2[h * classes + c];
                for (int64_t k = 0; k < terms; ++k)
                  out[5][row * terms + k] += out[4][row * hidden + h] * w1[k * hidden + h];
              }
            }
            return out;
          },
          [&](const BatchNorm& o) {
            gather_statistics(in[0], out[1], out[2]);
            out = norm(in[0], in[1], in[2], out[1], out[2], o.epsilon, out);
            for (int64_t i = 0; i < elements; ++i) {
              if (in.size() > 3) out[0][i] += in[3][i];
              if (o.relu && out[0][i] < 0) out[0][i] = 0;
            }
            return out;
          },
          [&](const BatchNormGrad& o) {
            const auto deviation = [&](int64_t c) {
              return std::sqrt(in[4][c] + static_cast<double>(o.epsilon));
            };
            const auto normal = [&](int64_t i) {
              return o.compressed ? normal_of(in[1][i]) : (in[1][i] - in[3][i % n]) / deviation(i % n);
            };
            const double rows = static_cast<double>(elements / n);
            const auto arriving = [&](int64_t i) {
              if (!o.relu) return in[0][i];
              const double y = o.residual ? in[5][i] : normal(i) * in[2][i % n] + in[5][i % n];
              return y <= 0 ? 0 : in[0][i] + (in.size() > 6 ? in[6][i] : 0);
            };
            for (int64_t i = 0; i < elements; ++i) {
              out[1][i % n] += arriving(i) * normal(i);
              out[2][i % n] += arriving(i);
              if (o.residual) out[3][i] = arriving(i);
              if (o.again) out[3][i] = std::max(0.0, normal(i) * in[2][i % n] + in[5][i % n]);
            }
            for (int64_t i = 0; i < elements; ++i) {
              const int64_t c = i % n;
              out[0][i] =
                  in[2][c] / deviation(c) * (arriving(i) - (out[2][c] + normal(i) * out[1][c]) / rows);
            }
            return out;
          },
          [&](const BranchGrad& o) {
            for (int64_t i = 0; i < elements; ++i) {
              const bool passes = o.marked ? static_cast<int>(in[1][i / 8]) >> i % 8 & 1 : !(in[1][i] <= 0);
              out[0][i] = passes ? in[0][i] + (in.size() > 2 ? in[2][i] : 0) : 0;
              out[1][i % n] += out[0][i];
            }
            return out;
          },
          [&](const ConvNormGrad& o) {
            // Combines the norm's gradient and the convolution's, with the convolution's result.
            const int64_t rows = elements / n, channels = in[2].shape().last();
            const auto place = [&](int64_t k, int64_t c) {
              return o.filter_by_result ? c * channels + k : k * n + c;
            };
            for (int64_t c = 0; c < n; ++c) {
              std::vector<double> z(static_cast<size_t>(rows));
              double mean = 0;
              for (int64_t row = 0; row < rows; ++row) {
                for (int64_t k = 0; k < channels; ++k)
                  z[static_cast<size_t>(row)] += in[2][row * channels + k] * in[3][place(k, c)];
                mean += z[static_cast<size_t>(row)] / static_cast<double>(rows);
              }
              const double deviation = std::sqrt(in[5][c] + static_cast<double>(o.epsilon));
              for (double& value : z) value = (value - mean) / deviation;
              for (int64_t row = 0; row < rows; ++row)
                out[2][c] += in[0][row * n + c] * z[static_cast<size_t>(row)];
              for (int64_t row = 0; row < rows; ++row) {
                const double dz = in[4][c] / deviation *
                                  (in[0][row * n + c] - (in[1][c] + z[static_cast<size_t>(row)] * out[2][c]) /
                                                            static_cast<double>(rows));
                for (int64_t k = 0; k < channels; ++k) {
                  out[0][row * channels + k] += dz * in[3][place(k, c)];
                  out[1][place(k, c)] += in[2][row * channels + k] * dz;
                }
              }
            }
            return out;
          },
          [&](const ConvNormApply& o) {
            const int64_t c = in[2].shape()[0];
            for (int64_t i = 0; i < out[0].shape().elements(); ++i) {
              const int64_t row = i / c, channel = i % c;
              double sum = 0;
              for (int64_t k = 0; k < n; ++k)
                sum += in[0][row * n + k] * in[1][o.filter_by_result ? channel * n + k : k * c + channel];
              const double deviation = std::sqrt(in[5][channel] + static_cast<double>(o.epsilon));
              out[0][i] = (sum - in[4][channel]) / deviation * in[2][channel] + in[3][channel];
              if (in.size() > 6) out[0][i] += in[6][i];
              if (o.relu) out[0][i] = std::max(out[0][i], 0.0);
            }
            return out;
          },
          [&](const LayerNorm& o) {
            const double count = static_cast<double>(n);
            for (int64_t row = 0; row < elements / n; ++row) {
              double mean = 0, variance = 0;
              for (int64_t i = 0; i < n; ++i) mean += in[0][row * n + i] / count;
              for (int64_t i = 0; i < n; ++i) variance += std::pow(in[0][row * n + i] - mean, 2) / count;
              out[1][row] = mean;
              out[2][row] = 1 / std::sqrt(variance + static_cast<double>(o.epsilon));
              for (int64_t i = 0; i < n; ++i)
                out[0][row * n + i] = (in[0][row * n + i] - mean) * out[2][row] * in[1][i] + in[2][i];
            }
            return out;
          },
          [&](const LayerNormGrad&) {
            const double count = static_cast<double>(n);
            for (int64_t row = 0; row < elements / n; ++row) {
              const auto normal = [&](int64_t i) { return (in[1][row * n + i] - in[3][row]) * in[4][row]; };
              double mean = 0, slope = 0;
              for (int64_t i = 0; i < n; ++i) {
                const double dy = in[0][row * n + i];
                mean += dy * in[2][i] / count;
                slope += dy * in[2][i] * normal(i) / count;
                out[1][i] += dy * normal(i);
                out[2][i] += dy;
              }
              for (int64_t i = 0; i < n; ++i)
                out[0][row * n + i] =
                    in[4][row] * (in[0][row * n + i] * in[2][i] - mean - normal(i) * slope) +
                    (in.size() == 6 ? in[5][row * n + i] : 0);
            }
            return out;
          },
          [&](const CumulativeSum& o) {
            // For each element, the sum of the elements before it along the axis.
            for_each_index(in[0].shape(), [&](const Index& index, int64_t i) {
              const auto axis = static_cast<size_t>(o.axis);
              Index other = index;
              const int64_t extent = in[0].shape()[o.axis], here = index[axis];
              for (int64_t k = 0; k < extent; ++k) {
                const bool is_before = o.reverse ? k > here : k < here;
                if (!is_before && (k != here || o.exclusive)) continue;
                other[axis] = k;
                out[0][i] += in[0][position_of(in[0].shape(), other)];
              }
            });
            return out;
          },
          [&](const BatchNormStatistics&) {
            gather_statistics(in[0], out[0], out[1]);
            return out;
          },
          [&](const BatchNormApply& o) {
            if (!o.compressed) out = norm(in[0], in[1], in[2], in[3], in[4], o.epsilon, out);
            for (int64_t i = 0; i < elements; ++i) {
              if (o.compressed) out[0][i] = normal_of(in[0][i]) * in[1][i % n] + in[2][i % n];
              if (o.compresses)
                out[1][i] = code_of((in[0][i] - in[3][i % n]) /
                                    std::sqrt(in[4][i % n] + static_cast<double>(o.epsilon)));
              if (in.size() > 5) out[0][i] += in[5][i];
              if (o.relu && out[0][i] < 0) out[0][i] = 0;
              if (o.marks && !(out[0][i] <= 0)) out[o.marks_at()][i / 8] += 1 << i % 8;
            }
            return out;
          },
          [](const auto&) { return std::vector<Values>(); },
      },
      op);
}

}  // namespace headroom::test
