#include "runtime/predict/predict_peak.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/plan/memory_users.h"
#include "runtime/session/start_op.h"

namespace headroom {
namespace {

// Plays one session's requests in the order in which Session makes them.
class Player {
 public:
  Player(const Graph& graph, const DeviceSet& devices)
      : graph_(graph), devices_(devices), live_(devices.all().size()), categories_(categorise(graph)) {}

  ~Player() {
    for (size_t i = held_.size(); i-- > 0;)
      held_[i].on->allocator->deallocate(held_[i].pointer, held_[i].bytes);
  }

  void hold_variable(int id) {
    const ValueInfo& info = graph_.value(id);
    hold(devices_.find(info.device), round_up(info.spec.bytes(), Allocator::kAlignment),
         user_of_variable(id, graph_, categories_));
  }

  void hold_arenas(const Plan& plan) {
    for (const PlanDevice& device : plan.devices) {
      hold(devices_.find(device.name), device.peak_bytes, user_of_arena());
    }
  }

  void hold_input_sets(const Plan& plan) {
    hold(devices_.all().front(), 2 * plan.input_set_bytes, user_of_input_sets());
  }

  void step(const Plan& plan) {
    std::vector<void*> live(plan.buffers.size());
    std::vector<const PlacedDevice*> placed;
    for (const PlanDevice& device : plan.devices) placed.push_back(&devices_.find(device.name));
    for (const Step& step : plan.steps) {
      const auto id = static_cast<size_t>(step.id);
      if (step.kind == StepKind::kAllocate) {
        const Buffer& buffer = plan.buffers[id];
        live[id] = allocate(*placed[static_cast<size_t>(buffer.device)], buffer.bytes,
                            user_of(buffer, graph_, categories_));
      }
      if (step.kind == StepKind::kDeallocate) {
        const Buffer& buffer = plan.buffers[id];
        deallocate(*placed[static_cast<size_t>(buffer.device)], live[id], buffer.bytes);
      }
      if (step.kind == StepKind::kRun) {
        const Node& node = graph_.node(step.id);
        const PlacedDevice& on = devices_.find(node.device);
        start_op(node.op, *on.device, *on.allocator);
      }
    }
  }

  PeakPrediction peak_of(size_t device) const {
    const PlacedDevice& placed = devices_.all()[device];
    const Statistics statistics = placed.allocator->statistics();
    return {statistics.allocated.peak, statistics.reserved.peak, placed.device->memory().info().peak_process,
            live_[device].fragmentation};
  }

 private:
  struct Live {
    int64_t bytes = 0, most_bytes = 0;
    double fragmentation = 0;
  };
  struct Held {
    const PlacedDevice* on;
    void* pointer;
    int64_t bytes;
  };

  Live& live_on(const PlacedDevice& placed) {
    return live_[static_cast<size_t>(&placed - devices_.all().data())];
  }
  void hold(const PlacedDevice& on, int64_t bytes, const MemoryUser& user) {
    held_.push_back({&on, allocate(on, bytes, user), bytes});
  }
  void* allocate(const PlacedDevice& on, int64_t bytes, const MemoryUser& user) {
    void* const pointer = on.allocator->allocate(bytes, {}, user);
    Live& live = live_on(on);
    live.bytes += bytes;
    if (live.bytes > live.most_bytes) {
      live.most_bytes = live.bytes;
      live.fragmentation = on.allocator->statistics().fragmentation();
    }
    return pointer;
  }
  void deallocate(const PlacedDevice& on, void* pointer, int64_t bytes) {
    on.allocator->deallocate(pointer, bytes);
    live_on(on).bytes -= bytes;
  }

  const Graph& graph_;
  const DeviceSet& devices_;
  std::vector<Live> live_;                        // by position in the set
  const std::vector<MemoryCategory> categories_;  // by value
  std::vector<Held> held_;
};

bool is_higher(const PeakPrediction& now, const PeakPrediction& before) {
  return now.allocated_bytes > before.allocated_bytes || now.reserved_bytes > before.reserved_bytes ||
         now.process_bytes > before.process_bytes;
}

}  // namespace

std::vector<PeakPrediction> predict_peaks(std::span<const PlayedProgram> programs) {
  std::deque<Player> players;
  for (const PlayedProgram& program : programs) {
    Player& player = players.emplace_back(*program.graph, program.devices);
    for (int id : program.graph->variables()) player.hold_variable(id);
    for (const Plan* plan : program.plans) {
      if (has_arena(plan->mode)) player.hold_arenas(*plan);
      if (plan->input_set_bytes > 0) player.hold_input_sets(*plan);
    }
  }
  std::vector<PeakPrediction> peaks;
  for (bool rises = true; rises;) {
    rises = false;
    std::vector<PeakPrediction> now;
    for (size_t i = 0; i < players.size(); ++i) {
      // Twice each: the second step of a plan meets the state that its first one left.
      for (const Plan* plan : programs[i].plans) {
        players[i].step(*plan);
        players[i].step(*plan);
      }
    }
    for (size_t i = 0; i < players.size(); ++i) {
      for (size_t at = 0; at < programs[i].devices.all().size(); ++at) now.push_back(players[i].peak_of(at));
    }
    peaks.resize(now.size());
    for (size_t i = 0; i < now.size(); ++i) rises = rises || is_higher(now[i], peaks[i]);
    peaks = std::move(now);
  }
  return peaks;
}

PeakPrediction predict_peak(const Graph& graph, std::span<const Plan* const> plans, Device& device,
                            Allocator& allocator) {
  const PlayedProgram program{&graph, {plans.begin(), plans.end()}, DeviceSet(device, allocator)};
  return predict_peaks({&program, 1}).front();
}

}  // namespace headroom
