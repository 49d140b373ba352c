// Direct convolution, fused with bias, relu and max pooling.
//
// A tile holds P output positions x V vectors of output channels in registers and walks over all taps of the
// filter: per tap V loads of weights and P broadcasts feed P x V multiply-adds, so the multiply-add units are
// the bound, not the loads (8 x 2: 10 loads for 16, both two per cycle). Two vectors of channels keep the
// packed weights of this block in the first-level cache over all images. With pooling only the positions that
// some window reads are computed, and a tile takes whole windows, so that the maximum is taken in registers.
#include <algorithm>
#include <array>

#include "kernels/cpu/conv/conv_depthwise.h"
#include "kernels/cpu/conv/conv_shape.h"
#include "kernels/cpu/conv/filter_rows.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/tiled_product.h"
#include "kernels/cpu/worker_scratch.h"

namespace headroom::cpu {
namespace {

constexpr int kPositions = kVectorRegisters == 32 ? 8 : 4;
// Larger windows do not fit a tile on every CPU.
constexpr int kMostWindow = 4;
constexpr int kChannelVectors = 2;
// Size of a piece of work: a smaller one would be done before another thread begins.
constexpr int64_t kImages = 4;

// The work after the sum over the taps.
struct Epilogue {
  bool bias = false;
  bool relu = false;
};

class Forward {
 public:
  Forward(const Conv2d& op, const std::optional<Pool2d>& pool, Epilogue epilogue, const Request& request,
          const Shape& y)
      : shape_(op, request.inputs[0].shape, request.inputs[1].shape),
        windows_(shape_, pool, y),
        epilogue_(epilogue),
        taps_(shape_.tap_offsets()),
        threads_(request.settings.threads),
        padded_(threads_, shape_.padded() ? shape_.padded_elements() * int64_t{sizeof(float)} : 0) {}

  int64_t workspace_bytes() const {
    return (weight_elements() + (shape_.padded() ? shape_.padded_elements() : 0)) * int64_t{sizeof(float)};
  }

  void operator()(const Call& call) const {
    float* weights = call.scratch<float>();
    for (int64_t group = 0; group < shape_.groups; ++group) {
      for (int64_t first = 0; first < shape_.kg; first += kChannelVectors * kLanes) {
        const int64_t channels = std::min<int64_t>(shape_.kg - first, kChannelVectors * kLanes);
        if (channels > kLanes) {
          run_block<2>(call, group, group * shape_.kg + first, channels, weights);
        } else {
          run_block<1>(call, group, group * shape_.kg + first, channels, weights);
        }
      }
    }
  }

 private:
  int64_t weight_elements() const {
    return round_up(shape_.taps() * kChannelVectors * kMostLanes, kWorkspaceAlignment);
  }

  // (taps, k) -> (taps, V * lanes) for the channels of one block, zeros beyond.
  template <int V>
  void pack(const float* filter, int64_t first, int64_t channels, float* weights) const {
    for (int64_t tap = 0; tap < shape_.taps(); ++tap) {
      float* row = weights + tap * V * kLanes;
      std::copy_n(filter + tap * shape_.k + first, channels, row);
      std::fill(row + channels, row + V * kLanes, 0.0f);
    }
  }

  template <int V>
  void run_block(const Call& call, int64_t group, int64_t first, int64_t channels, float* weights) const {
    pack<V>(call.in(1), first, channels, weights);
    std::array<Vec, V> start = {};
    for (int v = 0; v < V && epilogue_.bias; ++v) {
      start[static_cast<size_t>(v)] = load_some(call.in(2) + first + v * kLanes, lanes_of(channels, v));
    }
    for_each_piece(threads_, shape_.n, kImages, [&](int64_t begin, int64_t end, int worker) {
      run_images<V>(call, group, first, channels, weights, start, begin, end,
                    padded_.of(worker, weights + weight_elements()));
    });
  }

  // Computes images [begin, end); each output has the same bits regardless of the tile that it shares.
  template <int V>
  void run_images(const Call& call, int64_t group, int64_t first, int64_t channels, const float* weights,
                  const std::array<Vec, V>& start, int64_t begin, int64_t end, float* buffer) const {
    const int64_t per_tile = std::max<int64_t>(1, kPositions / windows_.area);
    std::array<const float*, kPositions> x;
    const int32_t* const offsets = windows_.offsets->data();
    const int64_t total = end * windows_.count;
    int64_t image = begin, window = 0;  // position of the next window
    const float* pixels = shape_.padded_image(call.in(0), image, buffer);
    for (int64_t done = begin * windows_.count; done < total;) {
      // Windows of several images share a tile, unless padding leaves one image at a time.
      int64_t count = 0;
      for (; count < per_tile && done + count < total; ++count) {
        if (window == windows_.count) {
          if (shape_.padded() && count > 0) break;
          pixels = shape_.padded_image(call.in(0), ++image, buffer);
          window = 0;
        }
        for (int64_t i = 0; i < windows_.area; ++i) {
          x[static_cast<size_t>(count * windows_.area + i)] =
              pixels + group * shape_.cg + offsets[window * windows_.area + i];
        }
        ++window;
      }
      for (auto i = static_cast<size_t>(count * windows_.area); i < kPositions; ++i) x[i] = x[0];
      run_tile<V>(call, x, weights, start, done * shape_.k + first, count, channels);
      done += count;
    }
  }

  static int64_t lanes_of(int64_t channels, int v) {
    return std::clamp<int64_t>(channels - v * kLanes, 0, kLanes);
  }

  template <int V>
  void run_tile(const Call& call, const std::array<const float*, kPositions>& x, const float* weights,
                const std::array<Vec, V>& start, int64_t at, int64_t count, int64_t channels) const {
    Vec sums[kPositions][V];
    for (int p = 0; p < kPositions; ++p) {
      for (int v = 0; v < V; ++v) sums[p][v] = start[static_cast<size_t>(v)];
    }
    const float* w = weights;
    for (const int32_t offset : *taps_) {
      Vec row[V];
      for (int v = 0; v < V; ++v) row[v] = load(w + v * kLanes);
      w += V * kLanes;
#pragma GCC unroll 8
      for (int p = 0; p < kPositions; ++p) {
        const float pixel = x[static_cast<size_t>(p)][offset];
        for (int v = 0; v < V; ++v) sums[p][v] += pixel * row[v];
      }
    }
    uint8_t* const indices = call.outputs.size() > 1 ? call.out<uint8_t>(1) : nullptr;
    const int area = static_cast<int>(windows_.area);
    if (area == 1 && indices == nullptr) {  // sums stay in registers
      float* const y = call.out() + at;
#pragma GCC unroll 8
      for (int p = 0; p < kPositions; ++p) {
        if (p >= count) return;
        for (int v = 0; v < V; ++v) {
          const Vec sum = epilogue_.relu ? vec_max(Vec{}, sums[p][v]) : sums[p][v];
          store_some(y + p * shape_.k + v * kLanes, sum, lanes_of(channels, v));
        }
      }
      return;
    }
    for (int window = 0; window < count; ++window) {
      for (int v = 0; v < V; ++v) {
        Vec best = sums[window * area][v];
        IntVec index = {};
        for (int i = 1; i < area; ++i) {
          const Vec value = sums[window * area + i][v];
          const IntVec take = (value > best) | (value != value);  // NaN wins and stays
          best = take ? value : best;
          index = take ? IntVec{} + i : index;
        }
        if (epilogue_.relu) {
          index = best <= 0.0f ? IntVec{} + int32_t{kNoGradient} : index;
          best = best < 0.0f ? Vec{} : best;
        }
        const int64_t lanes = lanes_of(channels, v), place = at + window * shape_.k + v * kLanes;
        if (lanes == kLanes) {
          store(call.out() + place, best);
          if (indices != nullptr) store_bytes(indices + place, index);
        } else {
          store_some(call.out() + place, best, lanes);
          if (indices != nullptr) store_some_bytes(indices + place, index, lanes);
        }
      }
    }
  }

  ConvShape shape_;
  Windows windows_;
  Epilogue epilogue_;
  Offsets taps_;
  ThreadPool* threads_;
  WorkerScratch padded_;  // an image with its padding
};

std::unique_ptr<Kernel> make(const Forward& forward) {
  return function_kernel(forward, forward.workspace_bytes());
}

// A convolution of single pixels is a product.
bool is_product(const ConvShape& shape) {
  return shape.kh == 1 && shape.kw == 1 && shape.groups == 1 && !shape.padded() &&
         shape.op.stride == Pair{1, 1};
}

std::unique_ptr<Kernel> make_product(const ConvShape& shape, Epilogue epilogue, ThreadPool* threads) {
  const TiledProduct all{
      shape.n * shape.positions(), shape.k, shape.c, shape.c, 1, shape.k, 1, shape.k, epilogue.relu};
  return function_kernel(
      [multiply = TiledKernel(all, threads), has_bias = epilogue.bias](const Call& call) {
        multiply(call.in(0), call.in(1), has_bias ? call.in(2) : nullptr, call.out(), call.scratch<float>());
      },
      all.workspace_bytes());
}

// A block whose windows do not fit a tile or reach outside the image: convolution, then pooling, through
// workspace.
std::unique_ptr<Kernel> make_composed(const ConvBlock& op, const Request& request) {
  const ConvShape shape(op.conv, request.inputs[0].shape, request.inputs[1].shape);
  const TensorSpec between{DType::kF32, {shape.n, shape.oh, shape.ow, shape.k}};
  const Forward conv(op.conv, std::nullopt, {true, true}, request, between.shape);
  std::shared_ptr<Kernel> pool =
      make_kernel(MaxPool{*op.pool}, {{&between, 1}, request.outputs, request.settings});
  const int64_t between_bytes = round_up(between.bytes(), 256);
  return function_kernel(
      [=, n = request.outputs[0].shape.elements()](const Call& call) {
        const TensorView view{call.workspace, between};
        const TensorView result[] = {view};
        conv(Call{call.inputs, result, call.scratch<uint8_t>() + between_bytes});
        pool->run(result, call.outputs, nullptr, {});
        uint8_t* index = call.out<uint8_t>(1);
        if (index == nullptr) return;
        for (int64_t i = 0; i < n; ++i) index[i] = call.out()[i] <= 0 ? kNoGradient : index[i];
      },
      between_bytes + conv.workspace_bytes());
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Conv2d& op, const Request& request) {
  if (op.filter_by_result) return read_filter_rows(by_our_order(op), op, request);
  const ConvShape shape(op, request.inputs[0].shape, request.inputs[1].shape);
  if (Depthwise::fits(shape)) {
    return function_kernel([conv = Depthwise(shape, request.settings.threads)](const Call& call) {
      conv.forward(call.in(0), call.in(1), nullptr, call.out());
    });
  }
  if (is_product(shape)) return make_product(shape, {}, request.settings.threads);
  return make(Forward(op, std::nullopt, {}, request, request.outputs[0].shape));
}

std::unique_ptr<Kernel> make_kernel(const ConvBlock& op, const Request& request) {
  const ConvShape shape(op.conv, request.inputs[0].shape, request.inputs[1].shape);
  if (!op.pool && Depthwise::fits(shape)) {
    return function_kernel([conv = Depthwise(shape, request.settings.threads)](const Call& call) {
      conv.forward(call.in(0), call.in(1), call.in(2), call.out());
    });
  }
  if (!op.pool && is_product(shape)) return make_product(shape, {true, true}, request.settings.threads);
  const bool fits =
      !op.pool || (op.pool->padding == Pair{0, 0} && op.pool->window[0] * op.pool->window[1] <= kMostWindow);
  if (!fits) return make_composed(op, request);
  return make(Forward(op.conv, op.pool, {true, true}, request, request.outputs[0].shape));
}

}  // namespace headroom::cpu
