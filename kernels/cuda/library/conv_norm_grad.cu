// The gradient past a batch norm and the convolution of single pixels before it. Reads the incoming gradient
// and the convolution's input twice each, and never the convolution's result: cuBLASLt multiplies them to
// matrices of channels, which are small.
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include "base/bytes.h"
#include "base/errors.h"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/library/matmul_product.h"
#include "kernels/workspace_parts.h"

namespace headroom::cuda {
namespace {

// A block computes kTileRows by kTile results, of which a thread has kRowsOfThread in a column.
constexpr int kTile = 32, kTileRows = 64;
constexpr int kThreadRows = kThreads / kTile, kRowsOfThread = kTileRows / kThreadRows;
// Up to so many results, several threads add up the parts of each; more results already keep the GPU busy:
// 256 by 1024 took 20 us with 8 threads each, and at most 8 us with one (ncu, H100).
constexpr int64_t kFewResults = 65'536;
constexpr int kSharesOfParts = 8;
// The most that the products of parts of the pixels may take.
constexpr int64_t kMaxPartialBytes = 16 * kMiB;

// The weights from K channels to C, (C,K) if by_result, otherwise (K,C). All matrices of both channels have
// the filter's layout.
struct Filter {
  Reals weights;
  int64_t k, c;
  bool by_result;
  __host__ __device__ int64_t rows() const { return by_result ? c : k; }
  __host__ __device__ int64_t columns() const { return by_result ? k : c; }
  __device__ int64_t place(int64_t from, int64_t to) const {
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

// to = the sum of the partial matrices - left right^T per_pixel: the product of values with a mean of 0.
// `shares` threads per element.
__global__ void __launch_bounds__(kThreads)
    center(uint32_t elements, uint32_t columns, int parts, int shares, const float* partial, Reals left,
           Reals right, float per_pixel, float* to) {
  __shared__ float sums[kThreads];
  const int width = kThreads / shares, lane = static_cast<int>(threadIdx.x) % width;
  const uint32_t i = blockIdx.x * static_cast<uint32_t>(width) + static_cast<uint32_t>(lane);
  float sum = 0;
  if (i < elements) {
#pragma unroll 8
    for (int part = static_cast<int>(threadIdx.x) / width; part < parts; part += shares)
      sum += partial[int64_t{part} * elements + i];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (i >= elements || static_cast<int>(threadIdx.x) >= width) return;
  for (int share = 1; share < shares; ++share) sum += sums[share * width + lane];
  to[i] = sum - left[i / columns] * (right[i % columns] * per_pixel);
}

// The common part of the gradients of filter, gamma and x.
struct ChannelMatrices {
  Filter filter;
  Reals gamma, variance;
  float epsilon, per_pixel;
  const float *with_g, *with_x;  // as the filter, (K,K): x^T g and x^T x of centered x
  RealsOut dfilter, dgamma;
  RealsOut from_g;  // factor of g
  RealsOut slopes;  // the weights times minus what x contributes to each channel of g
};

// Computes the gradients of filter and gamma, and the factors of the last products. All loads come before the
// computations: a branch by type between two of them would make the second wait for the first.
template <bool kByResult>
__global__ void __launch_bounds__(kThreads) compute_parameters(ChannelMatrices m) {
  constexpr int kChannels = kByResult ? kTileRows : kTile;  // channels of the norm in a block
  const Filter& w = m.filter;
  const int64_t rows = w.rows(), columns = w.columns();
  // The product of filter and with_x, which is symmetric, in the order that lies as the filter does.
  __shared__ __align__(16) float left[kTileRows][kTile + 4];
  __shared__ float right[kTile][kTile], dots[kChannels][kThreadRows];
  __shared__ float scales[kChannels], slopes[kChannels];
  const int tx = static_cast<int>(threadIdx.x) % kTile, ty = static_cast<int>(threadIdx.x) / kTile;
  const int64_t block_row = int64_t{blockIdx.y} * kTileRows, block_column = int64_t{blockIdx.x} * kTile;
  const int64_t column = block_column + tx;
  // Rows of a tile to a thread: kRowsOfThread of left, and as many of right as it has.
  constexpr int kRightRows = kTile / kThreadRows, kWeightRows = kByResult ? kRowsOfThread : kRightRows,
                kSquareRows = kByResult ? kRightRows : kRowsOfThread;
  float projected[kRowsOfThread] = {}, dot[kWeightRows] = {};
  for (int64_t t = 0; t < w.k; t += kTile) {
    Stored<1> weights[kWeightRows];
    float with_g[kWeightRows], squares[kSquareRows];
    // Returns true if an element of a tile exists, and sets its position.
    const auto of_left = [&](int q, int64_t& at) {
      const int64_t row = block_row + ty + q * kThreadRows;
      at = row * w.k + t + tx;
      return row < rows && t + tx < w.k;
    };
    const auto of_right = [&](int q, int64_t& at) {
      const int64_t row = t + ty + q * kThreadRows;
      at = row * columns + column;
      return row < w.k && column < columns;
    };
    int64_t at = 0;
#pragma unroll
    for (int q = 0; q < kWeightRows; ++q) {
      const bool is_there = kByResult ? of_left(q, at) : of_right(q, at);
      weights[q] = is_there ? w.weights.fetch<1>(at) : Stored<1>{w.weights.dtype, {}};
      with_g[q] = is_there ? m.with_g[at] : 0;
    }
#pragma unroll
    for (int q = 0; q < kSquareRows; ++q)
      squares[q] = (kByResult ? of_right(q, at) : of_left(q, at)) ? m.with_x[at] : 0;
#pragma unroll
    for (int q = 0; q < kWeightRows; ++q) {
      const float weight = widened(weights[q]).values[0];
      dot[q] += weight * with_g[q];
      (kByResult ? left[ty + q * kThreadRows][tx] : right[ty + q * kThreadRows][tx]) = weight;
    }
#pragma unroll
    for (int q = 0; q < kSquareRows; ++q)
      (kByResult ? right[ty + q * kThreadRows][tx] : left[ty + q * kThreadRows][tx]) = squares[q];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kTile; j += 4) {
      const float factors[] = {right[j][tx], right[j + 1][tx], right[j + 2][tx], right[j + 3][tx]};
#pragma unroll
      for (int q = 0; q < kRowsOfThread; ++q) {
        const float4 of_row = *reinterpret_cast<const float4*>(&left[ty + q * kThreadRows][j]);
        projected[q] +=
            of_row.x * factors[0] + of_row.y * factors[1] + of_row.z * factors[2] + of_row.w * factors[3];
      }
    }
    __syncthreads();
  }
  // The sum over the weights of a channel of weight times with_g.
  if constexpr (kByResult) {
#pragma unroll
    for (int q = 0; q < kRowsOfThread; ++q) {
      for (int apart = kTile / 2; apart > 0; apart /= 2) dot[q] += __shfl_xor_sync(~0U, dot[q], apart);
      if (tx == 0) dots[ty + q * kThreadRows][0] = dot[q];
    }
  } else {
    dots[tx][ty] = 0;
    for (const float part : dot) dots[tx][ty] += part;
  }
  __syncthreads();
  const int channel = static_cast<int>(threadIdx.x);
  const int64_t c = (kByResult ? block_row : block_column) + channel;
  if (channel < kChannels && c < w.c) {
    float sum = dots[channel][0];
    for (int part = 1; !kByResult && part < kThreadRows; ++part) sum += dots[channel][part];
    const float inverse = 1 / sqrtf(m.variance[c] + m.epsilon);
    scales[channel] = m.gamma[c] * inverse;
    slopes[channel] = sum * inverse * inverse * m.per_pixel;
    if ((kByResult ? block_column : block_row) == 0) m.dgamma.set(c, sum * inverse);
  }
  __syncthreads();
  if (column >= columns) return;
  Stored<1> weights[kRowsOfThread];
  float with_g[kRowsOfThread];
#pragma unroll
  for (int q = 0; q < kRowsOfThread; ++q) {
    const int64_t row = block_row + ty + q * kThreadRows, at = min(row, rows - 1) * columns + column;
    weights[q] = w.weights.fetch<1>(at);
    with_g[q] = m.with_g[at];
  }
#pragma unroll
  for (int q = 0; q < kRowsOfThread; ++q) {
    const int of_tile = ty + q * kThreadRows, of = kByResult ? of_tile : tx;
    if (block_row + of_tile >= rows) break;
    const int64_t at = (block_row + of_tile) * columns + column;
    const float weight = scales[of] * widened(weights[q]).values[0];
    m.from_g.set(at, weight);
    m.slopes.set(at, -slopes[of] * weight);
    m.dfilter.set(at, scales[of] * (with_g[q] - slopes[of] * projected[q]));
  }
}

// offset (K): makes the sum of dx over the pixels 0. One block each.
__global__ void __launch_bounds__(kThreads)
    compute_offset(Filter w, Reals sums_of_g, Reals sums_of_x, Reals from_g, Reals from_x, float per_pixel,
                   RealsOut offset) {
  const int64_t at = blockIdx.x;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < w.c; i += kThreads) sum += sums_of_g[i] * from_g[w.place(at, i)];
  for (int64_t i = threadIdx.x; i < w.k; i += kThreads) sum += sums_of_x[i] * from_x[i * w.k + at];
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

// x^T y of two matrices with many rows, whose small result keeps few multiprocessors busy: products of parts
// of the rows, which are then added up.
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
        with_g_(request, rows_, filter({}).rows(), filter({}).columns(), type_),
        with_x_(request, rows_, k_, k_, type_),
        of_slopes_(request, {.m = k_,
                             .n = k_,
                             .k = c_,
                             .op = {.transpose_a = op.filter_by_result, .transpose_b = !op.filter_by_result},
                             .read = type_,
                             .computed = type_}),
        of_x_(request, {.m = rows_, .n = k_, .k = k_, .op = {}, .read = type_, .computed = type_}),
        of_g_(request,
              {.m = rows_,
               .n = k_,
               .k = c_,
               .op = {.transpose_b = !op.filter_by_result},
               .read = type_,
               .computed = type_},
              Epilogue::kBiasSum) {}

  int64_t workspace_bytes() const { return scratch(nullptr).bytes; }

  void run(const Call& call) const {
    const Scratch s = scratch(call.workspace);
    const Reals g = operand(call, 0), sums = operand(call, 1), x = operand(call, 2);
    const Reals sums_of_x{s.sums_of_x, DType::kF32};
    const Filter w = filter(operand(call, 3));
    const float per_pixel = 1 / static_cast<float>(rows_);
    const auto run = [&](auto* kernel, dim3 grid, auto... arguments) {
      launch(kernel, grid, kThreads, call.stream, arguments...);
    };
    const auto blocks = [](int64_t results, int64_t of_block) {
      return static_cast<unsigned>(ceil_div(results, of_block));
    };
    sum_x(x, s, call.stream);
    // (m,n): the product of two tensors after subtraction of their means.
    const auto centered = [&](const TallProduct& product, const Reals& left, const Reals& left_sums,
                             const Reals& right, const Reals& right_sums, int64_t m, int64_t n, float* to) {
      product.run(left.data, right.data, s.partial, s.of_library, call.stream);
      const int shares = m * n > kFewResults ? 1 : kSharesOfParts;
      run(center, dim3(blocks(m * n, kThreads / shares)), static_cast<uint32_t>(m * n),
          static_cast<uint32_t>(n), static_cast<int>(product.parts()), shares, s.partial, left_sums,
          right_sums, per_pixel, to);
    };
    if (w.by_result) {
      centered(with_g_, g, sums, x, sums_of_x, c_, k_, s.with_g);
    } else {
      centered(with_g_, x, sums_of_x, g, sums, k_, c_, s.with_g);
    }
    centered(with_x_, x, sums_of_x, x, sums_of_x, k_, k_, s.with_x);
    const RealsOut from_g{s.from_g, type_}, from_x{s.from_x, type_}, offset{s.offset, type_};
    run(w.by_result ? compute_parameters<true> : compute_parameters<false>,
        dim3(blocks(w.columns(), kTile), blocks(w.rows(), kTileRows)),
        ChannelMatrices{w, operand(call, 4), operand(call, 5), op_.epsilon, per_pixel, s.with_g, s.with_x,
                        result(call, 1), result(call, 2), from_g, RealsOut{s.slopes, type_}});
    of_slopes_.run(w.by_result ? w.weights.data : s.slopes, w.by_result ? s.slopes : w.weights.data, s.from_x,
                   nullptr, nullptr, s.of_library, call.stream);
    run(compute_offset, dim3(static_cast<unsigned>(k_)), w, sums, sums_of_x, Reals(from_g), Reals(from_x),
        per_pixel, offset);
    void* const dx = call.outputs[0].data;
    of_x_.run(x.data, s.from_x, dx, nullptr, nullptr, s.of_library, call.stream);
    of_g_.run(g.data, s.from_g, dx, s.offset, dx, s.of_library, call.stream);
  }

 private:
  // The workspace of one run.
  struct Scratch {
    ChannelSums* shares;  // shares of the sums of x
    float* sums_of_x;     // (K)
    float* partial;       // partial sums of one product
    float *with_g, *with_x;
    void *from_g, *slopes, *from_x, *offset;  // factors of products, stored as g and x are
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
    s.from_g = parts.take<std::byte>(c_ * k_ * width);
    s.slopes = parts.take<std::byte>(c_ * k_ * width);
    s.from_x = parts.take<std::byte>(k_ * k_ * width);
    s.offset = parts.take<std::byte>(k_ * width);
    s.of_library = parts.take<std::byte>(
        std::max({with_g_.workspace_bytes(), with_x_.workspace_bytes(), of_slopes_.workspace_bytes(),
                  of_x_.workspace_bytes(), of_g_.workspace_bytes()}));
    s.bytes = parts.taken_bytes();
    return s;
  }

  Filter filter(const Reals& weights) const { return {weights, k_, c_, op_.filter_by_result}; }
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
  const Product of_slopes_, of_x_, of_g_;
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
