// The gradient past a batch norm and the convolution of single pixels before it. Reads the gradient that
// arrives and what the convolution read twice each, and never the convolution's result: cuBLASLt multiplies
// them to matrices of channels, which are small.
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/library/matmul_product.h"
#include "kernels/workspace_parts.h"
#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"

namespace headroom::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = kThreads / kTile;
constexpr int kRowsOfThread = kTile / kTileRows;
// The most that the products of parts of the pixels may take.
constexpr int64_t kMaxPartialBytes = 16 * kMiB;

// The weights from K channels to C, in whichever order they are stored.
struct Filter {
  Reals weights;
  int64_t k, c;
  bool by_result;
  __host__ __device__ int64_t place(int64_t from, int64_t to) const {
    return by_result ? to * k + from : from * c + to;
  }
};

// Sums of x over the pixels.
struct PlainSums {
  static constexpr int kRowsAtOnce = 4;
  int64_t channels;
  Reals x;

  template <int L>
  struct Group {
    int64_t step;
    Reals from;
    __device__ Packed<L> fetch(int64_t row) const { return fetch_packed<L>(from, row * step); }
    __device__ void add(int64_t, const Packed<L>& stored, OfChannels<L>& first, OfChannels<L>&) const {
      const Lanes<float, L> value = widened(stored);
#pragma unroll
      for (int lane = 0; lane < L; ++lane) first[lane] += value.values[lane];
    }
  };
  template <int L>
  __device__ Group<L> of_group(int64_t first) const {
    return {channels, x + first};
  }
};

// to = the sum of the partial matrices - left right^T per_pixel: the product of what has a mean of 0.
__global__ void centre(int64_t elements, int64_t columns, int parts, const float* partial, const float* left,
                       Reals right, float per_pixel, float* to) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += step) {
    float sum = 0;
    for (int part = 0; part < parts; ++part) sum += partial[part * elements + i];
    to[i] = sum - left[i / columns] * (right[i % columns] * per_pixel);
  }
}

// What the gradients of filter, gamma and x have in common.
struct ChannelMatrices {
  Filter filter;
  Reals gamma, variance;
  float epsilon, per_pixel;
  const float *with_g, *with_x;  // (K,C), (K,K): x^T g and x^T x of centred x
  RealsOut dfilter, dgamma;
  RealsOut from_g;  // (C,K): what g is multiplied by
  float* slopes;    // (C)
};

// The gradients of filter and gamma of 32 by 32 weights, of which each thread computes kRowsOfThread.
__global__ void __launch_bounds__(kThreads) compute_parameters(ChannelMatrices m) {
  const Filter& w = m.filter;
  __shared__ float squares[kTile][kTile + 1], weights[kTile][kTile + 1], dots[kTileRows][kTile];
  const int tx = static_cast<int>(threadIdx.x) % kTile, ty = static_cast<int>(threadIdx.x) / kTile;
  const int64_t first_c = int64_t{blockIdx.x} * kTile, c = first_c + tx,
                first_k = int64_t{blockIdx.y} * kTile;
  float projected[kRowsOfThread] = {}, dot = 0;
  for (int64_t t = 0; t < w.k; t += kTile) {
    for (int r = ty; r < kTile; r += kTileRows) {
      squares[r][tx] = first_k + r < w.k && t + tx < w.k ? m.with_x[(first_k + r) * w.k + t + tx] : 0;
      if (w.by_result) {
        weights[tx][r] = first_c + r < w.c && t + tx < w.k ? w.weights[w.place(t + tx, first_c + r)] : 0;
      } else {
        weights[r][tx] = c < w.c && t + r < w.k ? w.weights[w.place(t + r, c)] : 0;
      }
    }
    __syncthreads();
    for (int r = ty; r < kTile; r += kTileRows) {
      if (c < w.c && t + r < w.k) dot += weights[r][tx] * m.with_g[(t + r) * w.c + c];
    }
#pragma unroll 8
    for (int j = 0; j < kTile; ++j) {
      const float weight = weights[j][tx];
#pragma unroll
      for (int q = 0; q < kRowsOfThread; ++q) projected[q] += squares[ty + q * kTileRows][j] * weight;
    }
    __syncthreads();
  }
  dots[ty][tx] = dot;
  __syncthreads();
  if (c >= w.c) return;
  dot = 0;
  for (int r = 0; r < kTileRows; ++r) dot += dots[r][tx];
  const float inverse = 1 / sqrtf(m.variance[c] + m.epsilon), scale = m.gamma[c] * inverse;
  const float slope = dot * inverse * inverse * m.per_pixel;
  if (blockIdx.y == 0 && ty == 0) {
    m.dgamma.set(c, dot * inverse);
    m.slopes[c] = slope * scale;
  }
#pragma unroll
  for (int q = 0; q < kRowsOfThread; ++q) {
    const int64_t k = first_k + ty + q * kTileRows;
    if (k >= w.k) break;
    const int64_t at = w.place(k, c);
    m.from_g.set(c * w.k + k, scale * w.weights[at]);
    m.dfilter.set(at, scale * (m.with_g[k * w.c + c] - slope * projected[q]));
  }
}

// from_x (K,K) = -filter diag(slopes) filter^T: what x is multiplied by.
__global__ void __launch_bounds__(kThreads) compute_operator(Filter w, const float* slopes, RealsOut from_x) {
  __shared__ float left[kTile][kTile + 1], right[kTile][kTile + 1];
  const int tx = static_cast<int>(threadIdx.x) % kTile, ty = static_cast<int>(threadIdx.x) / kTile;
  const int64_t first_row = int64_t{blockIdx.y} * kTile, first_column = int64_t{blockIdx.x} * kTile;
  float sums[kRowsOfThread] = {};
  for (int64_t t = 0; t < w.c; t += kTile) {
    for (int r = ty; r < kTile; r += kTileRows) {
      // Neighbours in memory to neighbouring threads; [channel of x][channel of g] either way.
      const int of_k = w.by_result ? tx : r, of_c = w.by_result ? r : tx;
      const bool is_there = t + of_c < w.c;
      const float slope = is_there ? slopes[t + of_c] : 0;
      left[of_k][of_c] =
          is_there && first_row + of_k < w.k ? w.weights[w.place(first_row + of_k, t + of_c)] : 0;
      right[of_k][of_c] = is_there && first_column + of_k < w.k
                              ? slope * w.weights[w.place(first_column + of_k, t + of_c)]
                              : 0;
    }
    __syncthreads();
#pragma unroll 8
    for (int j = 0; j < kTile; ++j) {
      const float factor = right[tx][j];
#pragma unroll
      for (int q = 0; q < kRowsOfThread; ++q) sums[q] += left[ty + q * kTileRows][j] * factor;
    }
    __syncthreads();
  }
  if (first_column + tx >= w.k) return;
#pragma unroll
  for (int q = 0; q < kRowsOfThread; ++q) {
    const int64_t row = first_row + ty + q * kTileRows;
    if (row < w.k) from_x.set(row * w.k + first_column + tx, -sums[q]);
  }
}

// offset (K): what makes the sum of dx over the pixels 0. A block to each.
__global__ void __launch_bounds__(kThreads)
    compute_offset(int64_t k, int64_t c, Reals sums_of_g, const float* sums_of_x, Reals from_g, Reals from_x,
                   float per_pixel, RealsOut offset) {
  const int64_t at = blockIdx.x;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < c; i += kThreads) sum += sums_of_g[i] * from_g[i * k + at];
  for (int64_t i = threadIdx.x; i < k; i += kThreads) sum += sums_of_x[i] * from_x[i * k + at];
  sum = combine_block(sum, 1, Add());
  if (threadIdx.x == 0) offset.set(at, -sum * per_pixel);
}

// The largest number of equal parts of `rows`, up to `wanted`.
int64_t equal_parts(int64_t rows, int64_t wanted) {
  for (int64_t parts = std::min(rows, wanted); parts > 1; --parts) {
    if (rows % parts == 0) return parts;
  }
  return 1;
}

// x^T y of two matrices with many rows, of which the result, which is small, keeps few multiprocessors busy:
// products of parts of the rows, to be added up.
class TallProduct {
 public:
  TallProduct(const Request& request, int64_t rows, int64_t m, int64_t n, DType type)
      : elements_(m * n), parts_(parts_of(request, rows, m, n)), product_(request, shape(rows, m, n, type)) {}

  int64_t parts() const { return parts_; }
  int64_t partial_bytes() const { return parts_ * elements_ * 4; }
  int64_t workspace_bytes() const { return product_.workspace_bytes(); }
  void run(const void* x, const void* y, float* partial, void* workspace, cudaStream_t stream) const {
    product_.run(x, y, partial, nullptr, nullptr, workspace, stream);
  }

 private:
  // Two tiles to each multiprocessor. Partial results take a fraction of the operands' bytes.
  static int64_t parts_of(const Request& request, int64_t rows, int64_t m, int64_t n) {
    constexpr int64_t kTileOfProduct = 128, kRowsOfResult = 8;
    const int64_t tiles = ceil_div(m, kTileOfProduct) * ceil_div(n, kTileOfProduct);
    const int64_t useful = rows / (kRowsOfResult * std::min(m, n));
    const int64_t wanted = std::min(
        {ceil_div(2 * request.device.multiprocessors(), tiles), useful, kMaxPartialBytes / (4 * m * n)});
    return equal_parts(rows, wanted);
  }
  MatMulShape shape(int64_t rows, int64_t m, int64_t n, DType type) const {
    const int64_t of_part = rows / parts_;
    const bool is_aligned = of_part * std::gcd(m, n) * element_bytes(type) % 16 == 0 && m * n % 4 == 0;
    return {.m = m,
            .n = n,
            .k = of_part,
            .op = MatMul{.transpose_a = true},
            .batch = parts_,
            .stride_a = of_part * m,
            .stride_b = of_part * n,
            .stride_y = m * n,
            .read = type,
            .computed = DType::kF32,
            .aligned = parts_ == 1 || is_aligned};
  }

  int64_t elements_, parts_;
  Product product_;
};

class ConvNormGradient {
 public:
  ConvNormGradient(const ConvNormGrad& op, const Request& request)
      : op_(op),
        type_(request.inputs[0].dtype),
        k_(request.inputs[2].shape.last()),
        c_(request.inputs[0].shape.last()),
        rows_(request.inputs[0].shape.elements() / c_),
        x_sums_(request, request.inputs[2].shape),
        with_g_(request, rows_, k_, c_, type_),
        with_x_(request, rows_, k_, k_, type_),
        of_x_(request, {.m = rows_, .n = k_, .k = k_, .op = {}, .read = type_, .computed = type_}),
        of_g_(request, {.m = rows_, .n = k_, .k = c_, .op = {}, .read = type_, .computed = type_},
              Epilogue::kBiasSum) {}

  int64_t workspace_bytes() const { return scratch(nullptr).bytes; }

  void run(const Call& call) const {
    const Scratch s = scratch(call.workspace);
    const Reals g = operand(call, 0), sums = operand(call, 1), x = operand(call, 2);
    const Filter filter{operand(call, 3), k_, c_, op_.filter_by_result};
    const float per_pixel = 1 / static_cast<float>(rows_);
    const auto run = [&](auto* kernel, dim3 grid, auto... arguments) {
      launch(kernel, grid, kThreads, call.stream, arguments...);
    };
    sum_x(x, s, call.stream);
    const auto centred = [&](const TallProduct& product, const void* right, const Reals& right_sums,
                             int64_t columns, float* to) {
      product.run(x.data, right, s.partial, s.of_library, call.stream);
      const int64_t elements = k_ * columns;
      run(centre, dim3(static_cast<unsigned>(ceil_div(elements, kThreads))), elements, columns,
          static_cast<int>(product.parts()), s.partial, s.sums_of_x, right_sums, per_pixel, to);
    };
    centred(with_g_, g.data, sums, c_, s.with_g);
    centred(with_x_, x.data, Reals{s.sums_of_x, DType::kF32}, k_, s.with_x);
    const auto tiles = [](int64_t extent) { return static_cast<unsigned>(ceil_div(extent, kTile)); };
    const RealsOut from_g{s.from_g, type_}, from_x{s.from_x, type_}, offset{s.offset, type_};
    run(compute_parameters, dim3(tiles(c_), tiles(k_)),
        ChannelMatrices{filter, operand(call, 4), operand(call, 5), op_.epsilon, per_pixel, s.with_g,
                        s.with_x, result(call, 1), result(call, 2), from_g, s.slopes});
    run(compute_operator, dim3(tiles(k_), tiles(k_)), filter, s.slopes, from_x);
    run(compute_offset, dim3(static_cast<unsigned>(k_)), k_, c_, sums, s.sums_of_x, Reals(from_g),
        Reals(from_x), per_pixel, offset);
    void* const dx = call.outputs[0].data;
    of_x_.run(x.data, s.from_x, dx, nullptr, nullptr, s.of_library, call.stream);
    of_g_.run(g.data, s.from_g, dx, s.offset, dx, s.of_library, call.stream);
  }

 private:
  // The workspace of one run.
  struct Scratch {
    ChannelSums* shares;  // of the sums of x
    float* sums_of_x;     // (K)
    float* partial;       // of one product
    float *with_g, *with_x, *slopes;
    void *from_g, *from_x, *offset;  // factors of products, stored as they are
    void* of_library;
    int64_t bytes;
  };
  Scratch scratch(void* workspace) const {
    WorkspaceParts parts(workspace);
    const int64_t width = element_bytes(type_);
    Scratch s{};
    s.shares = reinterpret_cast<ChannelSums*>(parts.take<std::byte>(x_sums_.partial_bytes()));
    s.sums_of_x = parts.take<float>(k_);
    s.partial = reinterpret_cast<float*>(
        parts.take<std::byte>(std::max(with_g_.partial_bytes(), with_x_.partial_bytes())));
    s.with_g = parts.take<float>(k_ * c_);
    s.with_x = parts.take<float>(k_ * k_);
    s.slopes = parts.take<float>(c_);
    s.from_g = parts.take<std::byte>(c_ * k_ * width);
    s.from_x = parts.take<std::byte>(k_ * k_ * width);
    s.offset = parts.take<std::byte>(k_ * width);
    s.of_library = parts.take<std::byte>(std::max({with_g_.workspace_bytes(), with_x_.workspace_bytes(),
                                                   of_x_.workspace_bytes(), of_g_.workspace_bytes()}));
    s.bytes = parts.taken_bytes();
    return s;
  }

  void sum_x(const Reals& x, const Scratch& s, cudaStream_t stream) const {
    const std::array views = {TensorView{const_cast<void*>(x.data), {x.dtype, {rows_, k_}}}};
    x_sums_.with(KernelCall{views, {}}, [&](const ChannelLayout& layout, auto lanes) {
      launch(sum_channels<lanes, PlainSums>, layout.groups.grid(), kThreads, stream, PlainSums{k_, x},
             layout.groups, s.shares);
      launch(finish_sums, layout.last.grid(), kThreads, stream, layout.last, s.shares,
             RealsOut{s.sums_of_x, DType::kF32});
    });
  }

  const ConvNormGrad op_;
  const DType type_;
  const int64_t k_, c_, rows_;
  const ChannelLayouts x_sums_;
  const TallProduct with_g_, with_x_;
  const Product of_x_, of_g_;
};

}  // namespace

std::unique_ptr<Kernel> make_kernel(const ConvNormGrad& op, const Request& request) {
  for (const size_t factor : {size_t{2}, size_t{3}}) {
    if (request.inputs[factor].dtype != request.inputs[0].dtype)
      throw InvalidArgument("conv_norm_grad of operands stored in two types has no CUDA kernel");
  }
  if (request.outputs[0].dtype != request.inputs[0].dtype)
    throw InvalidArgument("conv_norm_grad has no CUDA kernel that gives another type than it reads");
  const auto gradient = std::make_shared<const ConvNormGradient>(op, request);
  return function_kernel([gradient](const Call& call) { gradient->run(call); }, gradient->workspace_bytes());
}

}  // namespace headroom::cuda
