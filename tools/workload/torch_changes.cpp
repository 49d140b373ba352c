#include "tools/workload/torch_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

#include "allocators/strategies/strategy_text.h"
#include "allocators/strategies/torch_settings.h"
#include "answers/predict.h"
#include "base/bytes.h"
#include "base/text.h"
#include "tools/workload/recorded_failure.h"
#include "tools/workload/recorded_setup.h"
#include "tools/workload/torch_lines.h"

namespace headroom {
namespace {

std::string with_reason(const std::string& change, std::string_view reason) {
  return fmt::format("{}  # {}", change, reason);
}

constexpr std::string_view kExpandable = "expandable_segments:True";
constexpr int kMaxTraced = 4;  // again with checkpoints, some seconds each

// Returns true if idle segments stay with the strategy until it runs out.
bool is_cached(const std::string& strategy) {
  return parse_strategy(strategy).name == "caching" && strategy.find("expandable") == std::string::npos;
}

// Returns the marks at which a program would call torch.cuda.empty_cache(), see with_empty_cache.
std::vector<TraceMark> empty_marks(const Trace& trace, StepPhase phase) {
  std::vector<TraceMark> marks;
  int32_t step = 0;
  for (const TraceMark& mark : trace.marks) {
    if (phase == StepPhase::kSetup) {
      if (mark.step != 1) continue;
      return {mark};
    }
    if (mark.phase != phase || mark.step == 0) continue;
    // A step has one beginning, however often it calls backward.
    if (phase == StepPhase::kForward && mark.step == step) continue;
    step = mark.step;
    marks.push_back(mark);
  }
  return marks;
}

// The user's line that the program comes to first where the phase begins: "train.py:14".
std::string first_line_after(const Trace& trace, StepPhase phase) {
  const std::vector<TraceMark> marks = empty_marks(trace, phase);
  if (marks.empty()) return {};
  for (auto at = static_cast<size_t>(marks.front().position); at < trace.events.size(); ++at) {
    if (!trace.events[at].allocates) continue;
    const int32_t source = trace.block_facts[static_cast<size_t>(trace.events[at].block)].source;
    if (source != 0) return printable(trace.names[static_cast<size_t>(source)]);
  }
  return {};
}

}  // namespace

std::optional<std::string> with_expandable_segments(const std::string& strategy) {
  if (!is_cached(strategy)) return std::nullopt;
  const bool is_torch = strategy.starts_with(kTorchStrategy);
  const std::string settings = is_torch && strategy.size() > kTorchStrategy.size()
                                   ? strategy.substr(kTorchStrategy.size() + 1) + ","
                                   : "";
  return fmt::format("{},{}{}", kTorchStrategy, settings.substr(0, settings.find('+')), kExpandable);
}

Trace with_empty_cache(const Trace& trace, StepPhase phase) {
  Trace changed = trace;
  for (const TraceMark& mark : empty_marks(trace, phase)) {
    DeviceEvent event{.kind = DeviceEvent::Kind::kEmptyCache};
    event.position = mark.position;
    event.time_ns = mark.time_ns;
    changed.device_events.push_back(event);
  }
  std::ranges::stable_sort(changed.device_events, [](const DeviceEvent& a, const DeviceEvent& b) {
    return a.position < b.position;
  });
  return changed;
}

namespace {

std::optional<std::string> with_growing_segments(const Trace& trace, const RunSetup& setup) {
  const std::optional<std::string> strategy = with_expandable_segments(setup.options.strategy);
  if (!strategy) return std::nullopt;
  RunSetup changed = setup;
  changed.options.strategy = *strategy;
  if (!fits(traced_here(trace), changed)) return std::nullopt;
  return with_reason(fmt::format("PYTORCH_CUDA_ALLOC_CONF={}", strategy->substr(kTorchStrategy.size() + 1)),
                     "segments grow instead of adding up");
}

// Helps if expandable segments do not: they release pages of 20 MiB, and only whole ones.
std::optional<std::string> with_mapped(const Trace& trace, const RunSetup& setup) {
  if (!is_cached(setup.options.strategy) || with_growing_segments(trace, setup)) return std::nullopt;
  RunSetup changed = setup;
  changed.options.strategy = "mapped";
  if (!fits(traced_here(trace), changed)) return std::nullopt;
  return with_reason("import headroom.torch; headroom.torch.use(\"mapped\")",
                     "in place of PyTorch's allocator: idle memory moves to where it is needed");
}

// Returns the bytes that the strategy could give back to the driver after that many events, in segments
// without a live block.
int64_t releasable_bytes(const Trace& trace, const RunSetup& setup, int64_t events) {
  int64_t bytes = 0;
  const RunSetup ready = prepared(traced_here(trace), setup);
  const Prediction played = play(traced_here(trace), ready, {.snapshot_after = events});
  if (!played.snapshot) return 0;
  for (const SnapshotSegment& segment : played.snapshot->segments) {
    const bool is_idle = std::ranges::all_of(
        segment.blocks, [](const auto& block) { return block.state == SnapshotBlock::State::kFree; });
    if (is_idle) bytes += segment.bytes;
  }
  return bytes;
}

// Once is tried before once a step, and the beginning of a step before its middle.
std::optional<std::string> with_emptied_cache(const Trace& trace, const RunSetup& setup) {
  if (!is_cached(setup.options.strategy)) return std::nullopt;
  constexpr StepPhase kPhases[] = {StepPhase::kSetup, StepPhase::kForward, StepPhase::kOptimizer,
                                   StepPhase::kBackward};
  for (const StepPhase phase : kPhases) {
    const Trace emptied = with_empty_cache(trace, phase);
    if (emptied.device_events.size() == trace.device_events.size()) continue;
    if (!fits(traced_here(emptied), setup)) continue;
    // The last ones before the failure: a long training has thousands.
    constexpr size_t kLooks = 3;
    std::vector<TraceMark> marks = empty_marks(trace, phase);
    if (const std::optional<int64_t> failed = outcome(traced_here(trace), setup).failed_event) {
      std::erase_if(marks, [&](const TraceMark& mark) { return mark.position >= *failed; });
    }
    int64_t freed = 0;
    for (size_t i = marks.size() - std::min(marks.size(), kLooks); i < marks.size(); ++i) {
      freed = std::max(freed, releasable_bytes(emptied, setup, marks[i].position));
    }
    const std::string line = first_line_after(trace, phase);
    return with_reason(
        fmt::format("torch.cuda.empty_cache() {}{}", line.empty() ? "" : fmt::format("before {}, ", line),
                    phase == StepPhase::kSetup
                        ? "once, before the first step"
                        : fmt::format("at the beginning of each {}", phase == StepPhase::kForward ? "step"
                                                                     : phase == StepPhase::kBackward
                                                                         ? "backward pass"
                                                                         : "optimizer step")),
        fmt::format("gives {} of idle segments back there", format_bytes(freed)));
  }
  return std::nullopt;
}

// Tries the fewest modules along their order. For a program, a new trace decides.
std::optional<std::string> with_fewest_checkpoints(const Trace& trace, const RunSetup& setup,
                                                   const TraceCheckpoints& trace_again) {
  const std::vector<std::string> order = checkpoint_order(trace, recorded_modules(trace));
  const auto modules_of_first = [&](int64_t count) {
    return first_checkpoints(order, static_cast<size_t>(count));
  };
  const auto is_enough = [&](int64_t count) {
    return fits(traced_here(with_checkpoints(trace, modules_of_first(count))), setup);
  };
  const int64_t all = std::ssize(order);
  if (all == 0 || !is_enough(all)) return std::nullopt;
  int64_t count = edge_between(all, 0, is_enough);
  for (int traced = 1;; ++traced) {
    const std::vector<std::string> modules = modules_of_first(count);
    const std::optional<Trace> recomputed =
        trace_again ? trace_again(modules) : std::optional(with_checkpoints(trace, modules));
    if (recomputed && (!trace_again || fits(traced_here(*recomputed), setup))) {
      return with_reason(
          fmt::format("checkpoint module{} {}", modules.size() == 1 ? "" : "s", modules_text(modules)),
          fmt::format("torch.utils.checkpoint runs {} again in the backward pass: the peak is {} lower{}",
                      modules.size() == 1 ? "it" : "them",
                      format_bytes(trace.peak_bytes - recomputed->peak_bytes),
                      trace_again ? "" : ", as estimated"));
    }
    if (count == all || traced == kMaxTraced) return std::nullopt;
    count += (all - count + 1) / 2;
  }
}

}  // namespace

// Each with the strategy as it is, so that one change is enough.
std::vector<std::string> find_torch_changes(const Trace& trace, const RunSetup& setup,
                                            const TraceCheckpoints& trace_again) {
  std::vector<std::string> changes;
  const auto add = [&](std::optional<std::string> change) {
    if (change) changes.push_back(std::move(*change));
  };
  for (const auto& find : {with_growing_segments, with_mapped, with_emptied_cache}) add(find(trace, setup));
  add(with_fewest_checkpoints(trace, setup, trace_again));
  return changes;
}

std::vector<std::string> find_torch_changes(const Trace& trace, int64_t event, int64_t requested_bytes,
                                            int64_t capacity_bytes) {
  if (!is_of_torch(trace) || event > std::ssize(trace.events) || requested_bytes <= 0 ||
      requested_bytes > Trace::kLargestBlockBytes || capacity_bytes <= 0) {
    return {};
  }
  RuntimeOptions options;
  options.device = "sim:h200";
  options.strategy = recorded_strategy(trace);
  options.others_bytes = 0;
  RunSetup setup = setup_of(options);
  setup.device.total_bytes = capacity_bytes + setup.device.overhead_bytes();
  const Trace played = until_request(trace, event, requested_bytes);
  if (fits(traced_here(played), setup)) return {};
  return find_torch_changes(played, setup);
}

}  // namespace headroom
