// The position of the maximum, and how often it is at the label.
#include <cmath>

#include "kernels/cuda/reductions.cuh"

namespace headroom::cuda {
namespace {

// No maximum yet: any number or NaN is better, even -infinity, as its position is lower.
constexpr float kLeast = -HUGE_VALF;
constexpr int64_t kNowhere = INT64_MAX;

// x (outer, n, inner) -> y (outer, inner)
template <int kAtOnce>
__global__ void arg_max(ReductionLayout layout, int64_t inner, Reals x, int32_t* y) {
  const Share share = share_of(layout);
  Placed best{kLeast, kNowhere};
  if (share.result < layout.results) {
    const int64_t outer = share.result / inner;
    const Reals from = x + outer * layout.terms * inner + (share.result - outer * inner);
    for_each_term<kAtOnce>(
        share, [](int64_t k) { return k; }, [&](int64_t k) { return from[k * inner]; },
        [&](int64_t k, float value) {
          best = Better()(best, {value, k});
        });
  }
  best = combine_block(best, layout.wide, Better());
  if (threadIdx.x < layout.wide && share.result < layout.results) {
    y[share.result] = static_cast<int32_t>(best.position);
  }
}

// Threads that look for a row's maximum together, a power of two.
int team_size(int64_t classes) {
  int size = 1;
  while (size < 32 && size * 8 < classes) size *= 2;
  return size;
}

// counts[block]: rows of the block whose maximum is at the label, of logits (rows, classes).
__global__ void count_right(int64_t rows, int64_t classes, int team, Reals logits, const int32_t* labels,
                            int64_t* counts, RealsOut share) {
  const int64_t teams = grid_threads() / team;
  const int lane = static_cast<int>(threadIdx.x) % team;
  int64_t right = 0;
  // All threads of a warp take part in each turn, since they exchange values.
  for (int64_t first = 0; first < rows; first += teams) {
    const int64_t row = first + grid_thread() / team;
    Placed best{kLeast, kNowhere};
    if (row < rows) {
      for (int64_t c = lane; c < classes; c += team) best = Better()(best, {logits[row * classes + c], c});
    }
    for (int offset = team / 2; offset > 0; offset /= 2) {
      best = Better()(
          best, {__shfl_xor_sync(~0u, best.value, offset), __shfl_xor_sync(~0u, best.position, offset)});
    }
    if (lane == 0 && row < rows && best.position == labels[row]) ++right;
  }
  right = combine_block(right, 1, Add());
  if (threadIdx.x != 0) return;
  if (share.data != nullptr) {
    share.set(0, static_cast<float>(static_cast<double>(right) / static_cast<double>(rows)));
  } else {
    counts[blockIdx.x] = right;
  }
}

__global__ void share_right(int64_t rows, int64_t blocks, const int64_t* counts, RealsOut share) {
  int64_t right = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += kThreads) right += counts[i];
  right = combine_block(right, 1, Add());
  if (threadIdx.x == 0)
    share.set(0, static_cast<float>(static_cast<double>(right) / static_cast<double>(rows)));
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const ArgMax& op, const Request& request) {
  const Shape& x = request.inputs[0].shape;
  int64_t inner = 1;
  for (int axis = op.axis + 1; axis < x.rank(); ++axis) inner *= x[axis];
  ReductionLayout layout = reduction_layout(request.device, request.outputs[0].shape.elements(), x[op.axis],
                                            inner == 1 ? Neighbors::kTerms : Neighbors::kResults);
  layout.splits = 1;
  layout.terms_per_split = layout.terms;
  if (layout.results == 0) return function_kernel([](const Call&) {});
  return function_kernel([=](const Call& call) {
    // Few rows have few blocks, whose loads would wait for each other.
    const auto kernel = layout.terms_per_split > 64 * kThreads / layout.wide ? arg_max<32> : arg_max<8>;
    launch(kernel, layout.grid(), kThreads, call.stream, layout, inner, operand(call, 0),
           call.out<int32_t>());
  });
}

std::unique_ptr<Kernel> make_kernel(const Accuracy&, const Request& request) {
  const int64_t rows = request.inputs[0].shape[0], classes = request.inputs[0].shape[1];
  const int team = team_size(classes);
  // One block, and so one launch, as long as a second launch would take longer than the turns it saves.
  constexpr int64_t kTurnsOfOneBlock = 16;
  const int64_t turns = ceil_div(rows * team, kThreads);
  const unsigned blocks = turns <= kTurnsOfOneBlock ? 1 : blocks_for(request.device, rows * team);
  return function_kernel(
      [=](const Call& call) {
        auto* counts = call.scratch<int64_t>();
        launch(count_right, blocks, kThreads, call.stream, rows, classes, team, operand(call, 0),
               call.in<int32_t>(1), counts, blocks == 1 ? result(call) : RealsOut());
        if (blocks > 1) launch(share_right, 1, kThreads, call.stream, rows, blocks, counts, result(call));
      },
      blocks > 1 ? blocks * static_cast<int64_t>(sizeof(int64_t)) : 0);
}

}  // namespace headroom::cuda
