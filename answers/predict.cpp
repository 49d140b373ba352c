#include "answers/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "answers/player.h"
#include "base/bytes.h"
#include "base/edge.h"
#include "base/errors.h"

namespace headroom {
namespace {

constexpr int64_t kMostTimes = 64;  // times the memory that there is, or that is needed at least
constexpr int64_t kLargestTotalBytes = int64_t{1} << 61;  // sums of it do not overflow

RunSetup with_less(RunSetup setup, int64_t bytes) {
  for (PhysicalGpu& gpu : setup.gpus.physical) gpu.used_bytes += bytes;
  if (setup.gpus.physical.empty()) setup.device.others_bytes += bytes;
  return setup;
}

// The least total with which variables and live results have room on every GPU, and what is beside them.
int64_t least_total_of_live(const Traced& program, const RunSetup& setup) {
  if (!program.starts_libraries) {
    return others_bytes(setup) + setup.device.overhead_bytes() + least_peak_bytes(program.front());
  }
  int64_t least = 0;
  for (const TracedDevice& device : program.devices) {
    const PhysicalGpu* const gpu = gpu_of(setup, device.name);
    if (gpu == nullptr) continue;
    const int64_t bytes = device.trace->peak_bytes + setup.device.kept_context_bytes();
    least = std::max(least, gpu->used_bytes + std::max(bytes, setup.device.context_bytes));
  }
  return least;
}

// The largest device to try.
int64_t largest_total_bytes(const RunSetup& setup, int64_t least) {
  const int64_t most = std::max(setup.device.total_bytes, least);
  return most > kLargestTotalBytes / kMostTimes ? std::max(most, kLargestTotalBytes) : kMostTimes * most;
}

SearchWork work_of(const Traced& program, const PlayOptions& options) {
  int64_t events = 0;
  for (const TracedDevice& device : program.devices) events += std::ssize(device.trace->events);
  if (!program.steps.empty()) events *= 2;  // each is played twice
  return {.each = std::max<int64_t>(1, options.passes * events)};
}

// Finds the least total of the GPUs next to the setup's.
class TotalSearch {
 public:
  // All must outlive this.
  TotalSearch(const Traced& program, const RunSetup& setup, const PlayOptions& options = {})
      : program_(program), setup_(setup), options_(options), work_(work_of(program, options)) {}

  // Adds the result of a play with the setup's total.
  void add(const Prediction& played) { note(played, setup_.device.total_bytes); }
  std::optional<int64_t> find() {
    const int64_t total = setup_.device.total_bytes, least = least_total_of_live(program_, setup_);
    EdgeSearch search(
        work_, [&](int64_t total_bytes) { return attempt(total_bytes); }, setup_.device.granularity_bytes);
    // The samples of a program of ours reach down to nothing, as its regions grow with what there is.
    const int64_t lowest = program_.starts_libraries ? total % setup_.device.granularity_bytes : least;
    const std::optional<Edge> edge = search.next_to(total, lowest, largest_total_bytes(setup_, least));
    if (!edge || program_.starts_libraries) return edge ? std::optional(edge->fitting) : std::nullopt;
    // Returns the same pages on a device without the odd bytes, whatever total the search began with.
    const int64_t process = others_bytes(setup_) + setup_.device.overhead_bytes();
    const int64_t whole = edge->fitting - (edge->fitting - process) % setup_.device.granularity_bytes;
    return kept_above(search, search.fits(whole) ? whole : edge->fitting, process);
  }
  int64_t plays() const { return plays_; }

 private:
  // Where a play frees segments and gets them again, a program may fit by chance, and not with a little more:
  // returns the least total from `fitting` on with which it fits, and with samples of up to a fiftieth more.
  int64_t kept_above(EdgeSearch& search, int64_t fitting, int64_t process_bytes) {
    constexpr int64_t kShare = 50, kSamples = 5;
    const int64_t page = setup_.device.granularity_bytes;
    for (int64_t failing = 0; !work_.is_spent();) {
      const int64_t pages = (fitting - process_bytes) / kShare / page;
      for (int64_t i = std::min(kSamples, pages); i > 0 && failing < fitting; --i) {
        const int64_t at = fitting + pages * i / std::min(kSamples, pages) * page;
        if (!search.fits(at)) failing = at;
      }
      if (failing < fitting) break;
      const auto edge = search.above(failing, largest_total_bytes(setup_, failing));
      if (!edge) break;
      fitting = edge->fitting;
    }
    return fitting;
  }

  EdgeTrial attempt(int64_t total_bytes) {
    const RunSetup setup = with_total(setup_, total_bytes);
    if (total_bytes <= known_total_ && would_play_alike(program_, known_, setup)) {
      return {.fits = true, .guess = known_.used_bytes};
    }
    if (is_too_large(program_, setup)) return {.work = 1};
    try {
      Prediction played = play(program_, setup, options_);
      ++plays_;
      EdgeTrial trial{.fits = played.fits};
      if (played.fits) trial.guess = played.used_bytes;
      note(std::move(played), total_bytes);
      return trial;
    } catch (const InvalidArgument&) {
      return {};  // a limit above the device's total, or on a process that needs more for its libraries
    }
  }
  void note(Prediction played, int64_t total_bytes) {
    // A strategy of pages makes calls for each of them, however few the events are.
    work_.each = std::max(work_.each, played.work);
    work_.is_long = work_.is_long || work_.each > kMaxSearchedEvents / SearchWork::kTrials;
    if (!played.fits || played.enough_total == 0) return;
    known_ = std::move(played);
    known_total_ = total_bytes;
  }

  const Traced& program_;
  const RunSetup& setup_;
  const PlayOptions options_;
  SearchWork work_;
  Prediction known_;  // the last one that says how others go
  int64_t known_total_ = 0, plays_ = 0;
};

// The lowest limit of a pool on any device, if there is one.
std::optional<int64_t> lowest_limit(const RunSetup& setup) {
  std::optional<int64_t> lowest = setup.options.strategy_settings().limit_bytes;
  for (const LogicalGpu& gpu : setup.gpus.logical) {
    if (gpu.limit_bytes) lowest = std::min(*gpu.limit_bytes, lowest.value_or(*gpu.limit_bytes));
  }
  return lowest;
}

// The setup with all limits `bytes` higher.
RunSetup with_higher_limits(RunSetup setup, int64_t bytes) {
  for (LogicalGpu& gpu : setup.gpus.logical) {
    if (gpu.limit_bytes) *gpu.limit_bytes += bytes;
  }
  if (const std::optional<int64_t> limit = setup.options.strategy_settings().limit_bytes) {
    setup.options = with_limit(setup.options, *limit + bytes).value_or(setup.options);
  }
  return setup;
}

// Returns how much higher all limits must be on devices that are large enough; negative: lower.
std::optional<int64_t> least_raise(const Traced& program, const RunSetup& setup, int64_t& plays) {
  const std::optional<int64_t> lowest = lowest_limit(setup);
  if (!lowest) return std::nullopt;
  const int64_t page = setup.device.granularity_bytes;
  const RunSetup roomy = with_total(setup, largest_total_bytes(setup, least_total_of_live(program, setup)));
  const auto attempt = [&](int64_t limit) -> EdgeTrial {
    if (limit <= 0) return {};
    try {
      ++plays;
      return {play(program, with_higher_limits(roomy, limit - *lowest)).fits};
    } catch (const InvalidArgument&) {
      return {};
    }
  };
  SearchWork work = work_of(program, {});
  const std::optional<Edge> edge =
      EdgeSearch(work, attempt, page).next_to(*lowest, *lowest % page, roomy.device.total_bytes);
  return edge ? std::optional(edge->fitting - *lowest) : std::nullopt;
}

void note_peaks(Prediction& prediction) {
  const std::vector<PlayedDevice>& devices = prediction.devices;
  const auto fullest = std::ranges::max_element(devices, [](const PlayedDevice& a, const PlayedDevice& b) {
    return std::pair(a.process_bytes, a.statistics.reserved.peak) <
           std::pair(b.process_bytes, b.statistics.reserved.peak);
  });
  prediction.fullest = static_cast<size_t>(fullest - devices.begin());
  prediction.total_bytes = fullest->process_bytes;
  prediction.context_bytes = fullest->context_bytes;
  prediction.library_bytes = fullest->library_bytes;
  // The highest of any device, as a run reports them.
  for (const PlayedDevice& device : devices) {
    const Statistics& statistics = device.statistics;
    prediction.reserved_bytes = std::max(prediction.reserved_bytes, statistics.reserved.peak);
    prediction.allocated_bytes = std::max(prediction.allocated_bytes, statistics.allocated.peak);
    prediction.requested_bytes = std::max(prediction.requested_bytes, statistics.requested.peak);
  }
}

// The prediction without the margin, of a setup that is prepared.
Prediction predict_once(const Traced& program, const RunSetup& setup) {
  Prediction prediction = play(program, setup);
  if (!program.starts_libraries && prediction.facts)
    prediction.reason = out_of_memory_message(*prediction.facts);
  if (prediction.fits) {
    note_peaks(prediction);
  } else {
    prediction.devices.clear();
    prediction.total_is_most = false;
  }
  return prediction;
}

// The devices on the GPU of the fullest one, itself included.
std::vector<size_t> sharing_gpu(const Traced& program, const RunSetup& setup, const Prediction& prediction) {
  if (program.devices.size() == 1) return {0};
  const PhysicalGpu* const gpu = gpu_of(setup, program.devices[prediction.fullest].name);
  std::vector<size_t> sharing;
  for (size_t i = 0; i < program.devices.size(); ++i) {
    if (gpu_of(setup, program.devices[i].name) == gpu) sharing.push_back(i);
  }
  return sharing;
}

bool has_limit_of_its_own(const StrategySettings& settings) {
  return settings.limit_bytes || settings.memory_fraction;
}

// A limit that binds on a program that starts no library is as good as a smaller device.
RunSetup without_limit(RunSetup setup) {
  const int64_t capacity = capacity_bytes(setup);
  const int64_t withheld = capacity - std::min(capacity, setup.strategy->limit_bytes.value_or(capacity));
  setup.strategy->limit_bytes.reset();
  return with_less(std::move(setup), withheld);
}

}  // namespace

RunSetup setup_to_fit(const RuntimeOptions& options) {
  RunSetup setup = setup_of(options);
  if (setup.gpus.physical.empty()) {
    throw InvalidArgument(fmt::format(
        "device '{}' has no memory of its own to fit into: name a GPU, such as sim:h200", options.device));
  }
  return setup;
}

RunSetup with_total(RunSetup setup, int64_t total_bytes) {
  setup.device.total_bytes = total_bytes;
  std::optional<int64_t>& budget = setup.options.memory_bytes;
  if (budget) budget = std::min(*budget, free_bytes(setup));
  return setup;
}

RunSetup with_budget(RunSetup setup) {
  const std::optional<int64_t> budget = std::exchange(setup.options.memory_bytes, std::nullopt);
  if (!budget) return setup;
  setup.device.total_bytes = std::min(setup.device.total_bytes, *budget + others_bytes(setup));
  setup.options.limit_bytes.reset();  // the device keeps to it, so that the minimum can be found
  setup.options.limit_scope = LimitScope::kPool;
  return setup;
}

RunSetup prepared(const Traced& program, RunSetup setup) {
  if (program.starts_libraries) return setup;
  setup = with_libraries(program, std::move(setup));
  StrategySettings strategy = strategy_beside_process(setup);
  // An option of more than there is does not bind, and a strategy that needs a limit gets all there is.
  const bool is_option = !setup.strategy, has_limit = has_limit_of_its_own(strategy_of(setup));
  const bool binds = !is_option || strategy.limit_bytes.value_or(0) < capacity_bytes(setup);
  if (!has_limit || !binds) strategy.limit_bytes.reset();
  strategy.record_path.clear();
  setup.strategy = prepared_for(program.front(), std::move(strategy));
  return setup;
}

bool is_too_large(const Traced& program, const RunSetup& setup, int64_t margin_bytes) {
  return least_total_of_live(program, setup) > setup.device.total_bytes - margin_bytes;
}

Prediction outcome(const Traced& program, const RunSetup& asked) {
  return predict_once(program, prepared(program, asked));
}

Prediction predict(const Traced& program, const RunSetup& asked) {
  RunSetup setup = prepared(program, asked);
  Prediction prediction = predict_once(program, setup);
  if (program.refusal) {
    prediction.margin_bytes = -prediction.lacking_bytes;
    return prediction;
  }
  std::optional<int64_t> raise;
  if (program.starts_libraries) {
    raise = least_raise(program, setup, prediction.plays);
  } else {
    setup = without_limit(std::move(setup));
  }
  TotalSearch totals(program, setup);
  totals.add(prediction);
  const std::optional<int64_t> least = totals.find();
  prediction.plays += totals.plays();
  if (least) prediction.margin_bytes = setup.device.total_bytes - *least;
  if (raise && (prediction.fits || !least)) {
    const bool binds = !least || -*raise < *prediction.margin_bytes;
    if (binds) prediction.margin_bytes = -*raise;
  }
  if (prediction.fits) return prediction;
  if (!least && !raise) {
    if (program.starts_libraries) prediction.margin_bytes = -prediction.lacking_bytes;
    return prediction;
  }
  const RunSetup raised = least ? setup : with_higher_limits(setup, *raise);
  const int64_t total = least.value_or(largest_total_bytes(setup, least_total_of_live(program, setup)));
  ++prediction.plays;
  const Prediction enough = play(program, with_total(raised, total));
  prediction.devices = enough.devices;
  prediction.total_is_most = enough.total_is_most;
  note_peaks(prediction);
  return prediction;
}

bool fits(const Traced& program, const RunSetup& asked, int64_t margin_bytes) {
  const RunSetup setup = prepared(program, with_less(asked, margin_bytes));
  return !is_too_large(program, setup) && play(program, setup).fits;
}

std::optional<int64_t> least_total_bytes(const Traced& program, const RunSetup& asked,
                                         const PlayOptions& options) {
  const RunSetup setup = prepared(program, asked);
  if (program.refusal) return std::nullopt;
  return TotalSearch(program, setup, options).find();
}

LiveSet live_at_peak(const Traced& program, const RunSetup& setup, const Prediction& prediction) {
  LiveSet live = largest_live_set(*program.devices[prediction.fullest].trace);
  for (const size_t other : sharing_gpu(program, setup, prediction)) {
    if (other == prediction.fullest) continue;
    const LiveSet beside = largest_live_set(*program.devices[other].trace);
    for (size_t i = 0; i < beside.by_category.size(); ++i) live.by_category[i] += beside.by_category[i];
  }
  return live;
}

MemoryShares parts_of(const Traced& program, const RunSetup& setup, const Prediction& prediction,
                      const LiveSet& live) {
  MemoryShares parts;
  int64_t rest = prediction.total_bytes;
  const auto add = [&](std::string_view name, int64_t bytes) {
    parts.push_back({std::string(name), bytes});
    rest -= bytes;
  };
  int64_t requested = 0, allocated = 0, named = 0;
  for (const size_t device : sharing_gpu(program, setup, prediction)) {
    if (device >= prediction.devices.size()) continue;
    requested += prediction.devices[device].statistics.requested.peak;
    allocated += prediction.devices[device].statistics.allocated.peak;
  }
  for (size_t i = 1; i <= live.by_category.size(); ++i) {
    const size_t category = i % live.by_category.size();  // "other" comes last
    if (live.by_category[category] == 0) continue;
    add(kMemoryCategoryNames[category], live.by_category[category]);
    named += live.by_category[category];
  }
  if (requested > named) add("idle in arenas", requested - named);
  add("rounding", allocated - requested);
  const auto cached = static_cast<std::ptrdiff_t>(parts.size());
  add("context", prediction.context_bytes);
  add("libraries", prediction.library_bytes);
  // The peak of a process may be its new context.
  if (prediction.total_bytes == setup.device.context_bytes)
    add("thread stacks", prediction.total_bytes - prediction.context_bytes - prediction.library_bytes -
                             prediction.reserved_bytes);
  parts.insert(parts.begin() + cached, {"cached", rest});
  return parts;
}

}  // namespace headroom
