#include "answers/predict_peak.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "runtime/graph/placement.h"
#include "runtime/session/walk.h"

namespace headroom {
namespace {

// A program on the twin of its machine: its variables, and a walk over each plan that computes nothing.
class Player final : PlanWork {
 public:
  explicit Player(const PlayedProgram& program)
      : variables_(*program.graph, program.devices, Variables::Contents::kNone),
        arenas_(program.plans, variables_),
        live_(program.devices.all().size()) {
    for (const int id : program.graph->variables()) {
      const ValueInfo& variable = program.graph->value(id);
      note(variables_.devices().find(variable.device), Variables::block_bytes(variable));
    }
    for (const PlacedDevice& device : variables_.devices().all()) note(device, arenas_.bytes_on(device));
    for (const Plan* plan : program.plans) {
      memory_.emplace_back(*plan, variables_, &arenas_);
      walks_.emplace_back(memory_.back());
      note(variables_.devices().front(), 2 * plan->input_set_bytes);
    }
  }

  // Two steps of each plan: the second one meets the state that the first one left.
  void play() {
    for (size_t i = 0; i < walks_.size(); ++i) {
      played_ = &memory_[i];
      walks_[i].run(2, true, {}, *this);
    }
  }

  PeakPrediction peak_of(size_t device) const {
    const PlacedDevice& placed = variables_.devices().all()[device];
    const Statistics statistics = placed.allocator->statistics();
    return {statistics.allocated.peak, statistics.reserved.peak, placed.device->memory().info().peak_process,
            live_[device].fragmentation};
  }

 private:
  struct Live {
    int64_t bytes = 0, max_bytes = 0;
    double fragmentation = 0;  // when most was allocated
  };

  void allocated(int buffer) override { note(buffer, 1); }
  void deallocated(int buffer) override { note(buffer, -1); }

  void note(int id, int sign) {
    const Buffer& buffer = played_->plan().buffers[static_cast<size_t>(id)];
    note(*played_->devices()[static_cast<size_t>(buffer.device)], sign * buffer.bytes);
  }
  void note(const PlacedDevice& on, int64_t bytes) {
    if (on.name == kHostPlace) return;
    Live& live = live_[static_cast<size_t>(&on - variables_.devices().all().data())];
    live.bytes += bytes;
    if (live.bytes <= live.max_bytes) return;
    live.max_bytes = live.bytes;
    live.fragmentation = on.allocator->statistics().fragmentation();
  }

  Variables variables_;
  SharedArenas arenas_;
  std::deque<PlanMemory> memory_;  // by plan
  std::deque<Walk> walks_;         // likewise
  std::vector<Live> live_;         // by position in the device set
  const PlanMemory* played_ = nullptr;
};

bool is_higher(const PeakPrediction& now, const PeakPrediction& before) {
  return now.allocated_bytes > before.allocated_bytes || now.reserved_bytes > before.reserved_bytes ||
         now.process_bytes > before.process_bytes;
}

}  // namespace

std::vector<PeakPrediction> predict_peaks(std::span<const PlayedProgram> programs) {
  std::deque<Player> players;
  for (const PlayedProgram& program : programs) players.emplace_back(program);
  std::vector<PeakPrediction> peaks;
  for (bool rises = true; rises;) {
    rises = false;
    std::vector<PeakPrediction> now;
    for (Player& player : players) player.play();
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
