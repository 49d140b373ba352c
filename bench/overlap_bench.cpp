// Measures the share of the time of copies from the host to a GPU that overlaps with training steps: the conv
// net's step without copies, copies alone, both with a Loader, and both in sequence. Usage: overlap_bench
// --device cuda --batch 4096 --plan packed --require 90

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/errors.h"
#include "examples/models/mnist/digits.h"
#include "examples/models/mnist/training_graph.h"
#include "runtime/app/run_main.h"
#include "runtime/app/runtime.h"
#include "runtime/session/loader.h"

namespace headroom {
namespace {

struct OverlapOptions {
  RuntimeOptions runtime;
  int64_t batch = 4096, steps = 200, rounds = 9, depth = 4;
  double require = 0;
  bool json = false;
};

// Microseconds per step or batch.
struct OverlapTimes {
  double step = 0, copy = 0, loaded = 0, in_turn = 0;

  double hidden_percent() const { return std::clamp(100 * (1 - (loaded - step) / copy), 0.0, 100.0); }
};

template <typename F>
double us_of_each(int64_t times, F all) {
  const auto start = std::chrono::steady_clock::now();
  all();
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / static_cast<double>(times);
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Filled once and then reused: the benchmark times copies, not reading data.
void fill_once(const Dataset& digits, std::span<uint8_t> images, std::span<int32_t> labels,
               std::span<float> rate) {
  if (rate[0] > 0) return;
  std::copy_n(digits.images.begin(), images.size(), images.begin());
  std::copy_n(digits.labels.begin(), labels.size(), labels.begin());
  rate[0] = 1e-4f;
}

OverlapTimes measure_overlap(const OverlapOptions& options) {
  TrainSettings settings;
  settings.batch = options.batch;
  settings.data_on = DataOn::kHost;
  settings.loader_depth = options.depth;
  const TrainingGraph net(settings, {options.batch, options.batch, 1});
  const Dataset digits = draw_digits(options.batch, 1);
  Runtime runtime(options.runtime);
  Device& device = runtime.device();
  const auto kernels = std::make_shared<const Kernels>(net.graph, device, runtime.allocator());
  Variables variables(net.graph, device, runtime.allocator());
  Session session(
      net.graph,
      make_plan(net.graph, net.training_targets(), options.runtime.plan, kernels->workspace_bytes()), kernels,
      variables);
  fill_once(digits, session.input<uint8_t>(net.images), session.input<int32_t>(net.labels),
            session.input<float>(net.learning_rate));
  Loader loader(
      session,
      [&](int64_t, const Loader::Batch& batch) {
        fill_once(digits, batch.input<uint8_t>(net.images), batch.input<int32_t>(net.labels),
                  batch.input<float>(net.learning_rate));
      },
      options.depth);
  const HostBuffer host(device.memory(), session.plan().input_set_bytes);
  const auto bytes = static_cast<int64_t>(host.size());
  const Stream copies = device.streams().new_stream();
  const auto run_loader = [&] {
    loader.begin(0, options.steps);
    loader.run(options.steps);
  };
  run_loader();  // both sets are filled, and recorded where the plan is
  const std::unique_ptr<Event> there = device.streams().record_event(copies);
  std::array<std::vector<double>, 4> times;
  for (int64_t round = 0; round < options.rounds; ++round) {
    times[0].push_back(us_of_each(options.steps, [&] {
      for (int64_t i = 1; i < options.steps; ++i) session.queue_on_set(static_cast<int>(i % 2), *there);
      session.run_on_set(0, *there);
    }));
    times[1].push_back(us_of_each(options.steps, [&] {
      for (int64_t i = 0; i < options.steps; ++i) {
        device.memory().copy_to_device(session.input_set(static_cast<int>(i % 2)), host.data(), bytes,
                                       copies);
      }
      device.streams().synchronize(copies);
    }));
    times[2].push_back(us_of_each(options.steps, run_loader));
    times[3].push_back(us_of_each(options.steps, [&] {
      for (int64_t i = 0; i < options.steps; ++i) session.run();
    }));
  }
  device.streams().delete_stream(copies);
  return {median_of(times[0]), median_of(times[1]), median_of(times[2]), median_of(times[3])};
}

int run(int argc, char** argv) {
  OverlapOptions options;
  OptionSet set("overlap_bench", "Measures the share of copies to a GPU that overlaps with training steps.");
  set.add_integer("batch", "Images in one step", &options.batch, 1);
  set.add_integer("steps", "Steps of a round", &options.steps, 1);
  set.add_integer("rounds", "Rounds; prints the median", &options.rounds, 1, 1000);
  set.add_integer("loader-depth", "Number of batches that the loader holds", &options.depth, 2, 1024);
  set.add_number("require", "Exit with 5 if less than this percentage overlaps", &options.require, 0, 100);
  set.add_switch("json", "Print JSON", &options.json);
  add_runtime_options(set, options.runtime);
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  const OverlapTimes times = measure_overlap(options);
  const bool enough = times.hidden_percent() >= options.require;
  if (options.json) {
    const nlohmann::ordered_json json = {{"device", options.runtime.device},
                                         {"batch", options.batch},
                                         {"step_us", times.step},
                                         {"copy_us", times.copy},
                                         {"loaded_step_us", times.loaded},
                                         {"copy_then_step_us", times.in_turn},
                                         {"hidden_percent", times.hidden_percent()},
                                         {"ok", enough}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print(
        "{:.1f} % of the copies are hidden: {:.1f} us a step, {:.1f} us to copy its batch, {:.1f} us a step "
        "with the loader, {:.1f} us in sequence\n",
        times.hidden_percent(), times.step, times.copy, times.loaded, times.in_turn);
  }
  return enough ? kExitDone : kExitCheckFailed;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  return headroom::run_main("overlap_bench", headroom::run, argc, argv);
}
