// headroom who: who holds the memory of each GPU.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <thread>

#include "allocators/strategies/strategy_text.h"
#include "base/errors.h"
#include "base/terminal.h"
#include "base/text.h"
#include "sheet/writers.h"
#include "tools/gpu_program.h"
#include "tools/subcommands.h"
#include "tools/who/account.h"
#include "tools/who/formats.h"
#include "tools/who/guarded.h"
#include "tools/who/held_device.h"
#include "tools/who/live.h"

namespace headroom::who {
namespace {

constexpr const char* kAllGpus = "all";

struct WhoOptions {
  RuntimeOptions runtime = {.device = kAllGpus, .strategy = {}};
  std::optional<int64_t> allocate_bytes;
  bool watch = false, json = false;
  double every_seconds = 2;
  int64_t times = 0;

  bool wants_share() const { return !runtime.strategy.empty() || allocate_bytes.has_value(); }
  bool changes_device() const {
    return runtime.device_memory_bytes || runtime.others_bytes || runtime.context_bytes;
  }
};

// The devices to show: a device that is started, or the driver's list of all GPUs.
struct Watched {
  std::unique_ptr<HeldDevice> held;
  std::optional<int> ordinal;  // of the only GPU to show
  std::string problem;         // why no GPU is shown
};

Watched choose_watched(WhoOptions& options, char** words) {
  Watched watched;
  RuntimeOptions& runtime = options.runtime;
  if (runtime.device == "cpu") throw InvalidArgument("device 'cpu': who shows GPUs, real or simulated");
  watched.ordinal = cuda_ordinal(runtime.device);
  if (runtime.device == kAllGpus) {
    const GpuList list = list_gpus();
    const bool must_choose = options.wants_share() || options.changes_device();
    if (!list.gpus.empty() && !must_choose) return watched;
    if (list.gpus.empty() || !list.problem.empty()) {
      watched.problem = list.problem.empty() ? "the driver lists none" : list.problem;
      return watched;
    }
    runtime.device = "cuda:0";
  } else if (watched.ordinal && !options.wants_share() && !options.changes_device()) {
    const std::vector<std::string> visible = visible_gpus();
    if (*watched.ordinal < static_cast<int>(visible.size())) return watched;
  }
  runtime.strategy_is_given = !runtime.strategy.empty();
  if (!runtime.strategy_is_given) runtime.strategy = RuntimeOptions{}.strategy;
  if (cuda_ordinal(runtime.device)) continue_in_gpu_program(words);
  watched.held = std::make_unique<HeldDevice>(runtime, options.allocate_bytes.value_or(0));
  return watched;
}

View look_at(const Watched& watched) {
  if (watched.held != nullptr) return {{watched.held->account()}, {}, watched.held->failure()};
  View view{.accounts = {}, .problem = watched.problem, .failure = {}};
  if (!view.problem.empty()) return view;
  const GpuList list = list_gpus();
  for (const PhysicalGpu& gpu : list.gpus) {
    if (!watched.ordinal || gpu.ordinal == watched.ordinal) view.accounts.push_back(account_of(gpu, {}));
  }
  return view;
}

// Answers the question for a simulated GPU, on a machine without one.
std::string command_for_simulated(const OptionSet& set) {
  std::vector<std::string> words = set.words(OptionSet::Words::kChanged);
  words.insert(words.begin(), {"--device", "sim"});
  return command_line("headroom who", words);
}

// The command that a simulated GPU leads to, with its options; empty for a real one.
std::string next_of(const Watched& watched, const RuntimeOptions& shown) {
  if (watched.held == nullptr || cuda_ordinal(shown.device)) return {};
  RuntimeOptions options;
  OptionSet set({}, {});
  add_runtime_options(set, options);
  options = shown;
  return command_line("headroom predict", set.words(OptionSet::Words::kChanged));
}

int watch(const Watched& watched, const WhoOptions& options, const Terminal& terminal) {
  if (!options.json && terminal.is_live()) {
    const LiveView live{.look = [&] { return look_at(watched); },
                        .every_seconds = options.every_seconds,
                        .times = options.times};
    show_live(live, terminal);
    return watched.held != nullptr ? watched.held->exit_code() : kExitDone;
  }
  for (int64_t i = 1;; ++i) {
    const View view = look_at(watched);
    if (options.json) {
      fmt::print("{}\n", to_json(to_sheet(view), -1));
    } else {
      fmt::print("{:%H:%M:%S} {}", fmt::localtime(std::time(nullptr)), to_lines(view));
    }
    if (std::fflush(stdout) != 0) break;  // the reader is gone; the end of the program reports it
    if (i == options.times) break;
    std::this_thread::sleep_for(std::chrono::duration<double>(options.every_seconds));
  }
  return watched.held != nullptr ? watched.held->exit_code() : kExitDone;
}

void add_who_options(OptionSet& set, WhoOptions& options) {
  RuntimeOptions& runtime = options.runtime;
  std::vector<std::string> names = device_names();
  names.insert(names.begin(), kAllGpus);
  set.add_choice("device", "GPUs to show", &runtime.device, std::move(names), names_gpu);
  set.add_text("strategy",
               "Start the device with this memory strategy, as a program would, and include its share; a "
               "simulated GPU always starts (default: mapped)",
               &runtime.strategy);
  set.add_bytes("allocate", "Allocate this much from the strategy and hold it", &options.allocate_bytes);
  set.add_bytes("limit", "Maximum memory that the strategy reserves", &runtime.limit_bytes);
  set.add_bytes("device-memory", "Total memory of the GPU; on a real GPU, a ballast allocates the rest",
                &runtime.device_memory_bytes);
  set.add_bytes("others", "GPU memory that other processes use; on a real GPU, a ballast allocates it",
                &runtime.others_bytes);
  set.add_bytes("context", "Memory that the context of a simulated GPU uses", &runtime.context_bytes);
  set.add_switch("watch", "Refresh the table: q quits, s sorts; in a pipe, print lines until interrupted",
                 &options.watch);
  set.add_number("every", "Seconds between updates of --watch", &options.every_seconds, 0.1, 86400);
  set.add_integer("times", "Updates of --watch; 0: no end", &options.times, 0);
  set.add_switch("json", "Print JSON, sizes in bytes; with --watch, one line per update", &options.json);
  set.set_examples(
      "  headroom who                                           every GPU of the machine and its processes\n"
      "  headroom who --watch --every 5\n"
      "  headroom who --device sim --strategy grab-all          what a strategy leaves of a 2 GB laptop\n"
      "  headroom who --device cuda --allocate 1GiB --watch     holds 1 GiB; look from another terminal\n"
      "  headroom who --json | jq '.devices[].unaccounted_bytes'\n");
}

}  // namespace

int run_who(int argc, char** argv) {
  WhoOptions options;
  OptionSet set(
      "headroom who",
      "Shows which processes use the memory of each GPU: total = free + ours + others + unaccounted.");
  add_who_options(set, options);
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  // Runs even if no GPU is found: the next command has the strategy as well.
  if (!options.runtime.strategy.empty()) parse_strategy(options.runtime.strategy);
  const Watched watched = choose_watched(options, argv);
  const Terminal terminal = set.terminal();
  if (options.watch && watched.problem.empty()) return watch(watched, options, terminal);
  const View view = look_at(watched);
  const std::string next =
      watched.problem.empty() ? next_of(watched, options.runtime) : command_for_simulated(set);
  print(to_sheet(view, next), options.json, terminal);
  if (!options.json && watched.held == nullptr) fmt::print("{}", guarded_text(terminal));
  if (!watched.problem.empty()) return kExitLibraryFailure;
  return watched.held != nullptr ? watched.held->exit_code() : kExitDone;
}

}  // namespace headroom::who
