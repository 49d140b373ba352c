#include "tools/workload/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "answers/lower.h"
#include "answers/play.h"
#include "answers/predict.h"
#include "answers/solve.h"
#include "answers/step_kernels.h"
#include "base/errors.h"
#include "base/progress.h"
#include "base/text.h"
#include "device/host_memory.h"
#include "examples/models/mnist/digits.h"
#include "examples/models/mnist/report.h"
#include "examples/models/mnist/train_result.h"
#include "runtime/app/replicas.h"
#include "runtime/app/runtime.h"
#include "runtime/graph/categories.h"
#include "runtime/session/start_op.h"
#include "tools/workload/workload_step.h"

namespace headroom {
namespace {

// The steps of a run are timed in so many groups, at least, whose median counts.
constexpr int64_t kTimings = 10;

// The clock of the driver's calls, told apart into the first step and the rest.
class DriverClock {
 public:
  explicit DriverClock(Runtime& runtime) : runtime_(runtime) {}

  void steps_done(int64_t steps) {
    if (steps_ == 0) after_first_us_ = now_us();
    steps_ += steps;
  }
  // A simulated driver's time passes on its own clock only.
  void note(Measurement& result) const {
    result.driver_seconds = 1e-6 * now_us();
    if (steps_ < 2 || !simulated_profile(runtime_.options())) return;
    result.seconds_per_step += 1e-6 * (now_us() - after_first_us_) / static_cast<double>(steps_ - 1);
  }

 private:
  double now_us() const { return runtime_.initialized() ? runtime_.device().memory().driver_time_us() : 0; }

  Runtime& runtime_;
  int64_t steps_ = 0;
  double after_first_us_ = 0;
};

// Returns the memory of the process on the default device outside its strategies.
int64_t overhead_bytes(Runtime& runtime) {
  int64_t bytes = runtime.memory_info().process;
  const DeviceName device = default_device(runtime.options());
  const DeviceMap& map = runtime.devices();
  for (const DeviceName& other : runtime.available_devices()) {
    const bool is_beside = device.type == DeviceType::kGpu && other.type == DeviceType::kGpu &&
                           map.find(other).physical == map.find(device).physical;
    if (other == device || is_beside) bytes -= runtime.statistics(other.text()).reserved.current;
  }
  return bytes;
}

// Records the plan of the step for a budget; null without one.
void note_plan(const MemorySolution* memory, Measurement& result) {
  if (memory == nullptr) return;
  result.planned_process_bytes = memory->process_bytes;
  result.planned_seconds_per_step = 1e-6 * memory->us;
  result.repeated_nodes = memory->schedule.repeats();
  result.host_bytes = memory->host_bytes;
}

Measurement measure_mnist(const WorkloadOptions& options, std::span<const Program> programs,
                          Progress& progress) {
  const TrainSettings settings = train_settings(options);
  const int64_t images = training_images(settings.batch);
  const Dataset training = draw_digits(images, settings.seed);
  const Dataset test = draw_digits(kDrawnTest, settings.seed, images);
  Runtime runtime(options.runtime);
  DriverClock clock(runtime);
  const TrainResult trained = train(settings, training, test, runtime, [&](const StepReport&) {
    clock.steps_done(1);
    progress.advance(1);
  });
  Measurement result;
  static_cast<RunResult&>(result) = trained;
  result.steps = trained.steps;
  result.seconds_per_step = trained.seconds_per_step;
  note_plan(programs[0].memory.get(), result);  // on a GPU its training plans anew
  for (int rank = 1; rank < options.replicas.count(); ++rank) {
    if (const auto& memory = programs[static_cast<size_t>(rank)].memory)
      result.planned_process_bytes = std::max(result.planned_process_bytes, memory->process_bytes);
  }
  clock.note(result);
  result.overhead_bytes = overhead_bytes(runtime);
  return result;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One replica's steps, on its devices; `group` is null for one alone.
void run_step_replica(const WorkloadOptions& options, std::span<const Program> programs, Runtime& runtime,
                      const ReplicaDevices& devices, Collective* group, Progress& progress,
                      Measurement& result) {
  const int rank = group == nullptr ? 0 : group->rank();
  const WorkloadStep step = make_workload_step(options, rank);
  Graph& graph = *step.graph;
  const ReplicaPlace here = settle_replica(graph, runtime, devices, group);
  for (const PlacedDevice& device : here.devices.all()) {
    result.devices.push_back({{}, parse_device_name(device.name).short_text(), {}});
  }
  KernelSettings settings;
  settings.library_only = !options.step.fused();
  settings.math = options.step.math;
  const auto [kernels, memory] =
      make_step_kernels(graph, {step.graph, {step.targets}, {}, part_of(options, rank)}, here.devices,
                        settings, options.runtime, programs[static_cast<size_t>(rank)].memory);
  if (memory) result.notes = memory->notes;
  note_plan(memory.get(), result);
  Plan plan = make_plan(graph, step.targets, options.runtime.plan, kernels->workspace_bytes());
  Variables variables(graph, here.devices);
  Session session(graph, std::move(plan), kernels, variables);
  step.feed(session);
  DriverClock clock(runtime);
  std::vector<double> seconds;
  const auto run = [&](int64_t steps, bool has_inputs) {
    const auto start = std::chrono::steady_clock::now();
    has_inputs ? session.run_again(steps) : session.run(steps);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    seconds.push_back(taken.count() / static_cast<double>(steps));
    result.steps += steps;
    if (rank != 0) return;
    clock.steps_done(steps);
    progress.advance(static_cast<double>(steps));
  };
  // With its data on the device a step is queued after the previous one, without waiting.
  const bool is_resident = options.step.data_on == DataOn::kDevice;
  const int64_t at_once = is_resident ? std::max<int64_t>(1, options.step.steps / kTimings) : 1;
  while (result.steps < options.step.steps) {
    const bool is_first = result.steps == 0;
    run(is_first ? 1 : std::min(at_once, options.step.steps - result.steps), is_resident && !is_first);
  }
  result.seconds_per_step = median(std::move(seconds));
  if (step.outputs) result.outputs = step.outputs(session);
  if (rank == 0) clock.note(result);
  for (const auto& collective : here.collectives) collective->check();
  if (group == nullptr) return;
  result.weights_checksum = fmt::format("{:016x}", variables.checksum(step.parameters));
  result.optimizer_bytes = variable_bytes(graph, MemoryCategory::kOptimizerState);
  group->barrier();  // none dies before the last is done
}

// A budget on a real GPU is kept beside what its libraries take there, which shows once they are started.
WorkloadOptions without_budget_of_a_card(WorkloadOptions options) {
  if (cuda_ordinal(options.runtime.device)) options.runtime.memory_bytes.reset();
  return options;
}

Measurement measure_step(const WorkloadOptions& options, std::span<const Program> programs,
                         Progress& progress) {
  Runtime runtime(options.runtime);
  std::vector<int64_t> planned_bytes(static_cast<size_t>(options.replicas.count()));
  const ReplicaWork<Measurement> work = [&](int rank, const ReplicaDevices& devices, Collective* group,
                                            Measurement& result) {
    run_step_replica(options, programs, runtime, devices, group, progress, result);
    planned_bytes[static_cast<size_t>(rank)] = result.planned_process_bytes;
  };
  Measurement result =
      run_on_devices(runtime, options.replicas.count(), kCollectiveTimeout, Measurement{}, work);
  result.planned_process_bytes = *std::ranges::max_element(planned_bytes);
  result.overhead_bytes = overhead_bytes(runtime);
  return result;
}

// Plays as a prediction does.
Prediction play_simulated(const Trace& trace, const RuntimeOptions& options, const PlayOptions& whole) {
  const Traced program = traced_here(trace);
  RunSetup setup = prepared(program, with_budget(setup_to_fit(options)));
  setup.strategy->record_path = options.strategy_settings().record_path;  // a prediction records nothing
  return play(program, setup, whole);
}

Prediction play_on_device(const Trace& trace, const RuntimeOptions& options, const PlayOptions& whole) {
  const std::unique_ptr<Device> device = make_device(options, Backing::kNone);
  StrategySettings strategy = prepared_for(
      trace, strategy_on(find_devices(options), default_device(options), options.strategy_settings()));
  strategy.reserve_bytes = start_libraries_with_kernels(*device);
  Prediction played = play(trace, strategy, *device, whole);
  played.devices.front().context_bytes = device->memory().info().process;  // the strategy is gone
  return played;
}

// Calls take(name, figure) for what JSON always has, and needs to be read back.
template <typename M, typename Take>
void for_each_figure(M& m, const Take& take) {
  take("error", m.error);
  take("steps", m.steps);
  take("seconds_per_step", m.seconds_per_step);
  take("driver_seconds", m.driver_seconds);
  take("peak_device_bytes", m.peak_device_bytes);
  take("peak_process_bytes", m.peak_process_bytes);
  take("peak_reserved_bytes", m.peak_reserved_bytes);
  take("peak_allocated_bytes", m.peak_allocated_bytes);
  take("fragmentation", m.fragmentation);
  take("overhead_bytes", m.overhead_bytes);
}

}  // namespace

bool host_has_room(const Traced& program, const RuntimeOptions& options) {
  const std::optional<int64_t> available = host_available_bytes();
  if (!available || cuda_ordinal(options.device)) return true;
  int64_t bytes = 0;
  for (const TracedDevice& device : program.devices) bytes += device.trace->peak_bytes;
  return bytes < *available / 10 * 9;
}

Measurement measure(const WorkloadOptions& options) {
  // Before the run, as what it leaves on a GPU is in use there. Refuses what is no net.
  const WorkloadOptions modeled = without_budget_of_a_card(options);
  const std::vector<Program> programs = make_programs(modeled);
  require_fit(programs);
  double fragmentation = 0;
  const Traced traced = lower(planned(programs, modeled.runtime.plan), modeled.runtime);
  const bool has_room = host_has_room(traced, modeled.runtime);
  if (options.runtime.device != "cpu") {
    const Prediction played = play(traced, setup_to_fit(modeled.runtime));
    if (!played.devices.empty()) fragmentation = played.front().fragmentation;
    if (!has_room && !played.fits) {  // the run would end so, if the host could begin it
      Measurement failed;
      failed.outcome = RunOutcome::kOutOfMemory;
      failed.error = played.reason;
      failed.memory = played.facts;
      return failed;
    }
  }
  if (!has_room) {
    int64_t bytes = 0;
    for (const TracedDevice& device : traced.devices) bytes += device.trace->peak_bytes;
    throw HostOutOfMemory(bytes);
  }
  const bool is_mnist = !options.model.is_given() && options.net == kMnist;
  Progress progress(static_cast<double>(options.step.steps), "steps");
  Measurement result =
      is_mnist ? measure_mnist(options, programs, progress) : measure_step(options, programs, progress);
  progress.finish();
  result.fragmentation = fragmentation;
  return result;
}

Measurement measure_or_refuse(const WorkloadOptions& options) {
  try {
    return measure(options);
  } catch (const MemoryTooSmall& error) {
    Measurement refused;
    refused.outcome = RunOutcome::kOutOfMemory;
    refused.error = error.what();
    refused.memory = error.facts();
    return refused;
  }
}

Measurement measure(const Trace& trace, const RuntimeOptions& options, int64_t steps) {
  Measurement result;
  Prediction verdict;
  Progress progress(0, "");
  progress.start(fmt::format("playing {} events{}", trace.events.size(),
                             steps == 1 ? "" : fmt::format(" {} times", steps)));
  static_cast<Ending&>(result) = attempt([&] {
    const PlayOptions whole{.passes = steps, .to_last_event = true};
    verdict = simulated_profile(options) ? play_simulated(trace, options, whole)
                                         : play_on_device(trace, options, whole);
  });
  progress.finish();
  if (result.outcome != RunOutcome::kOk) return result;
  const PlayedDevice& device = verdict.front();
  result.peak_device_bytes = verdict.used_bytes;
  result.peak_process_bytes = device.process_bytes;
  result.peak_reserved_bytes = device.statistics.reserved.peak;
  result.peak_allocated_bytes = device.statistics.allocated.peak;
  result.fragmentation = device.fragmentation;
  result.overhead_bytes = device.context_bytes + device.library_bytes;
  const auto events = static_cast<int64_t>(trace.events.size());
  const int64_t failed_event = verdict.failed_event.value_or(0);
  result.steps = verdict.fits ? steps : std::max<int64_t>(0, failed_event - 1) / events;
  result.driver_seconds = 1e-6 * verdict.driver_time_us;
  const double strategy_seconds = 1e-9 * verdict.ns_per_call * static_cast<double>(events);
  if (result.steps > 0) {
    result.seconds_per_step = strategy_seconds + result.driver_seconds / static_cast<double>(result.steps);
  }
  if (verdict.fits) return result;
  result.outcome = RunOutcome::kOutOfMemory;
  result.memory = verdict.facts;
  result.error = !verdict.facts      ? verdict.reason
                 : failed_event == 0 ? "no room for the pool"
                                     : fmt::format("no room at event {}", failed_event);
  return result;
}

std::string to_json(const Measurement& m) {
  nlohmann::ordered_json json;
  json["outcome"] = to_string(m.outcome);
  for_each_figure(m, [&](const char* name, const auto& figure) { json[name] = figure; });
  json["weights_checksum"] = m.weights_checksum;
  if (m.planned_process_bytes > 0) {
    json["planned_process_bytes"] = m.planned_process_bytes;
    json["planned_seconds_per_step"] = m.planned_seconds_per_step;
    json["repeated_nodes"] = m.repeated_nodes;
    json["host_bytes"] = m.host_bytes;
  }
  if (m.devices.size() > 1) json["devices"] = nlohmann::ordered_json::parse(to_json(m.devices));
  if (m.replicas.size() > 1) json["replicas"] = nlohmann::ordered_json::parse(to_json(m.replicas));
  return json_text(json);
}

Measurement parse_measurement(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    Measurement m;
    m.outcome = parse_enum<RunOutcome>(json.at("outcome").get<std::string>(), "outcome");
    for_each_figure(m, [&](const char* name, auto& figure) { json.at(name).get_to(figure); });
    m.weights_checksum = json.value("weights_checksum", std::string());
    return m;
  } catch (const nlohmann::json::exception& error) {
    throw InvalidArgument(fmt::format("not a measurement: {}", error.what()));
  }
}

}  // namespace headroom
