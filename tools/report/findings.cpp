#include "tools/report/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "allocators/strategies/strategy_text.h"
#include "answers/play.h"
#include "base/bytes.h"
#include "tools/workload/recorded_failure.h"
#include "tools/workload/recorded_setup.h"
#include "trace/infer_marks.h"

namespace headroom::report {
namespace {

int64_t end_of_work(const Trace& trace, const Failure* failure) {
  if (failure != nullptr) return failure->event;
  int64_t end = std::ssize(trace.events);
  while (end > 0 && !trace.events[static_cast<size_t>(end - 1)].allocates) --end;
  return end;
}

std::string times(double factor) {
  if (std::abs(factor - 2) < 0.05) return "was doubled";
  if (std::abs(factor - 3) < 0.05) return "was tripled";
  const double unit = std::max(1.0, std::pow(10, std::floor(std::log10(factor)) - 1));
  return factor < 10 ? fmt::format("grew {:.2g} times", factor)
                     : fmt::format("grew {:.0f} times", std::round(factor / unit) * unit);
}

// Returns the free memory from the driver's last report, otherwise the memory of the device that the program
// did not reserve.
std::optional<int64_t> free_at_end(const History& history, std::optional<int64_t> device_bytes) {
  const std::vector<DeviceEvent>& events = history.trace.device_events;
  const auto last = std::find_if(events.rbegin(), events.rend(), [](const DeviceEvent& event) {
    return event.kind == DeviceEvent::Kind::kDevice;
  });
  if (last != events.rend()) return last->free_bytes;
  if (!device_bytes) return std::nullopt;
  return std::max<int64_t>(0, *device_bytes - history.peak_reserved_bytes.value_or(history.peak_bytes));
}

}  // namespace

Evidence::Evidence(const History& of, const Steps& with, const Failure* failed,
                   std::optional<int64_t> device_bytes)
    : history(of),
      trace(of.trace),
      steps(with.list()),
      failure(failed),
      free_bytes(free_at_end(of, device_bytes)),
      stop(end_of_work(of.trace, failed)) {
  born.resize(history.lifetimes.size());
  step_of.assign(history.lifetimes.size(), -1);
  for (size_t block = 0; block < born.size(); ++block) {
    const int64_t event = history.lifetimes[block].begin - 1;
    born[block] = with.at(event);
    const auto after = std::upper_bound(steps.begin(), steps.end(), event,
                                        [](int64_t at, const Step& step) { return at < step.begin; });
    if (after == steps.begin() || event >= stop) continue;
    const auto step = static_cast<size_t>(after - steps.begin()) - 1;
    if (event < steps[step].end) step_of[block] = static_cast<int>(step);
    last = std::max(last, step);
  }
  in_module_.assign(trace.names.size(), -1);
}

bool Evidence::in_module(size_t block) const {
  const TraceBlock& facts = trace.block_facts[block];
  const auto stack = static_cast<size_t>(facts.stack);
  if (stack == 0) return facts.module != 0;
  if (in_module_[stack] < 0) in_module_[stack] = traits_of(trace.names[stack]).calls_module ? 1 : 0;
  return in_module_[stack] == 1;
}

std::string Evidence::place(size_t block) const {
  const std::string source = history.source(block);
  if (!source.empty()) return source;
  return born[block].phase == StepPhase::kBackward ? "backward" : history.op(block);
}

bool Evidence::matters(int64_t bytes) const {
  if (bytes <= 0) return false;
  return bytes >= history.peak_bytes / 100 || (failure != nullptr && bytes >= failure->requested_bytes);
}

std::string short_size(int64_t bytes) {
  std::string text = format_bytes(bytes);
  const size_t point = text.find('.'), blank = text.find(' ');
  if (point == std::string::npos || blank == std::string::npos) return text;
  size_t end = text.find_last_not_of('0', blank - 1);
  if (end > point) ++end;
  text.erase(end, blank - end);
  return text;
}

std::optional<Finding> find_unused_graphs(const Evidence& evidence) {
  // If there is enough memory, graphs that are dropped later are not a fault.
  if (evidence.failure == nullptr || evidence.steps.empty()) return std::nullopt;
  if (evidence.last == 0 || evidence.steps[evidence.last].has_backward) return std::nullopt;
  // A step that failed may have had its backward before the failure; its predecessor tells.
  struct Kept {
    int all = 0, live = 0, most = 0;  // blocks that modules allocate
    int64_t bytes = 0, most_bytes = 0;
    size_t block = 0;
  };
  std::vector<Kept> steps(evidence.steps.size());
  for (int64_t i = 0; i < evidence.stop; ++i) {
    const TraceEvent& event = evidence.trace.events[static_cast<size_t>(i)];
    const auto block = static_cast<size_t>(event.block);
    const int step = evidence.step_of[block];
    if (step < 0 || evidence.born[block].phase != StepPhase::kForward || !evidence.in_module(block)) continue;
    if (evidence.trace.block_facts[block].category == MemoryCategory::kWorkspace) continue;
    Kept& kept = steps[static_cast<size_t>(step)];
    kept.all += event.allocates ? 1 : 0;
    kept.live += event.allocates ? 1 : -1;
    kept.bytes += event.allocates ? event.bytes : -event.bytes;
    kept.most = std::max(kept.most, kept.live);
    if (kept.bytes <= kept.most_bytes) continue;
    kept.most_bytes = kept.bytes;
    kept.block = block;
  }
  // If there are no graphs, the outputs of few layers are live at once.
  constexpr int kMinBlocks = 16;
  const auto keeps = [&](size_t step) {
    return !evidence.steps[step].has_backward && steps[step].all >= kMinBlocks &&
           steps[step].most * 2 >= steps[step].all;
  };
  const size_t step = evidence.last - 1;
  if (!keeps(step) || !evidence.matters(steps[step].most_bytes)) return std::nullopt;
  return Finding{.cause = Cause::kGraphsKept,
                 .bytes = steps[step].most_bytes,
                 .title = "Evaluation builds graphs",
                 .sentence = fmt::format("step {} holds {} of activations at {}, which no backward uses",
                                         evidence.steps[step].number, short_size(steps[step].most_bytes),
                                         evidence.place(steps[step].block)),
                 .advice = "evaluate under torch.no_grad()"};
}

std::optional<Finding> find_growing_batch(const Evidence& evidence) {
  const History& history = evidence.history;
  if (evidence.steps.empty() || evidence.last == 0) return std::nullopt;
  // The steps of a program that does not train may be the layers of one.
  if (std::ranges::none_of(evidence.steps, [](const Step& s) { return s.has_backward; })) return std::nullopt;
  // The forward allocations of each step, by site and repetition, so that steps can be compared allocation by
  // allocation.
  struct StepSizes {
    std::map<std::pair<int32_t, int>, int64_t> bytes;  // stack or op, turn -> bytes
    std::map<int32_t, int> turns;
    double inputs = 0;  // bytes; sums of all that is allocated in a step may exceed 64 bits
    int64_t peak = 0;   // peak of live activations
    std::optional<int64_t>
        at_same;  // live activations when the step made the allocation that fails in the last
  };
  std::vector<StepSizes> sizes(evidence.last + 1);
  for (size_t block = 0; block < history.lifetimes.size(); ++block) {
    const int step = evidence.step_of[block];
    if (step < 0 || evidence.born[block].phase != StepPhase::kForward) continue;
    const TraceBlock& facts = evidence.trace.block_facts[block];
    StepSizes& of = sizes[static_cast<size_t>(step)];
    const int32_t site = facts.stack != 0 ? facts.stack : -history.allocation(block).op;
    of.bytes[{site, of.turns[site]++}] = history.bytes(block);
    if (facts.category == MemoryCategory::kInputs) of.inputs += static_cast<double>(history.bytes(block));
  }
  const int32_t failed_site = evidence.failure != nullptr ? evidence.failure->stack_name : 0;
  const auto failed_turns = sizes[evidence.last].turns.find(failed_site);
  const int failed_turn = failed_turns == sizes[evidence.last].turns.end() ? 0 : failed_turns->second;
  std::vector<int> turns(sizes.size());
  int64_t live = 0;
  for (int64_t i = 0; i < evidence.stop; ++i) {
    const TraceEvent& event = evidence.trace.events[static_cast<size_t>(i)];
    const auto block = static_cast<size_t>(event.block);
    const int step = evidence.step_of[block];
    if (step < 0) continue;
    const TraceBlock& facts = evidence.trace.block_facts[block];
    const bool is_activation = facts.category == MemoryCategory::kActivations;
    if (is_activation) live += event.allocates ? event.bytes : -event.bytes;
    if (!event.allocates) continue;
    StepSizes& of = sizes[static_cast<size_t>(step)];
    of.peak = std::max(of.peak, live);
    if (failed_site != 0 && facts.stack == failed_site && evidence.born[block].phase == StepPhase::kForward &&
        turns[static_cast<size_t>(step)]++ == failed_turn)
      of.at_same = live + (is_activation ? 0 : event.bytes);
  }
  const StepSizes& last = sizes[evidence.last];
  // The largest earlier step. Compares the allocations of both, because a step that fails is incomplete.
  struct Growth {
    size_t step = 0;
    double factor = 0;
  };
  std::optional<Growth> least;
  // Two steps of the new size may fit, until the pieces of the pool or the optimizer's state leave too
  // little.
  constexpr size_t kFirstOfItsSize = 2;
  for (size_t step = 0; step < evidence.last; ++step) {
    double before = 0, now = 0, grown = 0, all = 0;
    for (const auto& [turn, bytes] : last.bytes) {
      all += static_cast<double>(bytes);
      const auto same = sizes[step].bytes.find(turn);
      if (same == sizes[step].bytes.end()) continue;
      before += static_cast<double>(same->second);
      now += static_cast<double>(bytes);
      if (bytes > same->second) grown += static_cast<double>(bytes);
    }
    // Steps that share little do different things, as training and evaluation do.
    if (before == 0 || now < all / 2) continue;
    const double factor = now / before;
    if (grown < now / 2) {  // it was as large before
      if (evidence.failure != nullptr && step + kFirstOfItsSize >= evidence.last) continue;
      return std::nullopt;
    }
    if (!least || factor <= least->factor) least = {step, factor};
  }
  if (!least || least->factor < 1.05) return std::nullopt;
  if (evidence.failure == nullptr) {
    // If there is no failure, only steady growth counts: never less, and larger more than once.
    double before = 0;
    int grew = 0;
    for (const StepSizes& step : sizes) {
      if (step.inputs < before) return std::nullopt;
      grew += before > 0 && step.inputs > before;
      before = step.inputs;
    }
    if (grew < 2) return std::nullopt;
  }
  const StepSizes& base = sizes[least->step];
  // The step may read a few numbers beside the batch.
  const bool has_inputs =
      base.inputs > 0 && last.inputs > 0 && last.inputs < 100 * least->factor * base.inputs;
  const double inputs = has_inputs ? last.inputs / base.inputs : least->factor;
  // Counts up to the request that fails, if the step before made the same request.
  const int64_t before = base.at_same.value_or(base.peak);
  const int64_t now = evidence.failure != nullptr ? live + evidence.failure->requested_bytes : last.peak;
  if (now <= before) return std::nullopt;
  return Finding{
      .cause = Cause::kGrowingBatch,
      .bytes = now - before,
      .title = "The batch grew",
      .sentence = fmt::format("the batch {} since step {}: activations grew from {} to {}{}", times(inputs),
                              evidence.steps[least->step].number, short_size(before), short_size(now),
                              evidence.failure != nullptr ? ", with the refused request" : ""),
      .advice = "keep the batch at its size before, or accumulate gradients over several of them"};
}

std::optional<Finding> find_growing_work(const Evidence& evidence) {
  constexpr size_t kFewest = 5, kPoints = 8;  // random sizes rise five times in a row once in 120
  if (evidence.failure == nullptr || evidence.last < kFewest) return std::nullopt;
  if (std::ranges::none_of(evidence.steps, [](const Step& s) { return s.has_backward; })) return std::nullopt;
  struct Largest {
    int64_t bytes = 0;
    size_t block = 0;  // the largest that has a line
    bool has_line = false;
  };
  std::vector<Largest> steps(evidence.last);  // the last one may be incomplete
  std::vector<double> sums(evidence.last);    // of what a forward pass allocates; may exceed 64 bits
  for (size_t block = 0; block < evidence.step_of.size(); ++block) {
    const auto step = static_cast<size_t>(evidence.step_of[block]);
    if (evidence.step_of[block] < 0 || step >= steps.size()) continue;
    const int64_t bytes = evidence.history.bytes(block);
    Largest& largest = steps[step];
    largest.bytes = std::max(largest.bytes, bytes);
    if (evidence.born[block].phase == StepPhase::kForward) sums[step] += static_cast<double>(bytes);
    // Tensors that backward makes have no line.
    if (evidence.born[block].phase != StepPhase::kBackward &&
        bytes > (largest.has_line ? evidence.history.bytes(largest.block) : 0)) {
      largest.block = block;
      largest.has_line = true;
    }
  }
  // Several steps in a row may be of one size.
  const auto rises = [&](const auto& size_of) {
    const size_t points = std::min(kPoints, steps.size());
    const auto at = [&](size_t point) { return size_of(point * (steps.size() - 1) / (points - 1)); };
    size_t sizes = 1;
    for (size_t point = 1; point < points; ++point) {
      if (at(point) < at(point - 1)) return false;
      sizes += at(point) > at(point - 1);
    }
    return sizes >= kFewest && at(points - 1) >= 2 * at(0);
  };
  // More rounds of a loop make more tensors, not larger ones.
  if (rises([&](size_t step) { return sums[step]; })) {
    const auto grown = static_cast<int64_t>(std::min(sums.back() - sums.front(), 1e18));
    if (evidence.matters(grown) && steps.back().bytes < 2 * steps.front().bytes)
      return Finding{
          .cause = Cause::kGrowingBatch,
          .bytes = std::min(grown, evidence.failure->live_bytes),
          .title = "Steps grow",
          .sentence = fmt::format("a forward pass makes {:.2g} times as much in step {} as in step {}",
                                  sums.back() / std::max(sums.front(), 1.0),
                                  evidence.steps[steps.size() - 1].number, evidence.steps.front().number),
          .advice = "bound what a step works on: its rounds, its rows or its length"};
  }
  if (!rises([&](size_t step) { return steps[step].bytes; })) return std::nullopt;
  const Largest &first = steps.front(), &last = steps.back();
  if (!evidence.matters(last.bytes - first.bytes)) return std::nullopt;
  return Finding{
      .cause = Cause::kGrowingBatch,
      .bytes = last.bytes - first.bytes,
      .title = "Steps grow",
      .sentence = fmt::format("the largest tensor of a step grew from {} in step {} to {} in step {}, at {}",
                              short_size(first.bytes), evidence.steps.front().number, short_size(last.bytes),
                              evidence.steps[steps.size() - 1].number, evidence.place(last.block)),
      .advice = "bound what a step works on: its rows, its length or its data grow from step to step"};
}

std::optional<Finding> find_kept_gradients(const Evidence& evidence) {
  const History& history = evidence.history;
  int64_t bytes = 0;
  int32_t since = 0;
  for (size_t block = 0; block < history.lifetimes.size(); ++block) {
    const int step = evidence.step_of[block];
    if (step < 0 || evidence.born[block].phase != StepPhase::kBackward || !evidence.stays(block)) continue;
    if (evidence.trace.block_facts[block].category != MemoryCategory::kGradients) continue;
    // Kept for more steps after an optimizer has used them; without an optimizer, for several steps.
    const auto from = static_cast<size_t>(step);
    size_t used = from;
    while (used <= evidence.last && !evidence.steps[used].has_optimizer) ++used;
    if (used > evidence.last) used = from + 2;
    // An evaluation next to the gradients of the last step is usual.
    size_t trains = used + 1;
    while (trains <= evidence.last && !evidence.steps[trains].has_backward) ++trains;
    if (trains > evidence.last) continue;
    bytes += history.bytes(block);
    if (since == 0) since = evidence.steps[from].number;
  }
  if (!evidence.matters(bytes)) return std::nullopt;
  return Finding{.cause = Cause::kGradientsKept,
                 .bytes = bytes,
                 .title = "Gradients are not freed",
                 .sentence = fmt::format(
                     "{} of gradients stay allocated since step {}, even during the next forward pass",
                     short_size(bytes), since),
                 .advice = "call optimizer.zero_grad(set_to_none=True) before forward"};
}

namespace {

StepPhase phase_of_failure(const Evidence& evidence) {
  StepPhase phase = StepPhase::kOther;
  for (const TraceMark& mark : evidence.trace.marks) {
    if (mark.position < evidence.failure->event) phase = mark.phase;
  }
  return phase;
}

}  // namespace

std::optional<Finding> find_optimizer_state(const Evidence& evidence) {
  if (evidence.failure == nullptr || evidence.steps.empty()) return std::nullopt;
  size_t first = 0;
  while (first <= evidence.last && !evidence.steps[first].has_optimizer) ++first;
  // It fails in that step, or in the next one, which must fit together with the state for the first time.
  if (first > evidence.last || evidence.last > first + 1) return std::nullopt;
  const History& history = evidence.history;
  int64_t state = 0, weights = 0, gradients = 0;
  const bool fails_in_optimizer = phase_of_failure(evidence) == StepPhase::kOptimizer;
  for (size_t block = 0; block < history.lifetimes.size(); ++block) {
    if (!evidence.stays(block)) continue;
    const MemoryCategory category = evidence.trace.block_facts[block].category;
    if (category == MemoryCategory::kOptimizerState) state += history.bytes(block);
    if (category == MemoryCategory::kWeights) weights += history.bytes(block);
    if (category == MemoryCategory::kGradients) gradients += history.bytes(block);
  }
  if (evidence.last == first && !fails_in_optimizer) return std::nullopt;
  if (state < evidence.failure->requested_bytes && !fails_in_optimizer) return std::nullopt;
  if (!evidence.matters(state)) return std::nullopt;
  const std::string when = fails_in_optimizer ? "the optimizer's first step allocates"
                                              : "since its first step the optimizer holds";
  return Finding{.cause = Cause::kOptimizerState,
                 .bytes = state,
                 .title = "Optimizer state",
                 .sentence = fmt::format("{} {} of state, beside {} of weights and {} of gradients", when,
                                         short_size(state), short_size(weights), short_size(gradients)),
                 .advice = "use an optimizer with less state (SGD, Adafactor, 8-bit Adam), or shard it"};
}

std::optional<Finding> find_optimizers_kept(const Evidence& evidence) {
  std::map<int, int64_t> by_step;
  int64_t most = 0, bytes = 0;
  for (size_t block = 0; block < evidence.history.lifetimes.size(); ++block) {
    if (evidence.born[block].phase != StepPhase::kOptimizer || !evidence.stays(block)) continue;
    const int step = evidence.step_of[block];
    if (step < 0 || step == static_cast<int>(evidence.last))
      continue;  // whose temporaries may still be there
    most = std::max(most, by_step[step] += evidence.history.bytes(block));
  }
  std::string steps;
  int sets = 0;
  for (const auto& [step, made] : by_step) {
    if (made < most / 2) continue;
    ++sets;
    bytes += made;
    if (sets <= 3)
      steps += fmt::format("{}{}", sets == 1 ? "" : ", ", evidence.steps[static_cast<size_t>(step)].number);
  }
  if (sets < 2 || !evidence.matters(bytes)) return std::nullopt;
  return Finding{
      .cause = Cause::kLeak,
      .bytes = bytes,
      .title = "Optimizers are kept",
      .sentence =
          fmt::format("{} of state that optimizers made anew in {} steps ({}{}) and that is not freed",
                      short_size(bytes), sets, steps, sets > 3 ? ", ..." : ""),
      .advice =
          "drop the old optimizer, and the schedulers and lists that refer to it, before the next is made"};
}

std::optional<Finding> find_dense_gradient(const Evidence& evidence) {
  if (evidence.failure == nullptr || evidence.steps.empty()) return std::nullopt;
  const Failure& failure = *evidence.failure;
  if (evidence.steps[evidence.last].number == 0 || failure.requested_bytes < failure.live_bytes / 4)
    return std::nullopt;
  if (phase_of_failure(evidence) != StepPhase::kBackward) return std::nullopt;
  for (size_t block = 0; block < evidence.history.lifetimes.size(); ++block) {
    if (!evidence.stays(block) || evidence.history.bytes(block) != failure.requested_bytes) continue;
    if (evidence.trace.block_facts[block].category != MemoryCategory::kWeights) continue;
    return Finding{
        .cause = Cause::kExhausted,
        .bytes = failure.requested_bytes,
        .title = "A dense gradient",
        .sentence = fmt::format("the gradient of a weight of {} is as large as the weight",
                                short_size(failure.requested_bytes)),
        .advice =
            "for a table of rows, nn.Embedding(..., sparse=True) with torch.optim.SparseAdam or SGD; "
            "otherwise a smaller weight, or requires_grad_(False)"};
  }
  return std::nullopt;
}

namespace {

// Most that the program may have reserved after the request: below its limit, and within the device.
std::optional<int64_t> available_bytes(const Trace& trace) {
  std::optional<int64_t> bytes = recorded_room_bytes(trace);
  const std::optional<RecordedLimit> limit = recorded_limit(trace);
  if (bytes && limit) bytes = std::min(*bytes, limit->below_bytes - 1);
  return bytes;
}

// The first strategy with which a replay of the program finds room for the request, as a step to take.
std::string advice_for_pieces(const Trace& trace) {
  struct Choice {
    std::string_view strategy, advice;
  };
  constexpr Choice kExpandable = {"pytorch,expandable_segments:True",
                                  "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"};
  constexpr Choice kPlug = {"mapped", "import headroom.torch; headroom.torch.use(\"mapped\")"};
  constexpr Choice kMapped = {"mapped", "use the strategy mapped"};
  const std::vector<Choice> choices =
      is_of_torch(trace) ? std::vector{kExpandable, kPlug} : std::vector{kMapped};
  const std::optional<int64_t> available = available_bytes(trace);
  if (!available) return std::string(choices.front().advice);
  const Traced program = traced(with_failed_request(trace));
  const DeviceProfile profile = setup_of(with_recorded_device({}, trace)).device;
  for (const auto& [strategy, advice] : choices) {
    const RunSetup setup = setup_of_capacity(profile, parse_strategy(std::string(strategy)), *available);
    if (play(program, setup).fits) return std::string(advice);
  }
  return "free the blocks between the pieces, or allocate them before: no other strategy finds room for it";
}

}  // namespace

std::optional<Finding> find_fragmentation(const Evidence& evidence) {
  if (evidence.failure == nullptr || evidence.failure->judgment.cause != Cause::kFragmentation) {
    return std::nullopt;
  }
  const Failure& failure = *evidence.failure;
  return Finding{.cause = Cause::kFragmentation,
                 .bytes = failure.idle_bytes.value_or(0),
                 .title = "Fragmentation",
                 .sentence = fmt::format("{} are idle in {} pieces, the largest of {}",
                                         short_size(failure.idle_bytes.value_or(0)), failure.idle_pieces,
                                         short_size(failure.largest_idle_bytes.value_or(0))),
                 .advice = advice_for_pieces(evidence.trace)};
}

}  // namespace headroom::report
