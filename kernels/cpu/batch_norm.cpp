// Batch normalization over all axes but the last (Ioffe, Szegedy 2015). Statistics are summed in double.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/sums.h"
#include "kernels/normal_code.h"

namespace headroom::cpu {
namespace {

// A tensor (.., C) as a matrix (rows, C).
struct Matrix {
  explicit Matrix(const Shape& shape) : channels(shape.last()), rows(shape.elements() / channels) {}
  int64_t channels, rows;
};

// scale (C) = gamma / sqrt(variance + epsilon)
void compute_scale(const float* gamma, const float* variance, float epsilon, int64_t channels, float* scale) {
  for (int64_t c = 0; c < channels; ++c) scale[c] = gamma[c] / std::sqrt(variance[c] + epsilon);
}

// y = (x - mean) * scale + beta [+ residual] of a row
void normalize_row(const float* x, const float* mean, const float* scale, const float* beta,
                   const float* residual, bool relu, int64_t channels, float* y) {
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) y[c] = (x[c] - mean[c]) * scale[c] + beta[c];
  if (residual != nullptr) {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) y[c] += residual[c];
  }
  if (!relu) return;
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) y[c] = y[c] < 0 ? 0 : y[c];
}

// All rows; leaves the scale in `scale` (C).
void normalize(const float* x, const float* gamma, const float* beta, const float* mean,
               const float* variance, const float* residual, float epsilon, bool relu, Matrix matrix,
               float* scale, float* y) {
  const int64_t channels = matrix.channels;
  compute_scale(gamma, variance, epsilon, channels, scale);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const int64_t at = row * channels;
    normalize_row(x + at, mean, scale, beta, residual == nullptr ? nullptr : residual + at, relu, channels,
                  y + at);
  }
}

// Means and variances over the rows; `sums` is of as many channels.
void gather_statistics(const float* x, Matrix matrix, double* sums, float* mean, float* variance) {
  const int64_t channels = matrix.channels;
  const double share = 1 / static_cast<double>(matrix.rows);
  std::fill_n(sums, channels, 0.0);
  for (int64_t row = 0; row < matrix.rows; ++row) add_to(sums, x + row * channels, channels);
  for (int64_t c = 0; c < channels; ++c) mean[c] = static_cast<float>(sums[c] * share);
  // A second pass: the mean of squares less the squared mean would cancel.
  std::fill_n(sums, channels, 0.0);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const float* values = x + row * channels;
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) {
      const float centered = values[c] - mean[c];
      sums[c] += static_cast<double>(centered * centered);
    }
  }
  for (int64_t c = 0; c < channels; ++c) variance[c] = static_cast<float>(sums[c] * share);
}

// The codes of x's normalized values. Leaves their factor in `inverse` (C).
void compress(const float* x, const float* mean, const float* variance, float epsilon, Matrix matrix,
              float* inverse, uint8_t* codes) {
  const int64_t channels = matrix.channels;
  for (int64_t c = 0; c < channels; ++c) inverse[c] = 1 / std::sqrt(variance[c] + epsilon);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const float* values = x + row * channels;
    uint8_t* to = codes + row * channels;
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) to[c] = code_of_normal((values[c] - mean[c]) * inverse[c]);
  }
}

int64_t scratch_bytes(Matrix matrix, size_t bytes_per_channel) {
  return matrix.channels * static_cast<int64_t>(bytes_per_channel);
}

// Computes a bit for each of y, eight to a byte: 1 if it is more than 0.
void mark(const float* y, Matrix matrix, uint8_t* marks) {
  for (int64_t byte = 0; byte < matrix.rows * matrix.channels / 8; ++byte) {
    unsigned bits = 0;
    for (int bit = 0; bit < 8; ++bit) bits |= (y[8 * byte + bit] <= 0 ? 0u : 1u) << bit;
    marks[byte] = static_cast<uint8_t>(bits);
  }
}

// The values of x for reading its rows: x, or the codes of its normalized values.
struct Normals {
  const float* x;
  const uint8_t* codes;  // null: x
  const float* mean;
  int64_t channels;
  float *center, *unit, *decoded;  // C each: scratch

  void start(const float* inverse) const {
    for (int64_t c = 0; c < channels; ++c) {
      center[c] = codes == nullptr ? mean[c] : 0;
      unit[c] = codes == nullptr ? inverse[c] : 1;
    }
  }
  // (row - center) unit are the normalized values.
  const float* row(int64_t at) const {
    if (codes == nullptr) return x + at * channels;
    for (int64_t c = 0; c < channels; ++c) decoded[c] = normal_of_code(codes[at * channels + c]);
    return decoded;
  }
};

// norm(x), or relu of that, from the codes of its normalized values.
std::unique_ptr<Kernel> make_restore(const BatchNormApply& op, Matrix matrix) {
  return function_kernel(
      [=](const Call& call) {
        const int64_t channels = matrix.channels;
        float *nothing = call.scratch<float>(), *decoded = nothing + channels;
        std::fill_n(nothing, channels, 0.0f);
        for (int64_t row = 0; row < matrix.rows; ++row) {
          const int64_t at = row * channels;
          const uint8_t* codes = call.in<uint8_t>(0) + at;
          for (int64_t c = 0; c < channels; ++c) decoded[c] = normal_of_code(codes[c]);
          normalize_row(decoded, nothing, call.in(1), call.in(2), nullptr, op.relu, channels,
                        call.out() + at);
        }
      },
      scratch_bytes(matrix, 2 * sizeof(float)));
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const BatchNorm& op, const Request& request) {
  const Matrix matrix(request.inputs[0].shape);
  return function_kernel(
      [=](const Call& call) {
        gather_statistics(call.in(0), matrix, call.scratch<double>(), call.out(1), call.out(2));
        const float* residual = call.inputs.size() > 3 ? call.in(3) : nullptr;
        normalize(call.in(0), call.in(1), call.in(2), call.out(1), call.out(2), residual, op.epsilon, op.relu,
                  matrix, call.scratch<float>(), call.out(0));
      },
      scratch_bytes(matrix, sizeof(double)));
}

std::unique_ptr<Kernel> make_kernel(const BatchNormStatistics&, const Request& request) {
  const Matrix matrix(request.inputs[0].shape);
  return function_kernel(
      [=](const Call& call) {
        gather_statistics(call.in(0), matrix, call.scratch<double>(), call.out(0), call.out(1));
      },
      scratch_bytes(matrix, sizeof(double)));
}

// With n rows, x' = (x - mean) / sqrt(variance + epsilon):
//   dbeta = sum dy,  dgamma = sum dy x',  dx = gamma / sqrt(variance + epsilon) (dy - (dbeta + x' dgamma) /
//   n)
std::unique_ptr<Kernel> make_kernel(const BatchNormGrad& op, const Request& request) {
  const Matrix matrix(request.inputs[1].shape);
  return function_kernel(
      [=](const Call& call) {
        const int64_t channels = matrix.channels;
        const float *dy = call.in(0), *gamma = call.in(2), *variance = call.in(4);
        float *dx = call.out(0), *dgamma = call.out(1), *dbeta = call.out(2);
        double* dy_sums = call.scratch<double>();
        double* product_sums = dy_sums + channels;
        float *inverse = reinterpret_cast<float*>(product_sums + channels), *masked = inverse + channels;
        float *scale = masked + channels, *again = scale + channels, *center = again + channels;
        float* scale_of_result = center + 3 * channels;  // with the bits of BatchNormApply
        const Normals normals{op.compressed ? nullptr : call.in(1),
                              op.compressed ? call.in<uint8_t>(1) : nullptr,
                              call.in(3),
                              channels,
                              center,
                              center + channels,
                              center + 2 * channels};
        for (int64_t c = 0; c < channels; ++c) inverse[c] = 1 / std::sqrt(variance[c] + op.epsilon);
        normals.start(inverse);
        for (int64_t c = 0; c < channels; ++c) scale[c] = op.compressed ? gamma[c] : gamma[c] * inverse[c];
        if (op.again && !op.compressed) compute_scale(gamma, variance, op.epsilon, channels, scale_of_result);
        if (op.again && op.compressed) std::copy_n(gamma, channels, scale_of_result);
        const float* unit = normals.unit;
        float* given = op.again ? call.out(3) : nullptr;  // also null if it is not read
        // Returns the gradient at the norm's result for a row.
        const auto arriving = [&](int64_t row, const float* x_row) {
          const float* dy_row = dy + row * channels;
          if (!op.relu) return dy_row;
          const float *y = call.in(5) + (op.residual ? row * channels : 0), *beta = call.in(5);
          const float* added = call.inputs.size() > 6 ? call.in(6) + row * channels : nullptr;
          float* to = op.residual ? call.out(3) + row * channels : masked;
#pragma omp simd
          for (int64_t c = 0; c < channels; ++c) {
            const float result = op.residual ? y[c] : (x_row[c] - center[c]) * scale[c] + beta[c];
            to[c] = result <= 0 ? 0 : added == nullptr ? dy_row[c] : dy_row[c] + added[c];
          }
          return static_cast<const float*>(to);
        };
        std::fill_n(dy_sums, 2 * channels, 0.0);
        for (int64_t row = 0; row < matrix.rows; ++row) {
          const float *x_row = normals.row(row), *dy_row = arriving(row, x_row);
#pragma omp simd
          for (int64_t c = 0; c < channels; ++c) {
            dy_sums[c] += static_cast<double>(dy_row[c]);
            product_sums[c] += static_cast<double>(dy_row[c] * ((x_row[c] - center[c]) * unit[c]));
          }
        }
        for (int64_t c = 0; c < channels; ++c) {
          dbeta[c] = static_cast<float>(dy_sums[c]);
          dgamma[c] = static_cast<float>(product_sums[c]);
        }
        const float share = 1 / static_cast<float>(matrix.rows);
        for (int64_t row = 0; row < matrix.rows; ++row) {
          const float* x_row = normals.row(row);
          // With a residual, this gradient has been stored, perhaps over dy.
          const float* dy_row = op.residual ? call.out(3) + row * channels : arriving(row, x_row);
          float* dx_row = dx + row * channels;
          // dx may take x over or dy, and the result dy.
          if (given != nullptr)
            normalize_row(x_row, center, scale_of_result, call.in(5), nullptr, true, channels, again);
#pragma omp simd
          for (int64_t c = 0; c < channels; ++c) {
            const float normal = (x_row[c] - center[c]) * unit[c];
            dx_row[c] = gamma[c] * inverse[c] * (dy_row[c] - (dbeta[c] + normal * dgamma[c]) * share);
          }
          if (given != nullptr) std::copy_n(again, channels, given + row * channels);
        }
      },
      scratch_bytes(matrix, 2 * sizeof(double) + 8 * sizeof(float)));
}

std::unique_ptr<Kernel> make_kernel(const BranchGrad& op, const Request& request) {
  const Matrix matrix(request.inputs[0].shape);
  return function_kernel(
      [=](const Call& call) {
        const int64_t channels = matrix.channels;
        auto* sums = call.scratch<double>();
        std::fill_n(sums, channels, 0.0);
        for (int64_t row = 0; row < matrix.rows; ++row) {
          const float* dy = call.in(0) + row * channels;
          const float* added = call.inputs.size() > 2 ? call.in(2) + row * channels : nullptr;
          float* g = call.out(0) + row * channels;
          if (op.marked) {
            const uint8_t* marks = call.in<uint8_t>(1) + row * channels / 8;
            for (int64_t c = 0; c < channels; ++c) {
              const bool passes = (marks[c / 8] >> (c % 8) & 1) != 0;
              g[c] = !passes ? 0 : added == nullptr ? dy[c] : dy[c] + added[c];
            }
          } else {
            const float* y = call.in(1) + row * channels;
#pragma omp simd
            for (int64_t c = 0; c < channels; ++c)
              g[c] = y[c] <= 0 ? 0 : added == nullptr ? dy[c] : dy[c] + added[c];
          }
          add_to(sums, g, channels);
        }
        for (int64_t c = 0; c < channels; ++c) call.out(1)[c] = static_cast<float>(sums[c]);
      },
      scratch_bytes(matrix, sizeof(double)));
}

std::unique_ptr<Kernel> make_kernel(const BatchNormApply& op, const Request& request) {
  const Matrix matrix(request.inputs[0].shape);
  if (op.compressed) return make_restore(op, matrix);
  return function_kernel(
      [=](const Call& call) {
        if (op.compresses) {  // first: y may take x over
          compress(call.in(0), call.in(3), call.in(4), op.epsilon, matrix, call.scratch<float>(),
                   call.out<uint8_t>(1));
        }
        const float* residual = call.inputs.size() > 5 ? call.in(5) : nullptr;
        normalize(call.in(0), call.in(1), call.in(2), call.in(3), call.in(4), residual, op.epsilon, op.relu,
                  matrix, call.scratch<float>(), call.out());
        if (op.marks) mark(call.out(), matrix, call.out<uint8_t>(op.marks_at()));
      },
      scratch_bytes(matrix, sizeof(float)));
}

}  // namespace headroom::cpu
