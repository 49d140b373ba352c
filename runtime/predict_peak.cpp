#include "runtime/predict_peak.h"

#include <algorithm>

#include "runtime/core/bytes.h"
#include "runtime/memory_users.h"
#include "runtime/start_op.h"

namespace headroom {
namespace {

// Plays one session's requests in the order in which Session makes them.
class Player {
 public:
  Player(const Graph& graph, Device& device, Allocator& allocator)
      : graph_(graph), device_(device), allocator_(allocator), categories_(categorise(graph)) {}

  ~Player() {
    for (size_t i = held_.size(); i-- > 0;) allocator_.deallocate(held_[i].pointer, held_[i].bytes);
  }

  void hold(int64_t bytes, const MemoryUser& user) { held_.push_back({allocate(bytes, user), bytes}); }

  void hold_variable(int id) {
    hold(round_up(graph_.value(id).spec.bytes(), Allocator::kAlignment),
         user_of_variable(id, graph_, categories_));
  }

  void step(const Plan& plan) {
    std::vector<void*> live(plan.buffers.size());
    for (const Step& step : plan.steps) {
      const auto id = static_cast<size_t>(step.id);
      if (step.kind == StepKind::kAllocate) {
        const Buffer& buffer = plan.buffers[id];
        live[id] = allocate(buffer.bytes, user_of(buffer, graph_, categories_));
      }
      if (step.kind == StepKind::kDeallocate) deallocate(live[id], plan.buffers[id].bytes);
      if (step.kind == StepKind::kRun) start_op(graph_.node(step.id).op, device_, allocator_);
    }
  }

  double fragmentation() const { return fragmentation_; }

 private:
  void* allocate(int64_t bytes, const MemoryUser& user) {
    void* const pointer = allocator_.allocate(bytes, {}, user);
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
  const std::vector<MemoryCategory> categories_;  // by value
  std::vector<Held> held_;
  int64_t live_bytes_ = 0, most_live_bytes_ = 0;
  double fragmentation_ = 0;
};

}  // namespace

PeakPrediction predict_peak(const Graph& graph, std::span<const Plan* const> plans, Device& device,
                            Allocator& allocator) {
  Player player(graph, device, allocator);
  for (int id : graph.variables()) player.hold_variable(id);
  for (const Plan* plan : plans) {
    if (has_arena(plan->mode)) player.hold(plan->peak_bytes, user_of_arena());
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
