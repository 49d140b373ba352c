#include "answers/play.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "answers/player.h"
#include "answers/sharing_replicas.h"
#include "base/errors.h"
#include "base/text.h"
#include "device/host/simulated_gpu.h"
#include "runtime/session/device_set.h"
#include "runtime/session/start_op.h"

namespace headroom {
namespace {

int64_t end_of_last_allocation(const Trace& trace) {
  const auto last = std::find_if(trace.events.rbegin(), trace.events.rend(),
                                 [](const TraceEvent& event) { return event.allocates; });
  return trace.events.rend() - last;
}

void note_failure(const OutOfMemory& error, int64_t event, Prediction& played) {
  played.failed_event = event;
  played.facts = error.facts();
  played.reason = error.what();
}

bool needs_limit(const StrategySettings& settings) {
  const std::span<const Strategy> known = strategies();
  return std::ranges::any_of(known, [&](const Strategy& strategy) {
    return strategy.name == settings.name && strategy.needs_limit;
  });
}

// A count of a trace's settings, which may be anything: at most 2^40.
std::optional<int64_t> parsed_count(std::string_view text) {
  const auto count = parse_number<int64_t>(text);
  if (!count || *count < 0) return std::nullopt;
  return std::min(*count, int64_t{1} << 40);
}

DeviceProfile bare_profile(DeviceProfile profile, int64_t capacity_bytes) {
  // Whole pages: the driver cannot give a part of one.
  profile.total_bytes = capacity_bytes / profile.granularity_bytes * profile.granularity_bytes;
  profile.others_bytes = profile.context_bytes = profile.stack_bytes = profile.own_module_bytes = 0;
  profile.traced_bytes = 0;
  profile.blas = profile.dnn = {};
  return profile;
}

// Copies from the host need no kernel.
int64_t allocations_before_kernels(const Trace& trace) {
  int64_t allocations = 0;
  for (const TraceEvent& event : trace.events) {
    if (!event.allocates) continue;
    ++allocations;
    if (trace.names[static_cast<size_t>(event.op)] != "aten::_to_copy") break;
  }
  return allocations;
}

Prediction play_beside_process(const Traced& program, const RunSetup& asked, const PlayOptions& options) {
  const RunSetup setup = with_libraries(program, asked);
  const int64_t capacity = capacity_bytes(setup), overhead = setup.device.overhead_bytes();
  if (capacity <= 0) {
    return {.reason = "context, libraries and other processes leave no memory",
            .failed_event = 0,
            .devices = {{}},
            .lacking_bytes = 1};
  }
  StrategySettings settings = strategy_beside_process(setup);
  const auto play_there = [&](std::optional<int64_t> kernels_after) {
    settings.kernels_after = kernels_after;
    SimulatedGpu gpu(bare_profile(setup.device, capacity), 0, Backing::kNone);
    return play(program.front(), settings, gpu, options);
  };
  Prediction played = play_there(allocations_before_kernels(program.front()));
  // What addresses decide is known where the driver refuses nothing. Else a program must fit as well where
  // the context keeps its stacks, and where each segment lies below all others.
  const bool has_room = !played.fits || settings.name != "caching" || played.enough_total > 0;
  for (size_t i = 0; i < 2 && played.fits && !has_room; ++i) {
    constexpr std::optional<int64_t> kOthers[] = {std::numeric_limits<int64_t>::max(), std::nullopt};
    Prediction other = play_there(kOthers[i]);
    const int64_t work = played.work + other.work;
    if (!other.fits) played = std::move(other);
    played.work = work;
  }
  // Memory of other processes counts as taken, as on the device of the setup.
  const int64_t taken = others_bytes(setup) + overhead;
  PlayedDevice& device = played.devices.front();
  device.process_bytes = overhead + played.used_bytes;  // whole pages, of which blocks may take a part
  device.context_bytes = setup.device.context_bytes;
  device.library_bytes = overhead - device.context_bytes;
  played.used_bytes += taken;
  const int64_t page = setup.device.granularity_bytes, enough = played.enough_total;
  played.enough_total = played.fits && enough > 0 && !depends_on_total(settings)
                            ? taken + (enough + page - 1) / page * page
                            : 0;
  if (played.facts) {
    played.facts->device_total = setup.device.total_bytes;
    played.facts->others = others_bytes(setup);
  }
  return played;
}

// Twins of a program's devices: simulated devices without bytes that behave the same, each with its strategy.
class Machine {
 public:
  // All GPUs have the setup's total; its map says what other processes hold of each. Throws InvalidArgument
  // when the limits of virtual devices together exceed a GPU's total.
  explicit Machine(const RunSetup& setup);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // The device of that name with its strategy, made at the first call; virtual devices of one GPU share its
  // memory. Throws as Runtime::allocator does.
  PlacedDevice at(const std::string& name);
  // The GPU of the device of that name, or what stands for the CPU, made at the first call.
  SimulatedGpu& gpu(const std::string& name);

 private:
  static constexpr int kCpu = -1;  // instead of a position in the map

  int position_of(const std::string& name) const;
  DeviceProfile profile_at(int position) const;

  const DeviceProfile profile_;
  const DeviceMap map_;
  const DeviceName first_;
  StrategySettings strategy_;
  const bool libraries_first_;
  std::map<int, std::unique_ptr<SimulatedGpu>> gpus_;             // by position in the map
  std::map<std::string, std::unique_ptr<Allocator>> allocators_;  // go before the GPUs
};

Machine::Machine(const RunSetup& setup)
    : profile_(setup.device),
      map_(setup.gpus),
      first_(default_device(setup.options)),
      strategy_(setup.strategy ? *setup.strategy : setup.options.strategy_settings()),
      libraries_first_(setup.options.libraries_first) {
  strategy_.record_path.clear();  // a prediction records nothing
  std::map<int, int64_t> left;
  for (const LogicalGpu& gpu : map_.logical) {
    int64_t& room = left.try_emplace(gpu.physical, profile_.total_bytes).first->second;
    room -= gpu.limit_bytes.value_or(0);
    if (room < 0) throw InvalidArgument("limits of virtual devices are together above the GPU's total");
  }
}

int Machine::position_of(const std::string& name) const {
  const DeviceName device = parse_device_name(name);
  return map_.physical.empty() || device.type == DeviceType::kCpu ? kCpu : map_.find(device).physical;
}

DeviceProfile Machine::profile_at(int position) const {
  if (position == kCpu) return map_.physical.empty() ? profile_ : cpu_profile();
  DeviceProfile profile = profile_;
  profile.others_bytes = map_.physical[static_cast<size_t>(position)].used_bytes;
  return profile;
}

SimulatedGpu& Machine::gpu(const std::string& name) {
  const int position = position_of(name);
  std::unique_ptr<SimulatedGpu>& gpu = gpus_[position];
  if (gpu == nullptr) {
    const std::optional<int> ordinal =
        position == kCpu ? 0 : map_.physical[static_cast<size_t>(position)].ordinal;
    gpu = std::make_unique<SimulatedGpu>(profile_at(position), ordinal.value_or(0), Backing::kNone, name);
  }
  return *gpu;
}

PlacedDevice Machine::at(const std::string& name) {
  SimulatedGpu& gpu = this->gpu(name);
  std::unique_ptr<Allocator>& allocator = allocators_[name];
  if (allocator == nullptr) {
    const DeviceName device = parse_device_name(name);
    StrategySettings strategy{.name = "allow-growth"};  // for a CPU beside GPUs
    if (device == first_ || device.type == DeviceType::kGpu) strategy = strategy_on(map_, device, strategy_);
    if (libraries_first_ && position_of(name) != kCpu) strategy.reserve_bytes = start_library_handles(gpu);
    allocator = make_allocator(strategy, gpu);
    if (map_.logical.size() > 1) allocator->set_device_name(name);
  }
  return {name, &gpu, allocator.get()};
}

// Returns true if a strategy reserved less than the cap that it derived from the free memory, if it did.
bool is_below_limit(const PlayedDevice& device, Machine& machine) {
  const std::optional<int64_t> limit = machine.at(device.name).allocator->limit_bytes();
  return !limit || device.statistics.reserved.peak < *limit;
}

bool is_cpu(const PlayedDevice& device) {
  return parse_device_name(device.name).type == DeviceType::kCpu;
}

int64_t enough_total(const Prediction& played, const RunSetup& setup, Machine& machine) {
  if (setup.gpus.has_virtual() || depends_on_total(strategy_of(setup))) return 0;
  if (setup.options.memory_bytes) return 0;  // which is lowered to what is free
  int64_t enough = 1;
  for (const PlayedDevice& device : played.devices) {
    if (is_cpu(device)) continue;  // its total is its own
    const int64_t total = machine.gpu(device.name).memory().info().enough_total;
    if (total == 0 || !is_below_limit(device, machine)) return 0;
    enough = std::max(enough, total);
  }
  return enough;
}

// The players of a program on the twin of its machine.
class Round {
 public:
  Round(const Traced& program, Machine& machine, std::deque<FailureObserver>* observers) : program_(program) {
    for (const TracedDevice& device : program.devices) {
      machine.gpu(device.name).libraries().expect(device.libraries);
    }
    for (const TracedDevice& device : program.devices) {
      const PlacedDevice here = machine.at(device.name);
      if (observers != nullptr) observers->emplace_back().watch(*here.allocator);
      devices_.push_back(here);
    }
    for (size_t i = 0; i < devices_.size(); ++i) {
      const TracedDevice& traced = program.devices[i];
      streams_.emplace_back(*traced.trace, *devices_[i].device);
      players_.emplace_back(*traced.trace, streams_.back(), *devices_[i].allocator);
    }
  }

  // Plays until a round of all steps raises no peak. Returns the device that found no room.
  std::optional<size_t> play() {
    std::vector<size_t> steps = program_.steps;
    steps.push_back(program_.turns.size());
    if (auto failed = play_turns(0, steps.front())) return failed;
    const Positions begin = positions();
    std::vector<int64_t> peaks(3 * players_.size());
    for (bool rises = steps.size() > 1; rises;) {
      go_to(begin);
      for (size_t i = 1; i < steps.size(); ++i) {
        const Positions here = positions();
        if (auto failed = play_turns(steps[i - 1], steps[i])) return failed;
        go_to(here);  // the second step of a session meets the state that the first one left
        if (auto failed = play_turns(steps[i - 1], steps[i])) return failed;
      }
      rises = false;
      for (size_t i = 0; i < players_.size(); ++i) {
        const Statistics statistics = players_[i].allocator().statistics();
        const int64_t now[] = {statistics.allocated.peak, statistics.reserved.peak,
                               devices_[i].device->memory().info().peak_process};
        for (size_t at = 0; at < 3; ++at) {
          rises = rises || now[at] > peaks[3 * i + at];
          peaks[3 * i + at] = now[at];
        }
      }
    }
    return std::nullopt;
  }
  const Player& player(size_t device) const { return players_[device]; }

 private:
  using Positions = std::vector<int64_t>;  // the event of each player

  Positions positions() const {
    Positions here;
    for (const Player& player : players_) here.push_back(player.event());
    return here;
  }
  void go_to(const Positions& positions) {
    for (size_t i = 0; i < players_.size(); ++i) players_[i].go_to(positions[i]);
  }
  std::optional<size_t> play_turns(size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      const Turn& turn = program_.turns[i];
      if (!players_[turn.device].play(turn.events)) return turn.device;
      if (turn.start) turn.start(*devices_[turn.device].device, *devices_[turn.device].allocator);
    }
    return std::nullopt;
  }

  const Traced& program_;
  std::vector<PlacedDevice> devices_;
  std::deque<TraceStreams> streams_;
  std::deque<Player> players_;
};

Prediction play_on_machine(const Traced& program, const RunSetup& setup, const PlayOptions& options) {
  Prediction played;
  played.lacking_bytes = 1;
  for (const TracedDevice& device : program.devices) {
    const PhysicalGpu* const gpu = gpu_of(setup, device.name);
    const int64_t total = setup.device.total_bytes;
    if (gpu == nullptr || (total >= gpu->used_bytes && total > 0)) continue;
    played.reason = "other processes hold more than the device has";
    played.lacking_bytes = gpu->used_bytes - total + setup.device.context_bytes;
    return played;
  }
  std::deque<FailureObserver> observers;  // outlive the allocators that they watch
  Machine machine(setup);
  std::optional<Round> round;
  const auto lacks = [&](std::optional<int64_t> requested) {
    for (const TracedDevice& device : program.devices) {
      SimulatedGpu& gpu = machine.gpu(device.name);
      const int64_t bytes = requested.value_or(gpu.libraries().pending_bytes());
      played.lacking_bytes = std::max(played.lacking_bytes, bytes - gpu.memory().info().free);
    }
  };
  const auto note_devices = [&] {
    for (size_t i = 0; i < program.devices.size(); ++i) {
      SimulatedGpu& gpu = machine.gpu(program.devices[i].name);
      played.devices.push_back({program.devices[i].name, round->player(i).allocator().statistics(),
                                round->player(i).fragmentation(), gpu.memory().info().peak_process,
                                gpu.profile().kept_context_bytes(), gpu.libraries().held_bytes()});
      played.used_bytes = std::max(played.used_bytes, gpu.memory().info().peak_used);
      played.work += static_cast<int64_t>(program.devices[i].trace->events.size()) +
                     played.devices.back().statistics.driver_calls();
    }
  };
  try {
    round.emplace(program, machine, options.explains ? &observers : nullptr);
    if (const std::optional<size_t> failed = round->play()) {
      const Player& player = round->player(*failed);
      note_failure(*player.failure(), player.event() + 1, played);
      lacks(played.facts->requested);
    }
    note_devices();
    played.fits = !played.failed_event;
    if (played.fits) played.enough_total = enough_total(played, setup, machine);
  } catch (const OutOfMemory& error) {  // thrown by a pool
    note_failure(error, 0, played);
    lacks(error.facts().requested);
  } catch (const LibraryError& error) {
    played.reason = error.what();
    lacks(std::nullopt);
  } catch (const DeviceError& error) {
    played.reason = error.what();
    lacks(std::nullopt);
  }
  for (const FailureObserver& observer : observers) {
    if (observer.failure()) played.failure = observer.failure();
  }
  return played;
}

}  // namespace

Prediction play(const Trace& trace, const StrategySettings& strategy, Device& device,
                const PlayOptions& options) {
  Prediction played;
  played.devices.emplace_back().name = device.name();
  device.initialize();  // its cost does not count
  const double driver_time_before_us = device.memory().driver_time_us();
  const TraceStreams streams(trace, device);  // outlive the allocator, which may wait for them
  FailureObserver observer;
  std::unique_ptr<Allocator> allocator;
  try {
    allocator = make_allocator(strategy, device);
  } catch (const OutOfMemory& error) {
    note_failure(error, 0, played);
    return played;
  }
  if (options.explains) observer.watch(*allocator);
  PlayedDevice& here = played.devices.front();
  const auto events = std::ssize(trace.events);
  double fastest_ns = std::numeric_limits<double>::infinity();
  {
    Player player(trace, streams, *allocator, !strategy.record_path.empty() || !strategy.plugin_path.empty());
    played.fits = true;
    for (int64_t pass = 0; pass < options.passes && played.fits; ++pass) {
      if (pass > 0) player.free_rest();
      player.go_to(0);
      const bool is_last = pass + 1 == options.passes;
      const int64_t end = options.snapshot_after.value_or(
          is_last && !options.to_last_event ? end_of_last_allocation(trace) : events);
      played.fits = player.play(end);
      if (played.fits) {
        fastest_ns = std::min(fastest_ns, player.ns());
        played.ns_per_call = fastest_ns / static_cast<double>(end);
      } else {
        note_failure(*player.failure(), pass * events + player.event() + 1, played);
      }
      played.work += player.event();
      here.fragmentation = player.fragmentation();
    }
    if (options.snapshot_after) player.describe(played.snapshot.emplace(allocator->snapshot()));
    here.statistics = allocator->statistics();
    played.work += here.statistics.driver_calls();
    const MemoryInfo memory = device.memory().info();
    here.process_bytes = memory.peak_process;
    played.used_bytes = memory.peak_used;
    played.enough_total = memory.enough_total;
    played.driver_time_us = device.memory().driver_time_us() - driver_time_before_us;
  }
  played.failure = observer.failure();
  return played;
}

Prediction play(const Traced& program, const RunSetup& setup, const PlayOptions& options) {
  if (program.refusal) {
    const int64_t budget = program.refusal->facts().limit.value_or(0);
    return {.reason = program.refusal->what(),
            .lacking_bytes = std::max<int64_t>(1, program.refusal->least_bytes() - budget)};
  }
  if (!program.starts_libraries) return play_beside_process(program, setup, options);
  Prediction played = play_on_machine(program, setup, options);
  if (played.fits && has_sharing_replicas(program, setup)) let_peaks_meet(program, setup, played);
  return played;
}

bool would_play_alike(const Traced& program, const Prediction& fitted, const RunSetup& smaller) {
  if (fitted.enough_total == 0 || fitted.enough_total > smaller.device.total_bytes) return false;
  if (!program.starts_libraries) return true;
  Machine machine(smaller);
  return std::ranges::all_of(fitted.devices,
                             [&](const PlayedDevice& device) { return is_below_limit(device, machine); });
}

RunSetup with_libraries(const Traced& program, RunSetup setup) {
  DeviceProfile& device = setup.device;
  const auto setting = [&](std::string_view name) {
    for (const auto& [known, value] : program.front().settings) {
      if (known == name) return parsed_count(value);
    }
    return std::optional<int64_t>();
  };
  const std::optional<int64_t> handles = setting("blas_handles");
  if (program.starts_libraries || device.context_bytes == 0 || !handles) return setup;
  device.traced_bytes = setting("nccl_bytes").value_or(0);
  // The profile has one handle; a thread that multiplies matrices has its own.
  if (device.torch_kernel_bytes > 0)
    device.traced_bytes += device.torch_kernel_bytes + (*handles - 1) * device.blas.handle_bytes;
  return setup;
}

StrategySettings strategy_beside_process(const RunSetup& setup) {
  StrategySettings settings = strategy_of(setup);
  const int64_t total = setup.device.total_bytes;
  if (settings.memory_fraction) {
    settings.limit_bytes = static_cast<int64_t>(*settings.memory_fraction * static_cast<double>(total));
    settings.memory_fraction.reset();
  }
  if (settings.limit_bytes && settings.limit_scope == LimitScope::kProcess) {
    settings.limit_bytes =
        std::max<int64_t>(*settings.limit_bytes - setup.device.overhead_bytes(), Allocator::kAlignment);
    settings.limit_scope = LimitScope::kPool;
  }
  if (!settings.reserve_bytes) settings.reserve_bytes = 0;
  if (needs_limit(settings) && !settings.limit_bytes) settings.limit_bytes = capacity_bytes(setup);
  return settings;
}

int64_t capacity_bytes(const RunSetup& setup) {
  const int64_t page = setup.device.granularity_bytes;
  const int64_t left = setup.device.total_bytes - others_bytes(setup) - setup.device.overhead_bytes();
  return left <= 0 ? 0 : left / page * page;
}

RunSetup setup_of_capacity(const DeviceProfile& profile, StrategySettings strategy, int64_t capacity_bytes) {
  return {.device = bare_profile(profile, capacity_bytes), .options = {}, .strategy = std::move(strategy)};
}

}  // namespace headroom
