// A: the conv net of TensorFlow's tutorial on a laptop's GPU of 2 GB, under the settings that were tried
// there.

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <optional>
#include <sstream>

#include "base/bytes.h"
#include "base/errors.h"
#include "examples/models/mnist/digits.h"
#include "examples/models/mnist/trainer.h"
#include "runtime/session/start_op.h"
#include "tools/repro/runs.h"
#include "tools/repro/scenario.h"

namespace headroom::repro {
namespace {

TrainResult train_net(Runtime& runtime) {
  return train_four_steps(settings_of_tutorial(), runtime);
}

TrainResult train_net(RuntimeOptions options, const char* strategy, std::optional<int64_t> limit = {}) {
  options.strategy = strategy;
  options.limit_bytes = limit;
  Runtime runtime(options);
  return train_net(runtime);
}

Measured figures_of(const TrainResult& result) {
  Measured measured;
  measured.add("outcome", result.outcome);
  if (result.outcome != RunOutcome::kOk) {
    measured.lines = result.log;
    measured.lines.push_back(result.error);
  }
  measured.add("overhead_bytes", result.peak_process_bytes - result.peak_reserved_bytes);
  measured.add("reserved_bytes", result.peak_reserved_bytes);
  measured.add("process_bytes", result.peak_process_bytes);
  measured.add("device_bytes", result.peak_device_bytes);
  return measured;
}

// Adds a library's failure as TensorFlow's user sees it; `message` is its last line.
void add_failure(Measured& measured, const std::vector<std::string>& log, const std::string& message) {
  measured.lines = log;
  measured.lines.push_back(message);
  if (log.empty()) return;
  int64_t handles = 0;
  for (const std::string& line : log) handles += line == log.front();
  measured.add("cublas_line", log.front());
  measured.add("cublas_lines", handles);
  measured.add("next_line", log.back());
  measured.add("message", message.substr(0, message.find(" [[")));
}

// The handle is made when the pool has reserved all but 8 MiB, and something lives in it. On a real card, a
// session makes its handles while the pool is idle and releases memory, and current libraries fit into
// TensorFlow's reserve.
Measured start_blas_beside_full_pool(const Stage& stage, const char* strategy) {
  constexpr int64_t kLeft = 8 * kMiB;  // less than any handle takes, more than the pages that drivers keep
  const std::unique_ptr<Device> device = make_device(stage.card(kLaptop));
  device->initialize();
  StrategySettings settings{.name = strategy, .reserve_bytes = kLeft};
  if (settings.name == "hard-limit") settings.limit_bytes = device->memory().info().free - kLeft;
  const std::unique_ptr<Allocator> pool = make_allocator(settings, *device);
  void* live = pool->allocate(kMiB);
  Measured measured;
  try {
    with_idle_memory(*pool, [&] { device->libraries().start(Library::kBlas); });
    measured.add("outcome", "ok");
  } catch (const LibraryError& error) {
    measured.add("outcome", "library_failure");
    add_failure(measured, error.log(), error.what());
  }
  pool->deallocate(live, kMiB);
  return measured;
}

// Flashlight's smallest case of fragmentation, in a pool of at most 100 MiB: 55, that freed, 10, 55.
Measured play_flashlight(const Stage& stage, const char* strategy) {
  constexpr int64_t kMost = 100 * kMiB, kLarge = 55 * kMiB, kSmall = 10 * kMiB;
  const std::unique_ptr<Device> device = make_device(stage.card(kLaptop));
  const auto pool = make_allocator({.name = strategy, .limit_bytes = kMost}, *device);
  Measured measured;
  pool->deallocate(pool->allocate(kLarge), kLarge);
  void* small = pool->allocate(kSmall);
  note_room(measured, "outcome", [&] { pool->deallocate(pool->allocate(kLarge), kLarge); });
  pool->deallocate(small, kSmall);
  return measured;
}

}  // namespace

TrainSettings settings_of_tutorial() {
  TrainSettings settings;
  settings.optimizer = "rmsprop";
  settings.data_on = DataOn::kHost;
  settings.fused = false;
  settings.math = Math::kF32;
  return settings;
}

TrainResult train_four_steps(TrainSettings settings, Runtime& runtime) {
  const int64_t images = 4 * settings.batch;
  settings.epochs = 1;
  return train(settings, draw_digits(images, 1), draw_digits(settings.batch, 1, images), runtime);
}

Measured run_a1(const Stage& stage) {
  if (stage.fixed) return figures_of(train_net(stage.card(kLaptop), "allow-growth"));
  if (!stage.is_sim()) return start_blas_beside_full_pool(stage, "grab-all");
  const TrainResult result = train_net(stage.card(kLaptop), "grab-all");
  Measured measured;
  measured.add("outcome", result.outcome);
  add_failure(measured, result.log, "InternalError:  " + result.error);
  return measured;
}

Measured run_a3(const Stage& stage) {
  return figures_of(train_net(stage.card(kLaptop), "hard-limit", 1 * kGiB));
}

Measured run_a4(const Stage& stage) {
  Measured measured;
  if (stage.fixed) return figures_of(train_net(stage.card(kLaptop), "hard-limit", 1 * kGiB));
  if (stage.is_sim()) {
    const auto outcome_at = [&](int64_t mib) {
      return train_net(stage.card(kLaptop), "hard-limit", mib * kMiB).outcome;
    };
    const TrainResult fails = train_net(stage.card(kLaptop), "hard-limit", 1300 * kMiB);
    measured.add("high_limit", fails.outcome);
    measured.lines = fails.log;
    measured.lines.push_back(fails.error);
    measured.add("limit_of_1244_mib", outcome_at(1244));
    measured.add("limit_of_1242_mib", outcome_at(1242));
  } else {
    const Measured fails = start_blas_beside_full_pool(stage, "hard-limit");
    measured.add("high_limit", *fails.find("outcome"));
    measured.lines = fails.lines;
  }
  measured.add("low_limit", train_net(stage.card(kLaptop), "hard-limit", 64 * kMiB).outcome);
  return measured;
}

Measured run_a5(const Stage& stage) {
  if (stage.fixed) return play_flashlight(stage, "mapped");
  Measured measured = play_flashlight(stage, "allow-growth");
  measured.add("all_at_once", *play_flashlight(stage, "grab-all").find("outcome"));
  return measured;
}

Measured run_a6(const Stage& stage) {
  const Environment variable("TF_FORCE_GPU_ALLOW_GROWTH", "true");
  RuntimeOptions options = stage.card(kLaptop);
  options.strategy = "grab-all";
  OptionSet set("headroom repro A6", "");
  set.add_switch("allow-growth", "", &options.allow_growth);
  set.add_override("allow-growth", "TF_FORCE_GPU_ALLOW_GROWTH");
  const char* const words[] = {"A6"};
  std::ostringstream out;
  set.parse(static_cast<int>(std::size(words)), words, out);
  Runtime runtime(options);
  Measured measured;
  measured.add("grows", runtime.strategy().allow_growth ? "yes" : "no");
  measured.add("outcome", train_net(runtime).outcome);
  measured.lines = set.notes();
  return measured;
}

Measured run_a7(const Stage& stage) {
  Runtime runtime(stage.card(kLaptop));
  Measured measured;
  if (!stage.fixed) runtime.device();
  note_refusal(measured, ";", [&] { runtime.set_memory_growth(true); });
  return measured;
}

}  // namespace headroom::repro
