#include "kernels/cpu/conv/conv_gradients.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <type_traits>

#include "kernels/cpu/conv/conv_depthwise.h"
#include "kernels/cpu/conv/filter_rows.h"
#include "kernels/cpu/cpu_kernels.h"

namespace headroom::cpu {
namespace {

constexpr int64_t kAlignment = 256;  // bytes

// Gradient of a block's convolution, dense: dy where it passes relu and pooling, zero elsewhere. Windows may
// overlap, so it is summed. Also the general method for blocks that the sparse kernels do not support.
class Spread {
 public:
  Spread(const ConvBlock& op, const ConvShape& shape, const Shape& y)
      : pool_(op.pool), shape_(shape), y_(y) {}

  int64_t bytes() const {
    return round_up(shape_.n * shape_.positions() * shape_.k * int64_t{sizeof(float)}, kAlignment);
  }

  void operator()(const float* dy, const TensorView& route, float* g) const {
    const int64_t elements = y_.elements();
    if (!pool_) {
      const float* y = route.as<const float>();
#pragma omp simd
      for (int64_t i = 0; i < elements; ++i) g[i] = y[i] <= 0 ? 0 : dy[i];
      return;
    }
    std::fill_n(g, shape_.n * shape_.positions() * shape_.k, 0.0f);
    const auto* index = route.as<const uint8_t>();
    for (int64_t i = 0; i < elements; ++i) {
      if (index[i] == kNoGradient) continue;
      const int64_t channel = i % y_[3], x = i / y_[3] % y_[2], row = i / y_[3] / y_[2] % y_[1];
      const int64_t image = i / y_[3] / y_[2] / y_[1];
      const int64_t oy = row * pool_->stride[0] - pool_->padding[0] + index[i] / pool_->window[1];
      const int64_t ox = x * pool_->stride[1] - pool_->padding[1] + index[i] % pool_->window[1];
      g[((image * shape_.oh + oy) * shape_.ow + ox) * shape_.k + channel] += dy[i];
    }
  }

 private:
  std::optional<Pool2d> pool_;
  ConvShape shape_;
  Shape y_;
};

// Sum of dy over the rows where `live(row's place, lanes)` lets it through, for one vector of channels. Rows
// in turn go to a few sums of their own, since each addition waits for the one before. `lanes` is a constant
// for whole vectors: a partial one costs calls.
template <typename Live, typename Lanes>
void add_up_column(const float* dy, int64_t rows, int64_t k, const Live& live, Lanes lanes, float* dbias) {
  constexpr int64_t kPartialSums = 4;
  Vec sums[kPartialSums] = {};
  const auto term = [&](int64_t row) {
    const int64_t at = row * k;
    return live(at, lanes) ? load_some(dy + at, lanes) : Vec{};
  };
  int64_t row = 0;
  for (; row + kPartialSums <= rows; row += kPartialSums) {
    for (int64_t i = 0; i < kPartialSums; ++i) sums[i] += term(row + i);
  }
  for (; row < rows; ++row) sums[0] += term(row);
  store_some(dbias, (sums[0] + sums[1]) + (sums[2] + sums[3]), lanes);
}

// dbias[k] = sum of dy over live positions
void add_up(const float* dy, const TensorView& route, bool pooled, int64_t k, float* dbias) {
  const int64_t rows = k == 0 ? 0 : route.elements() / k;
  for (int64_t first = 0; first < k; first += kLanes) {
    const auto column = [&](const auto& live) {
      const auto whole = std::integral_constant<int64_t, kLanes>{};
      k - first >= kLanes ? add_up_column(dy + first, rows, k, live, whole, dbias + first)
                          : add_up_column(dy + first, rows, k, live, k - first, dbias + first);
    };
    if (pooled) {
      const uint8_t* index = route.as<const uint8_t>() + first;
      column([=](int64_t at, int64_t lanes) {
        return load_some_bytes(index + at, lanes) != int32_t{kNoGradient};
      });
    } else {
      const float* y = route.as<const float>() + first;
      column([=](int64_t at, int64_t lanes) { return !(load_some(y + at, lanes) <= 0.0f); });
    }
  }
}

// A gradient from a dense gradient of the output: (dy, filter) -> dx or (x, dy) -> dfilter.
struct DenseGrad {
  std::function<void(const float*, const float*, float* result, float* workspace)> run;
  int64_t workspace_bytes = 0;
};

DenseGrad dense_input_grad(const ConvShape& shape, ThreadPool* threads) {
  if (Depthwise::fits(shape)) {
    return {[conv = Depthwise(shape, threads)](const float* dy, const float* filter, float* dx, float*) {
      conv.input_grad(dy, filter, dx);
    }};
  }
  const UnpooledInputGrad grad(shape);
  return {grad, grad.workspace_bytes()};
}

DenseGrad dense_filter_grad(const ConvShape& shape, ThreadPool* threads) {
  if (Depthwise::fits(shape)) {
    return {[conv = Depthwise(shape, threads)](const float* x, const float* dy, float* dfilter, float*) {
      conv.filter_grad(x, dy, dfilter);
    }};
  }
  const UnpooledFilterGrad grad(shape);
  return {grad, grad.workspace_bytes()};
}

// The kernel of a gradient without relu and pooling.
std::unique_ptr<Kernel> dense_kernel(const DenseGrad& grad) {
  return function_kernel(
      [=](const Call& call) { grad.run(call.in(0), call.in(1), call.out(), call.scratch<float>()); },
      grad.workspace_bytes);
}

bool windows_inside(const ConvBlock& op) {
  return op.pool && op.pool->padding == Pair{0, 0};
}

template <typename Grad>
std::unique_ptr<Kernel> filter_kernel(const Grad& grad, int64_t k) {
  return function_kernel(
      [=](const Call& call) {
        grad(call.in(0), call.in(1), call.in<uint8_t>(2), call.out(), call.scratch<float>());
        add_up(call.in(1), call.inputs[2], true, k, call.out(1));
      },
      grad.workspace_bytes());
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Conv2dInputGrad& op, const Request& request) {
  if (op.conv.filter_by_result)
    return read_filter_rows(Conv2dInputGrad{by_our_order(op.conv), op.input_shape}, op.conv, request);
  return dense_kernel(dense_input_grad(ConvShape(op.conv, op.input_shape, request.inputs[1].shape),
                                       request.settings.threads));
}

// The gradient of a filter of rows is computed by our order in scratch and turned.
std::unique_ptr<Kernel> filter_rows_grad(const Conv2dFilterGrad& op, const Request& request) {
  const TensorSpec filter{DType::kF32, conv_filter_shape(op.conv, op.filter_shape)};
  const std::shared_ptr<Kernel> kernel = make_kernel(Conv2dFilterGrad{by_our_order(op.conv), filter.shape},
                                                     {request.inputs, {&filter, 1}, request.settings});
  const int64_t bytes = round_up(filter.bytes(), kFilterAlignment), results = filter.shape[3];
  return function_kernel(
      [=](const Call& call) {
        const TensorView turned[] = {{call.workspace, filter}};
        kernel->run(call.inputs, turned, call.scratch<std::byte>() + bytes, call.stream);
        if (results > 0) {
          transpose(call.scratch<float>(), filter.shape.elements() / results, results, call.out());
        }
      },
      bytes + kernel->workspace_bytes());
}

std::unique_ptr<Kernel> make_kernel(const Conv2dFilterGrad& op, const Request& request) {
  if (op.conv.filter_by_result) return filter_rows_grad(op, request);
  return dense_kernel(dense_filter_grad(ConvShape(op.conv, request.inputs[0].shape, op.filter_shape),
                                        request.settings.threads));
}

std::unique_ptr<Kernel> make_kernel(const ConvBlockInputGrad& op, const Request& request) {
  const ConvShape shape(op.block.conv, op.input_shape, request.inputs[2].shape);
  const Shape& y = request.inputs[0].shape;
  if (windows_inside(op.block) && SparseInputGrad::fits(shape)) {
    const SparseInputGrad grad(shape, Windows(shape, op.block.pool, y), request.settings.threads);
    return function_kernel(
        [=](const Call& call) {
          grad(call.in(0), call.in<uint8_t>(1), call.in(2), call.out(), call.scratch<float>());
        },
        grad.workspace_bytes());
  }
  const Spread spread(op.block, shape, y);
  const DenseGrad grad = dense_input_grad(shape, request.settings.threads);
  return function_kernel(
      [=](const Call& call) {
        float* g = call.scratch<float>();
        spread(call.in(0), call.inputs[1], g);
        grad.run(g, call.in(2), call.out(), g + spread.bytes() / int64_t{sizeof(float)});
      },
      spread.bytes() + grad.workspace_bytes);
}

std::unique_ptr<Kernel> make_kernel(const ConvBlockFilterGrad& op, const Request& request) {
  const ConvShape shape(op.block.conv, request.inputs[0].shape, op.filter_shape);
  const Shape& y = request.inputs[1].shape;
  if (windows_inside(op.block)) {
    const Windows windows(shape, op.block.pool, y);
    if (SparseFilterGrad::fits(shape))
      return filter_kernel(SparseFilterGrad(shape, windows, request.settings.threads), shape.k);
    return filter_kernel(MaskedFilterGrad(shape, windows, request.settings.threads), shape.k);
  }
  const Spread spread(op.block, shape, y);
  const DenseGrad grad = dense_filter_grad(shape, request.settings.threads);
  return function_kernel(
      [=, pooled = op.block.pool.has_value()](const Call& call) {
        float* g = call.scratch<float>();
        spread(call.in(1), call.inputs[2], g);
        grad.run(call.in(0), g, call.out(), g + spread.bytes() / int64_t{sizeof(float)});
        add_up(call.in(1), call.inputs[2], pooled, shape.k, call.out(1));
      },
      spread.bytes() + grad.workspace_bytes);
}

}  // namespace headroom::cpu
