#include "tools/workload/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "allocators/replay.h"
#include "examples/mnist/digits.h"
#include "examples/mnist/report.h"
#include "examples/zoo/zoo.h"
#include "runtime/categories.h"
#include "runtime/core/device_collective.h"
#include "runtime/core/errors.h"
#include "runtime/place_on_runtime.h"
#include "runtime/replicas.h"
#include "runtime/runtime.h"
#include "runtime/session.h"
#include "tools/workload/prediction.h"

namespace headroom {
namespace {

// Calls `work`; how it failed, if it did, goes to the result.
template <typename F>
void note_failure(Measurement& result, F work) {
  const auto fail = [&](const char* outcome, const Error& error) {
    result.outcome = outcome;
    result.error = error.what();
  };
  try {
    work();
  } catch (const OutOfMemory& error) {
    fail("out_of_memory", error);
    result.memory = error.facts();
  } catch (const LibraryError& error) {
    fail("library_failure", error);
    result.memory = error.memory();
  } catch (const DeviceError& error) {
    fail("library_failure", error);
  } catch (const CollectiveError& error) {
    fail("replica_failure", error);
  }
}

void note_peaks(Measurement& result, const MemoryInfo& info, const Statistics& statistics) {
  result.peak_device_bytes = info.peak_used;
  result.peak_process_bytes = info.peak_process;
  result.peak_reserved_bytes = statistics.reserved.peak;
  result.peak_allocated_bytes = statistics.allocated.peak;
}

// The clock of the driver's calls, told apart into the first step and the rest.
class DriverClock {
 public:
  explicit DriverClock(Runtime& runtime) : runtime_(runtime) {}

  void step_done() {
    if (steps_++ == 0) after_first_us_ = now_us();
  }
  // A simulated driver's time passes on its own clock only.
  void note(Measurement& result) const {
    result.driver_seconds = 1e-6 * now_us();
    if (steps_ < 2 || runtime_.device().kind() != DeviceKind::kSimulatedGpu) return;
    result.seconds_per_step += 1e-6 * (now_us() - after_first_us_) / static_cast<double>(steps_ - 1);
  }

 private:
  double now_us() const { return runtime_.initialised() ? runtime_.device().driver_time_us() : 0; }

  Runtime& runtime_;
  int64_t steps_ = 0;
  double after_first_us_ = 0;
};

void note_memory(Measurement& result, Runtime& runtime) {
  const MemoryInfo info = runtime.memory_info();
  const Statistics statistics = runtime.initialised() ? runtime.allocator().statistics() : Statistics{};
  note_peaks(result, info, statistics);
  result.overhead_bytes = info.process - statistics.reserved.current;
}

// The largest peaks of any, and what all of them leave on the first one's GPU.
void note_replicas(Measurement& result, std::vector<ReplicaResult> replicas, Runtime& runtime) {
  const DeviceMap& map = runtime.devices();
  result.overhead_bytes = runtime.memory_info().process;
  for (size_t i = 0; i < replicas.size(); ++i) {
    const ReplicaResult& replica = replicas[i];
    const auto raise = [](int64_t& to, int64_t bytes) { to = std::max(to, bytes); };
    raise(result.peak_device_bytes, replica.peak_device_bytes);
    raise(result.peak_process_bytes, replica.peak_process_bytes);
    raise(result.peak_reserved_bytes, replica.peak_reserved_bytes);
    raise(result.peak_allocated_bytes, replica.peak_allocated_bytes);
    if (map.logical[i].physical == map.logical[0].physical) {
      result.overhead_bytes -= runtime.statistics(replica.device).reserved.current;
    }
  }
  result.replicas = std::move(replicas);
}

Measurement measure_mnist(const WorkloadOptions& options) {
  const TrainSettings settings = train_settings(options);
  const int64_t images = training_images(settings.batch);
  const Dataset training = draw_digits(images, settings.seed);
  const Dataset test = draw_digits(kDrawnTest, settings.seed, images);
  Runtime runtime(options.runtime);
  DriverClock clock(runtime);
  const TrainResult trained =
      train(settings, training, test, runtime, [&](const StepReport&) { clock.step_done(); });
  Measurement result{trained.outcome, trained.error, trained.steps, trained.seconds_per_step};
  result.memory = trained.memory;
  clock.note(result);
  note_memory(result, runtime);
  if (settings.replicas == 1) return result;
  result.failed_rank = trained.failed_rank;
  note_replicas(result, trained.replicas, runtime);
  return result;
}

// Numbers that stand for data: every step sees the same.
void feed(const ZooStep& step, Session& session) {
  std::mt19937 random(1);
  const auto classes = [&](const Value& input) {
    for (int32_t& value : session.input<int32_t>(input)) {
      value = static_cast<int32_t>(random() % static_cast<uint32_t>(step.classes));
    }
  };
  if (step.input.spec().dtype == DType::kI32) {
    classes(step.input);
  } else {
    for (float& value : session.input<float>(step.input)) {
      value = static_cast<float>(random()) / static_cast<float>(std::mt19937::max());
    }
  }
  classes(step.labels);
  session.input<float>(step.learning_rate)[0] = 1e-3f;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One replica's steps, on the device of that name; `group` is null for one alone.
Measurement measure_zoo_replica(const ZooNet& net, const WorkloadOptions& options, Runtime& runtime,
                                const DeviceName& name, std::unique_ptr<Collective> group) {
  const int rank = group == nullptr ? 0 : group->rank();
  const std::unique_ptr<ZooStep> step = make_zoo_step(net, zoo_settings(options, rank));
  Measurement result;
  std::vector<double> seconds;
  DriverClock clock(runtime);
  note_failure(result, [&] {
    Device& device = runtime.device(name.text());
    // A replica is whole on its device.
    const DeviceSet devices =
        group == nullptr ? place(step->graph, runtime) : DeviceSet(device, runtime.allocator(name.text()));
    device.initialise();  // makes it the current GPU of this thread
    const auto collective = group == nullptr ? nullptr : make_device_collective(device, *group);
    KernelSettings settings;
    settings.library_only = !options.step.fused();
    settings.math = parse_math(options.step.math);
    settings.collective = collective.get();
    const auto kernels = std::make_shared<const Kernels>(step->graph, devices, settings);
    Plan plan =
        make_plan(step->graph, step->targets(), options.runtime.plan_mode(), kernels->workspace_bytes());
    Variables variables(step->graph, devices);
    Session session(step->graph, std::move(plan), kernels, variables);
    feed(*step, session);
    for (; result.steps < options.step.steps; ++result.steps) {
      const auto start = std::chrono::steady_clock::now();
      session.run();
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      if (rank == 0) clock.step_done();
    }
    result.seconds_per_step = median(std::move(seconds));
    if (rank == 0) clock.note(result);
    if (group == nullptr) return;
    collective->check();
    ReplicaResult replica;
    replica.weights_checksum = fmt::format("{:016x}", variables.checksum(step->parameters));
    replica.optimizer_bytes = variable_bytes(step->graph, MemoryCategory::kOptimizerState);
    result.replicas.push_back(replica);
    group->barrier();  // none dies before the last is done
  });
  return result;
}

Measurement measure_zoo(const ZooNet& net, const WorkloadOptions& options) {
  Runtime runtime(options.runtime);
  const std::vector<DeviceName> names = replica_devices(runtime, options.replicas.count());
  std::vector<Measurement> results(names.size());
  if (names.size() == 1) {
    results[0] = measure_zoo_replica(net, options, runtime, names[0], nullptr);
  } else {
    run_replicas(options.replicas.count(), kCollectiveTimeout,
                 [&](int rank, std::unique_ptr<Collective> group) {
                   const auto i = static_cast<size_t>(rank);
                   results[i] = measure_zoo_replica(net, options, runtime, names[i], std::move(group));
                 });
  }
  size_t told = 0;  // the cause of all failures, where there is one
  const auto rate = [&](size_t i) {
    return results[i].outcome == "ok" ? 0 : results[i].outcome == "replica_failure" ? 1 : 2;
  };
  for (size_t i = 1; i < results.size(); ++i) {
    if (rate(i) > rate(told)) told = i;
  }
  Measurement result = results[told];
  note_memory(result, runtime);
  if (names.size() == 1) return result;
  std::vector<ReplicaResult> replicas;
  for (size_t i = 0; i < names.size(); ++i) {
    replicas.push_back(results[i].replicas.empty() ? ReplicaResult{} : results[i].replicas[0]);
    const MemoryInfo info = runtime.memory_info(names[i].text());
    const Statistics statistics = runtime.statistics(names[i].text());
    replicas[i].device = names[i].short_text();
    replicas[i].peak_device_bytes = info.peak_used;
    replicas[i].peak_process_bytes = info.peak_process;
    replicas[i].peak_reserved_bytes = statistics.reserved.peak;
    replicas[i].peak_allocated_bytes = statistics.allocated.peak;
  }
  if (result.outcome != "ok") {
    result.failed_rank = static_cast<int>(told);
    result.error = fmt::format("{}: {}", name_replica(*result.failed_rank), result.error);
  }
  note_replicas(result, std::move(replicas), runtime);
  return result;
}

}  // namespace

Measurement measure(const WorkloadOptions& options) {
  // Before the run, as what it leaves on a GPU is in use there. Refuses what is no net.
  const Predictor predictor(make_program(options), options.runtime.plan_mode());
  const bool is_on_one_gpu = options.runtime.device != "cpu" && options.runtime.place.empty();
  const double fragmentation = is_on_one_gpu ? predictor.fragmentation(place_of(options.runtime)) : 0;
  const ZooNet* net = find_zoo_net(options.net);
  Measurement result = net != nullptr ? measure_zoo(*net, options) : measure_mnist(options);
  result.fragmentation = fragmentation;
  return result;
}

Measurement measure(const Trace& trace, const RuntimeOptions& options, int64_t steps) {
  // Nobody touches the bytes, so none need to lie behind a simulated device's addresses.
  const std::unique_ptr<Device> device = make_device(options, Backing::kNone);
  const StrategySettings strategy =
      strategy_on(find_devices(options), default_device(options), options.strategy_settings());
  Measurement result;
  Verdict verdict;
  note_failure(result, [&] { verdict = replay(trace, strategy, *device, steps); });
  const MemoryInfo info = device->memory().info();
  note_peaks(result, info, verdict.statistics);
  result.overhead_bytes = info.process;  // the strategy is gone
  if (result.outcome != "ok") return result;
  const auto events = static_cast<int64_t>(trace.events.size());
  const int64_t failed_event = verdict.failed_event.value_or(0);
  result.steps = verdict.fits() ? steps : failed_event / events;
  result.fragmentation = verdict.fragmentation;
  result.driver_seconds = 1e-6 * verdict.driver_time_us;
  const double strategy_seconds = 1e-9 * verdict.ns_per_call * static_cast<double>(events);
  if (result.steps > 0) {
    result.seconds_per_step = strategy_seconds + result.driver_seconds / static_cast<double>(result.steps);
  }
  if (verdict.fits()) return result;
  result.outcome = "out_of_memory";
  result.memory = verdict.failure;
  result.error =
      failed_event == 0 ? "no room for the pool" : fmt::format("no room at event {}", failed_event);
  return result;
}

}  // namespace headroom
