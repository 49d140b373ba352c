#include "runtime/predict_peak.h"

#include <algorithm>

#include "runtime/core/bytes.h"
#include "runtime/start_op.h"

namespace headroom {
namespace {

// Plays one session's requests in the order in which Session makes them.
class Player {
 public:
  Player(const Graph& graph, Device& device, Allocator& allocator)
      : graph_(graph), device_(device), allocator_(allocator) {}

  ~Player() {
    for (size_t i = held_.size(); i-- > 0;) allocator_.deallocate(held_[i].pointer, held_[i].bytes);
  }

  void hold(int64_t bytes) { held_.push_back({allocate(bytes), bytes}); }

  void step(const Plan& plan) {
    std::vector<void*> live(plan.buffers.size());
    for (const Step& step : plan.steps) {
      const auto id = static_cast<size_t>(step.id);
      if (step.kind == StepKind::kAllocate) live[id] = allocate(plan.buffers[id].bytes);
      if (step.kind == StepKind::kDeallocate) deallocate(live[id], plan.buffers[id].bytes);
      if (step.kind == StepKind::kRun) start_op(graph_.node(step.id).op, device_, allocator_);
    }
  }

  double fragmentation() const { return fragmentation_; }

 private:
  void* allocate(int64_t bytes) {
    void* const pointer = allocator_.allocate(bytes);
    live_bytes_ += bytes;
    if (live_bytes_ > most_live_bytes_) {
      most_live_bytes_ = live_bytes_;
      fragmentation_ = allocator_.statistics().fragmentation();
    }
    return pointer;
  }
  void deallocate(void* pointer, int64_t bytes) {
    allocator_.deallocate(pointer, bytes);
    live_bytes_ -= bytes;
  }

  struct Held {
    void* pointer;
    int64_t bytes;
  };

  const Graph& graph_;
  Device& device_;
  Allocator& allocator_;
  std::vector<Held> held_;
  int64_t live_bytes_ = 0, most_live_bytes_ = 0;
  double fragmentation_ = 0;
};

}  // namespace

PeakPrediction predict_peak(const Graph& graph, std::span<const Plan* const> plans, Device& device,
                            Allocator& allocator) {
  Player player(graph, device, allocator);
  for (int id : graph.variables()) player.hold(round_up(graph.value(id).spec.bytes(), Allocator::kAlignment));
  for (const Plan* plan : plans) {
    if (has_arena(plan->mode)) player.hold(plan->peak_bytes);
  }
  PeakPrediction peak, before;
  do {
    before = peak;
    // Twice each: the second step of a plan meets the state that its first one left.
    for (const Plan* plan : plans) {
      player.step(*plan);
      player.step(*plan);
    }
    const Statistics statistics = allocator.statistics();
    peak = {statistics.allocated.peak, statistics.reserved.peak, device.memory().info().peak_process,
            player.fragmentation()};
  } while (peak.allocated_bytes > before.allocated_bytes || peak.reserved_bytes > before.reserved_bytes ||
           peak.process_bytes > before.process_bytes);
  return peak;
}

}  // namespace headroom
