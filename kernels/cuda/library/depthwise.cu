#include <algorithm>
#include <limits>
#include <type_traits>

#include "device/cuda/check.h"
#include "kernels/cuda/library/depthwise.h"
#include "kernels/cuda/stored_lanes.cuh"

namespace headroom::cuda {
namespace {

// A thread has some neighboring channels, and goes through places: strips of neighbors along the width. A
// block's threads have neighboring channels, and places below each other, so that most of what they read is
// in its cache.
constexpr int kThreads = 256;

// Channels of a thread that gathers: with more of them, the sums of a large filter leave room for too few
// threads.
constexpr int vector_of_gather(int size) {
  return size < 7 ? 8 : 4;
}
constexpr int kVectorOfFilterGrad = 4;
// Rows of a filter whose sums one thread has.
constexpr int rows_of_thread(int size) {
  return size == 3 ? 3 : 1;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Loops go through places of the images `over`, which are as high and wide as the result, or for
// its own gradient as the image; `from` is read around each. A block takes `places_of_block` neighbors.
struct Loops {
  int64_t places, places_of_block;  // images x strips x rows
  int over_height, over_width, from_height, from_width, strips;
  int channels, vectors, places_at_once;
  bool by_result;  // a filter's numbers of one channel are neighbors
};

// This thread's channels.
template <int kVector>
struct Lane {
  int vector, channel;
  bool has_channels;

  __device__ explicit Lane(const Loops& loops)
      : vector(static_cast<int>(threadIdx.x) % loops.vectors),
        channel((static_cast<int>(blockIdx.y) * loops.vectors + vector) * kVector),
        has_channels(channel < loops.channels) {}
};

struct Place {
  int row, column;
  int64_t image;

  __device__ Place(const Loops& loops, int64_t number, int wide) {
    row = static_cast<int>(number % loops.over_height);
    number /= loops.over_height;
    column = static_cast<int>(number % loops.strips) * wide;
    image = number / loops.strips;
  }
};

// Calls f(place) for thread `turn` of those of a block that have the same channels.
template <typename F>
__device__ void for_each_place(const Loops& loops, int64_t turn, int wide, const F& f) {
  const int64_t first = blockIdx.x * loops.places_of_block,
                end = min(first + loops.places_of_block, loops.places);
  for (int64_t number = first + turn; number < end; number += loops.places_at_once)
    f(Place(loops, number, wide));
}

// Loads this thread's channels of neighboring columns of a row, from `first` on; those beyond it are 0.
template <int kCount, int kVector, typename T>
__device__ void load_columns(Stored<T, kVector> (&to)[kCount], const T* row, int first, int width,
                             int channels) {
#pragma unroll
  for (int c = 0; c < kCount; ++c) {
    to[c] = {};
    if (static_cast<unsigned>(first + c) < static_cast<unsigned>(width))
      to[c] = *reinterpret_cast<const Stored<T, kVector>*>(row + int64_t{first + c} * channels);
  }
}

// The columns that a strip reads: which of a filter's columns joins column c of them with column j of the
// strip. For a gradient by the image they lie apart where the stride is 2, and begin with kFirst.
template <int kSize, int kStride, bool kIsGrad>
struct Columns {
  static constexpr int kPadding = kSize / 2;
  static constexpr int kWide = kIsGrad && kStride == 2 ? 8 : 7;
  static constexpr int kFirst = kIsGrad ? -((kSize - 1 - kPadding) / kStride) : -kPadding;
  static constexpr int kCount =
      kIsGrad ? (kWide - 1 + kPadding) / kStride - kFirst + 1 : (kWide - 1) * kStride + kSize;
  static constexpr int tap(int j, int c) {
    return kIsGrad ? j + kPadding - kStride * (c + kFirst) : c - j * kStride;
  }
  static __device__ int first_of(int column) {
    return (kIsGrad ? column / kStride : column * kStride) + kFirst;
  }
};

// result = image * filter, or for kIsGrad the gradient by the image: each number is gathered from `from`.
template <typename T, int kSize, int kStride, bool kIsGrad>
__global__ void __launch_bounds__(kThreads)
    gather(const __grid_constant__ Loops loops, const T* from, const T* filter, T* to) {
  using Around = Columns<kSize, kStride, kIsGrad>;
  constexpr int kVector = vector_of_gather(kSize), kTaps = kSize * kSize, kFours = kVector / 4;
  extern __shared__ float4 weights[];  // (taps, fours of a vector, vectors)
  const Lane<kVector> lane(loops);
  const int block_channels = loops.vectors * kVector,
            first_channel = static_cast<int>(blockIdx.y) * block_channels;
  for (int i = static_cast<int>(threadIdx.x); i < kTaps * block_channels; i += static_cast<int>(blockDim.x)) {
    const int tap = i / block_channels, c = i % block_channels, channel = first_channel + c;
    const int from_at = loops.by_result ? channel * kTaps + tap : tap * loops.channels + channel;
    const int four = (tap * kFours + c % kVector / 4) * loops.vectors + c / kVector;
    reinterpret_cast<float*>(weights)[four * 4 + c % 4] =
        channel < loops.channels ? widened(filter[from_at]) : 0;
  }
  __syncthreads();
  if (!lane.has_channels) return;
  for_each_place(loops, threadIdx.x / loops.vectors, Around::kWide, [&](const Place& place) {
    float sums[Around::kWide][kVector] = {};
#pragma unroll 1
    for (int i = 0; i < kSize; ++i) {
      int row = kIsGrad ? place.row + Around::kPadding - i : place.row * kStride - Around::kPadding + i;
      if (kIsGrad && kStride == 2) {
        if (row % 2 != 0) continue;
        row /= 2;
      }
      if (static_cast<unsigned>(row) >= static_cast<unsigned>(loops.from_height)) continue;
      Stored<T, kVector> columns[Around::kCount];
      const int64_t at = (place.image * loops.from_height + row) * loops.from_width;
      load_columns(columns, from + at * loops.channels + lane.channel, Around::first_of(place.column),
                   loops.from_width, loops.channels);
      float of_row[kSize][kVector];
#pragma unroll
      for (int at_four = 0; at_four < kSize * kFours; ++at_four) {
        const float4 four = weights[(i * kSize * kFours + at_four) * loops.vectors + lane.vector];
        float* const to_four = &of_row[at_four / kFours][at_four % kFours * 4];
        to_four[0] = four.x, to_four[1] = four.y, to_four[2] = four.z, to_four[3] = four.w;
      }
#pragma unroll
      for (int c = 0; c < Around::kCount; ++c) {
        float x[kVector];
#pragma unroll
        for (int k = 0; k < kVector; ++k) x[k] = widened(columns[c].at[k]);
#pragma unroll
        for (int j = 0; j < Around::kWide; ++j) {
          const int tap = Around::tap(j, c);
          if (tap < 0 || tap >= kSize) continue;
#pragma unroll
          for (int k = 0; k < kVector; ++k) sums[j][k] = fmaf(x[k], of_row[tap][k], sums[j][k]);
        }
      }
    }
    const int64_t at = (place.image * loops.over_height + place.row) * loops.over_width;
    T* const row = to + at * loops.channels + lane.channel;
#pragma unroll
    for (int j = 0; j < Around::kWide; ++j) {
      if (place.column + j >= loops.over_width) break;
      Numbers<kVector> numbers;
#pragma unroll
      for (int k = 0; k < kVector; ++k) numbers.at[k] = sums[j][k];
      store(row + int64_t{place.column + j} * loops.channels, numbers);
    }
  });
}

// parts (blocks, taps, channels): the sums of image x result's gradient over the places of each block. A
// thread has some rows of the filter.
template <typename T, int kSize, int kStride>
__global__ void __launch_bounds__(kThreads)
    filter_grad(const __grid_constant__ Loops loops, const T* image, const T* dy, float* parts) {
  using Around = Columns<kSize, kStride, false>;
  constexpr int kVector = kVectorOfFilterGrad, kRows = rows_of_thread(kSize), kShares = kSize / kRows;
  __shared__ float of_threads[kThreads * kVector];
  const Lane<kVector> lane(loops);
  const auto thread = static_cast<int>(threadIdx.x);
  const int first_row = thread / loops.vectors % kShares * kRows, turn = thread / (loops.vectors * kShares);
  float sums[kRows][kSize][kVector] = {};
  const int64_t first = lane.has_channels ? turn : loops.places_of_block;
  for_each_place(loops, first, Around::kWide, [&](const Place& place) {
    Stored<T, kVector> gradients[Around::kWide];
    const int64_t over = (place.image * loops.over_height + place.row) * loops.over_width;
    load_columns(gradients, dy + over * loops.channels + lane.channel, place.column, loops.over_width,
                 loops.channels);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = place.row * kStride - Around::kPadding + first_row + i;
      if (static_cast<unsigned>(row) >= static_cast<unsigned>(loops.from_height)) continue;
      Stored<T, kVector> columns[Around::kCount];
      const int64_t from = (place.image * loops.from_height + row) * loops.from_width;
      load_columns(columns, image + from * loops.channels + lane.channel, Around::first_of(place.column),
                   loops.from_width, loops.channels);
#pragma unroll
      for (int c = 0; c < Around::kCount; ++c) {
        float x[kVector];
#pragma unroll
        for (int k = 0; k < kVector; ++k) x[k] = widened(columns[c].at[k]);
#pragma unroll
        for (int j = 0; j < Around::kWide; ++j) {
          const int tap = Around::tap(j, c);
          if (tap < 0 || tap >= kSize) continue;
#pragma unroll
          for (int k = 0; k < kVector; ++k)
            sums[i][tap][k] = fmaf(x[k], widened(gradients[j].at[k]), sums[i][tap][k]);
        }
      }
    }
  });
  const int block_channels = loops.vectors * kVector, of_turn = kShares * block_channels;
#pragma unroll
  for (int at_tap = 0; at_tap < kRows * kSize; ++at_tap) {
    const int i = at_tap / kSize, tap = at_tap % kSize;
    __syncthreads();  // the last sums have been read
#pragma unroll
    for (int k = 0; k < kVector; ++k) of_threads[thread * kVector + k] = sums[i][tap][k];
    __syncthreads();
    for (int at = thread; at < of_turn; at += static_cast<int>(blockDim.x)) {
      float sum = 0;
      for (int place = 0; place < loops.places_at_once; ++place) sum += of_threads[place * of_turn + at];
      const int channel = static_cast<int>(blockIdx.y) * block_channels + at % block_channels;
      const int64_t row = int64_t{blockIdx.x} * kSize + at / block_channels * kRows + i;
      if (channel < loops.channels) parts[(row * kSize + tap) * loops.channels + channel] = sum;
    }
  }
}

// Adds the parts of all blocks in a fixed order: a warp takes those of every eighth one.
constexpr int kNeighbors = 32, kWarps = kThreads / kNeighbors;
template <typename T>
__global__ void __launch_bounds__(kThreads)
    join_parts(int blocks, int taps, int channels, bool by_result, const float* parts, T* filter) {
  __shared__ double shares[kWarps][kNeighbors];
  const int lane = static_cast<int>(threadIdx.x) % kNeighbors,
            share = static_cast<int>(threadIdx.x) / kNeighbors;
  const int count = taps * channels, at = static_cast<int>(blockIdx.x) * kNeighbors + lane;
  double sum = 0;
  for (int block = share; block < blocks && at < count; block += kWarps)
    sum += static_cast<double>(parts[int64_t{block} * count + at]);
  shares[share][lane] = sum;
  __syncthreads();
  if (share > 0 || at >= count) return;
  for (int other = 1; other < kWarps; ++other) sum += shares[other][lane];
  const int tap = at / channels, channel = at % channels;
  narrow(static_cast<float>(sum), filter[by_result ? channel * taps + tap : at]);
}

struct Problem {
  Loops loops;
  int size, stride;
  dim3 grid;
  int threads;
};

template <typename T>
class DepthwiseOf : public Depthwise {
 public:
  DepthwiseOf(const Problem& problem, ConvDirection direction, DType computed)
      : problem_(problem), direction_(direction), computed_(computed) {
    if (direction == ConvDirection::kFilterGrad)
      workspace_bytes_ = int64_t{problem.grid.x} * count() * int64_t{sizeof(float)};
  }

  void run(const void* a, const void* b, void* computed, void* workspace,
           cudaStream_t stream) const override {
    const auto *first = static_cast<const T*>(a), *second = static_cast<const T*>(b);
    const auto threads = static_cast<unsigned>(problem_.threads);
    with_size([&](auto size, auto stride) {
      constexpr int kSize = size(), kStride = stride();
      if (direction_ == ConvDirection::kFilterGrad) {
        auto* const parts = static_cast<float*>(workspace);
        filter_grad<T, kSize, kStride>
            <<<problem_.grid, threads, 0, stream>>>(problem_.loops, first, second, parts);
        HR_CHECK(cudaGetLastError());
        return join(parts, computed, stream);
      }
      const auto kernel = direction_ == ConvDirection::kForward ? gather<T, kSize, kStride, false>
                                                                : gather<T, kSize, kStride, true>;
      const size_t weights = sizeof(float) * static_cast<size_t>(kSize * kSize * problem_.loops.vectors *
                                                                 vector_of_gather(kSize));
      kernel<<<problem_.grid, threads, weights, stream>>>(problem_.loops, first, second,
                                                          static_cast<T*>(computed));
      HR_CHECK(cudaGetLastError());
    });
  }

 private:
  int count() const { return problem_.size * problem_.size * problem_.loops.channels; }

  template <typename F>
  void with_size(const F& f) const {
    const auto with_stride = [&](auto size) {
      if (problem_.stride == 1) return f(size, std::integral_constant<int, 1>());
      f(size, std::integral_constant<int, 2>());
    };
    if (problem_.size == 3) return with_stride(std::integral_constant<int, 3>());
    if (problem_.size == 5) return with_stride(std::integral_constant<int, 5>());
    with_stride(std::integral_constant<int, 7>());
  }

  void join(const float* parts, void* computed, cudaStream_t stream) const {
    const auto join_as = [&](auto* filter) {
      join_parts<<<static_cast<unsigned>(ceil_div(count(), kNeighbors)), kThreads, 0, stream>>>(
          static_cast<int>(problem_.grid.x), problem_.size * problem_.size, problem_.loops.channels,
          problem_.loops.by_result, parts, filter);
      HR_CHECK(cudaGetLastError());
    };
    if (computed_ == DType::kF32) return join_as(static_cast<float*>(computed));
    join_as(static_cast<T*>(computed));
  }

  const Problem problem_;
  const ConvDirection direction_;
  const DType computed_;
};

}  // namespace

std::shared_ptr<const Depthwise> Depthwise::of(const Request& request, ConvDirection direction,
                                               const Conv2d& conv, const Shape& image, const Shape& filter,
                                               const Shape& result, DType read, DType computed) {
  const int64_t channels = image[3], size = filter[0], stride = conv.stride[0];
  const auto is_twice = [](const Pair& pair, int64_t value) { return pair[0] == value && pair[1] == value; };
  const bool is_grad_of_filter = direction == ConvDirection::kFilterGrad;
  const bool fits = conv.groups == channels && result[3] == channels && channels % 8 == 0 &&
                    (size == 3 || size == 5 || size == 7) && filter[1] == size &&
                    is_twice(conv.padding, size / 2) && (stride == 1 || stride == 2) &&
                    is_twice(conv.stride, stride) && is_twice(conv.dilation, 1) && is_half(read) &&
                    (computed == read || (is_grad_of_filter && computed == DType::kF32));
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;  // of what an int counts
  if (!fits || request.settings.library_only || std::max({image[1], image[2], filter.elements()}) > kMost)
    return nullptr;

  const bool is_grad_of_image = direction == ConvDirection::kInputGrad;
  const Shape &over = is_grad_of_image ? image : result, &from = is_grad_of_image ? result : image;
  const int64_t strips = ceil_div(over[2], is_grad_of_image && stride == 2 ? 8 : 7);  // see Columns
  const int64_t places = over[0] * strips * over[1];
  const auto edge = static_cast<int>(size);
  const int64_t shares = is_grad_of_filter ? size / rows_of_thread(edge) : 1;  // threads of a place
  const int64_t vector = is_grad_of_filter ? kVectorOfFilterGrad : vector_of_gather(edge);
  const int64_t all_vectors = channels / vector, most = is_grad_of_filter ? 16 : 128 / vector;
  const int64_t parts = ceil_div(all_vectors, most), vectors = ceil_div(all_vectors, parts);
  const int64_t at_once = kThreads / (vectors * shares);
  // A block of a filter's gradient ends with sums over its places.
  const int64_t wanted = (is_grad_of_filter ? 4 : 12) * int64_t{request.device.multiprocessors()} / parts;
  int64_t blocks = std::clamp<int64_t>(wanted, 1, ceil_div(places, at_once));
  if (is_grad_of_filter) {
    const int64_t bytes_of_block = filter.elements() * int64_t{sizeof(float)};
    blocks = std::min(blocks, request.settings.workspace_limit_bytes / bytes_of_block);
    if (blocks == 0) return nullptr;
  }
  const int64_t of_block = ceil_div(ceil_div(places, blocks), at_once) * at_once;
  blocks = ceil_div(places, of_block);
  const auto small = [](int64_t n) { return static_cast<int>(n); };
  const Problem problem{
      {places, of_block, small(over[1]), small(over[2]), small(from[1]), small(from[2]), small(strips),
       small(channels), small(vectors), small(at_once), conv.filter_by_result},
      edge,
      small(stride),
      dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(parts)),
      small(at_once * shares * vectors)};
  if (read == DType::kBf16) return std::make_shared<const DepthwiseOf<Bf16>>(problem, direction, computed);
  return std::make_shared<const DepthwiseOf<F16>>(problem, direction, computed);
}

}  // namespace headroom::cuda
