// The gradient past a batch norm and the convolution of single pixels before it, in matrices of channels.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/sums.h"
#include "kernels/workspace_parts.h"

namespace headroom::cpu {
namespace {

// A product of matrices of floats.
class MatrixProduct {
 public:
  MatrixProduct(MatMul op, const Shape& a, const Shape& b, const Shape& y, const KernelSettings& settings)
      : inputs_{TensorSpec{DType::kF32, a}, TensorSpec{DType::kF32, b}},
        outputs_{TensorSpec{DType::kF32, y}},
        kernel_(make_kernel(op, Request{inputs_, outputs_, settings})) {}

  int64_t workspace_bytes() const { return kernel_->workspace_bytes(); }
  void operator()(const float* a, const float* b, float* y, void* workspace) const {
    // A kernel changes no operand of a product.
    const std::array in = {TensorView{const_cast<float*>(a), inputs_[0]},
                           TensorView{const_cast<float*>(b), inputs_[1]}};
    const std::array out = {TensorView{y, outputs_[0]}};
    kernel_->run(in, out, workspace, {});
  }

 private:
  std::array<TensorSpec, 2> inputs_;
  std::array<TensorSpec, 1> outputs_;
  std::shared_ptr<Kernel> kernel_;
};

// K channels before the convolution, C after it, n pixels.
struct ConvNormGradient {
  int64_t n, k, c;
  ConvNormGrad op;
  MatrixProduct gradients, squares, projections, slopes, inputs;

  ConvNormGradient(const ConvNormGrad& o, const Request& request)
      : n(request.inputs[0].shape.elements() / request.inputs[0].shape.last()),
        k(request.inputs[2].shape.last()),
        c(request.inputs[0].shape.last()),
        op(o),
        gradients({true, false}, {n, k}, {n, c}, {k, c}, request.settings),
        squares({true, false}, {n, k}, {n, k}, {k, k}, request.settings),
        projections({false, o.filter_by_result}, {k, k}, filter_shape(), {k, c}, request.settings),
        slopes({o.filter_by_result, false}, filter_shape(), {c, k}, {k, k}, request.settings),
        inputs({false, false}, {n, c}, {c, k}, {n, k}, request.settings) {}

  Shape filter_shape() const { return op.filter_by_result ? Shape{c, k} : Shape{k, c}; }
  // Returns the position of the weight from one channel to another in the filter.
  int64_t place(int64_t from, int64_t to) const {
    return op.filter_by_result ? to * k + from : from * c + to;
  }

  // The workspace of one run.
  struct Scratch {
    double* means;                       // means of x
    float *with_g, *with_x, *projected;  // (K,C), (K,K), (K,C)
    float *from_g, *scaled, *from_x;     // (C,K), (C,K), (K,K)
    float* offset;                       // (K)
    void* of_products;
    int64_t bytes;
  };
  Scratch scratch(void* workspace) const {
    WorkspaceParts parts(workspace);
    Scratch s{};
    s.means = parts.take<double>(k);
    s.with_g = parts.take<float>(k * c);
    s.with_x = parts.take<float>(k * k);
    s.projected = parts.take<float>(k * c);
    s.from_g = parts.take<float>(c * k);
    s.scaled = parts.take<float>(c * k);
    s.from_x = parts.take<float>(k * k);
    s.offset = parts.take<float>(k);
    s.of_products = parts.take<std::byte>(
        std::max({gradients.workspace_bytes(), squares.workspace_bytes(), projections.workspace_bytes(),
                  slopes.workspace_bytes(), inputs.workspace_bytes()}));
    s.bytes = parts.taken_bytes();
    return s;
  }

  void run(const Call& call) const {
    const Scratch s = scratch(call.workspace);
    const float *g = call.in(0), *sums = call.in(1), *x = call.in(2), *filter = call.in(3);
    gather(g, sums, x, s);
    projections(s.with_x, filter, s.projected, s.of_products);
    compute_parameters(filter, call.in(4), call.in(5), s, call.out(1), call.out(2));
    slopes(filter, s.scaled, s.from_x, s.of_products);
    inputs(g, s.from_g, call.out(0), s.of_products);
    add_of_x(sums, x, s, call.out(0));
  }

  // (x - mean)^T g and (x - mean)^T (x - mean)
  void gather(const float* g, const float* sums, const float* x, const Scratch& s) const {
    std::fill_n(s.means, k, 0.0);
    for (int64_t row = 0; row < n; ++row) add_to(s.means, x + row * k, k);
    for (int64_t i = 0; i < k; ++i) s.means[i] /= static_cast<double>(n);
    gradients(x, g, s.with_g, s.of_products);
    squares(x, x, s.with_x, s.of_products);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < c; ++j)
        s.with_g[i * c + j] -= static_cast<float>(s.means[i] * static_cast<double>(sums[j]));
      for (int64_t j = 0; j < k; ++j)
        s.with_x[i * k + j] -= static_cast<float>(s.means[i] * s.means[j] * static_cast<double>(n));
    }
  }

  // Computes the gradients of filter and gamma, and the factors of g and x in the gradient of x.
  void compute_parameters(const float* filter, const float* gamma, const float* variance, const Scratch& s,
                          float* dfilter, float* dgamma) const {
    for (int64_t j = 0; j < c; ++j) {
      const float inverse = 1 / std::sqrt(variance[j] + op.epsilon), scale = gamma[j] * inverse;
      double dot = 0;
      for (int64_t i = 0; i < k; ++i)
        dot += static_cast<double>(filter[place(i, j)]) * static_cast<double>(s.with_g[i * c + j]);
      dgamma[j] = static_cast<float>(dot) * inverse;
      const float slope = dgamma[j] * inverse / static_cast<float>(n);
      for (int64_t i = 0; i < k; ++i) {
        const int64_t at = i * c + j;
        s.from_g[j * k + i] = scale * filter[place(i, j)];
        s.scaled[j * k + i] = slope * s.from_g[j * k + i];
        dfilter[place(i, j)] = scale * (s.with_g[at] - slope * s.projected[at]);
      }
    }
  }

  // dx -= x from_x, plus a term that makes its sum over the pixels 0
  void add_of_x(const float* sums, const float* x, const Scratch& s, float* dx) const {
    for (int64_t i = 0; i < k; ++i) {
      double offset = 0;
      for (int64_t from = 0; from < k; ++from)
        offset += s.means[from] * static_cast<double>(s.from_x[from * k + i]);
      for (int64_t j = 0; j < c; ++j) {
        offset -=
            static_cast<double>(sums[j]) * static_cast<double>(s.from_g[j * k + i]) / static_cast<double>(n);
      }
      s.offset[i] = static_cast<float>(offset);
    }
    for (int64_t row = 0; row < n; ++row) {
      float* to = dx + row * k;
      add_row(s.offset, 1, to);
      for (int64_t from = 0; from < k; ++from) add_row(s.from_x + from * k, -x[row * k + from], to);
    }
  }
  void add_row(const float* row, float factor, float* to) const {
#pragma omp simd
    for (int64_t i = 0; i < k; ++i) to[i] += factor * row[i];
  }
};

}  // namespace

std::unique_ptr<Kernel> make_kernel(const ConvNormGrad& op, const Request& request) {
  const auto gradient = std::make_shared<const ConvNormGradient>(op, request);
  return function_kernel([gradient](const Call& call) { gradient->run(call); },
                         gradient->scratch(nullptr).bytes);
}

}  // namespace headroom::cpu
