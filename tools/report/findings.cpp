#include "tools/report/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "allocators/trace/infer_marks.h"
#include "allocators/trace/stack.h"
#include "runtime/base/bytes.h"

namespace headroom::report {
namespace {

// Kept blocks of one allocation site.
struct Site {
  size_t block = 0;  // one of them
  int64_t bytes = 0;
  std::map<int, int64_t> by_step;  // position of the step -> bytes that stay
  std::set<int> allocates_in;      // positions of the steps in which the site allocates at all
  bool frees_late = false;         // some of its blocks outlived a whole step and were freed
  int64_t never_freed_at_last = 0;  // bytes of the last step, also not after the last allocation
};

int64_t end_of_work(const Trace& trace, const Failure* failure) {
  if (failure != nullptr) return failure->event;
  int64_t end = std::ssize(trace.events);
  while (end > 0 && !trace.events[static_cast<size_t>(end - 1)].allocates) --end;
  return end;
}

// A tensor of one number: a loss.
constexpr int64_t kScalarBytes = 8;

std::string times(double factor) {
  if (std::abs(factor - 2) < 0.05) return "was doubled";
  if (std::abs(factor - 3) < 0.05) return "was tripled";
  return fmt::format("grew {:.2g} times", factor);
}

// Whether a site of a short history has kept blocks of every step that it ran in, the last one included, for
// three steps or more. After a failure nobody knows what the rest of the step would have freed.
bool keeps_all(const Evidence& evidence, const Site& site) {
  constexpr size_t kShort = 10, kEnough = 3;
  if (evidence.failure != nullptr || evidence.last >= kShort) return false;
  // What the last step frees only after its last allocation is not kept.
  const int64_t each = site.bytes / static_cast<int64_t>(std::max<size_t>(site.by_step.size(), 1));
  if (site.frees_late || site.never_freed_at_last < each / 2) return false;
  const size_t steps = site.by_step.size();
  return steps >= kEnough && steps == site.allocates_in.size() &&
         site.by_step.rbegin()->first == static_cast<int>(evidence.last) &&
         site.by_step.begin()->first + static_cast<int>(steps) == static_cast<int>(evidence.last) + 1;
}

// Whether a site keeps blocks of step after step, up to the end.
bool keeps_on(const Evidence& evidence, const Site& site) {
  const std::map<int, int64_t>& steps = site.by_step;
  const size_t enough = evidence.last <= 4 ? 2 : 3;
  if (steps.size() < enough) return false;
  const int first = steps.begin()->first, latest = steps.rbegin()->first;
  // A queue of limited length frees what came before, and a cache stops to grow.
  if (site.frees_late && first > *site.allocates_in.begin()) return false;
  const double period = static_cast<double>(latest - first) / static_cast<double>(steps.size() - 1);
  return static_cast<double>(static_cast<int>(evidence.last) - 2 - latest) < period;
}

void forget_after(Site& site, int step) {
  for (auto at = site.by_step.upper_bound(step); at != site.by_step.end(); at = site.by_step.erase(at)) {
    site.bytes -= at->second;
  }
}

// Which sites leave blocks behind in step after step.
std::vector<Site> keeping_sites(const Evidence& evidence) {
  const History& history = evidence.history;
  // By stack, or by names where there is none, and by category.
  std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, Site> sites;
  for (size_t block = 0; block < history.lifetimes.size(); ++block) {
    const int step = evidence.step_of[block];
    if (step < 0 || history.bytes(block) == 0) continue;
    const TraceBlock& facts = evidence.trace.block_facts[block];
    if (facts.category == MemoryCategory::kLibrary) continue;  // a handle's workspace, made in the first step
    const TraceEvent& event = history.allocation(block);
    const auto key = facts.stack != 0 ? std::tuple(facts.stack, 0, 0, 0)
                                      : std::tuple(0, event.op, event.tag, facts.source);
    Site& site = sites[key];
    site.allocates_in.insert(step);
    if (evidence.stays(block)) {
      site.block = block;
      site.bytes += history.bytes(block);
      site.by_step[step] += history.bytes(block);
      const bool freed_at_end = history.lifetimes[block].end <= std::ssize(evidence.trace.events);
      if (step == static_cast<int>(evidence.last) && !freed_at_end) site.never_freed_at_last += history.bytes(block);
    } else if (history.lifetimes[block].end <= evidence.stop) {
      const size_t next = static_cast<size_t>(step) + 2;
      site.frees_late |=
          next < evidence.steps.size() && history.lifetimes[block].end > evidence.steps[next].begin;
    }
  }
  std::vector<Site> kept;
  for (auto& [key, site] : sites) {
    const bool keeps = keeps_all(evidence, site);
    // Results of the step before the last may still be in use, and those of the last always are.
    forget_after(site, static_cast<int>(evidence.last) - (keeps ? 1 : 2));
    if (keeps || keeps_on(evidence, site)) kept.push_back(std::move(site));
  }
  return kept;
}

// A site of the line that keeps most; of a graph, which also keeps the batch, a line that computes.
const Site& largest_site(const Evidence& evidence, const std::vector<Site>& sites, bool computes) {
  std::map<std::string, std::pair<int64_t, const Site*>> places;
  for (const bool only_computed : {computes, false}) {
    for (const Site& site : sites) {
      const bool is_input = evidence.trace.block_facts[site.block].category == MemoryCategory::kInputs;
      if (only_computed && is_input) continue;
      auto& [bytes, of] = places[evidence.place(site.block)];
      bytes += site.bytes;
      of = &site;
    }
    if (!places.empty()) break;
  }
  return *std::max_element(places.begin(), places.end(), [](const auto& a, const auto& b) {
            return a.second.first < b.second.first;
          })->second.second;
}

// Whether a step keeps what a graph needs of few calls of modules: the largest of its inputs, which a result
// does not hold, and something that was computed.
bool keeps_inputs_and_results(const Evidence& evidence, const std::map<int, int64_t>& steps) {
  struct Kept {
    int64_t largest_input = 0;
    bool input = false, result = false;
  };
  std::map<int, Kept> of;
  for (size_t block = 0; block < evidence.history.lifetimes.size(); ++block) {
    const int step = evidence.step_of[block];
    if (evidence.born[block].phase != StepPhase::kForward || !steps.contains(step)) continue;
    const int64_t bytes = evidence.history.bytes(block);
    const MemoryCategory category = evidence.trace.block_facts[block].category;
    Kept& kept = of[step];
    if (category != MemoryCategory::kInputs) {
      kept.result |= category != MemoryCategory::kLibrary && bytes > kScalarBytes && evidence.stays(block);
    } else if (bytes > kept.largest_input) {
      kept.largest_input = bytes;
      kept.input = evidence.stays(block);
    }
  }
  return of.size() == steps.size() && std::all_of(of.begin(), of.end(), [](const auto& kept) {
           return kept.second.input && kept.second.result;
         });
}

// Whether the steps keep much of what modules allocate in them, as graphs for backward do. Kept results alone
// are few blocks.
bool keeps_graphs(const Evidence& evidence, const std::map<int, int64_t>& steps) {
  int64_t all = 0, kept = 0;
  for (size_t block = 0; block < evidence.history.lifetimes.size(); ++block) {
    if (evidence.born[block].phase != StepPhase::kForward || !steps.contains(evidence.step_of[block]))
      continue;
    if (!evidence.in_module(block)) continue;
    if (evidence.trace.block_facts[block].category == MemoryCategory::kLibrary) continue;
    ++all;
    kept += evidence.stays(block) ? 1 : 0;
  }
  const int64_t results = 2 * static_cast<int64_t>(steps.size());
  if (kept > results) return kept * 4 >= all;
  // A graph of more calls would keep more blocks than that.
  return all <= 4 * results && keeps_inputs_and_results(evidence, steps);
}

// Whether those steps compute a loss: a function of that name, or a tensor of one number outside of modules.
bool computes_loss(const Evidence& evidence, const std::map<int, int64_t>& steps) {
  std::unordered_map<int32_t, bool> known;
  for (size_t block = 0; block < evidence.history.lifetimes.size(); ++block) {
    if (!steps.contains(evidence.step_of[block])) continue;
    const int32_t stack = evidence.trace.block_facts[block].stack;
    const auto [at, added] = known.try_emplace(stack, false);
    if (added) {
      for (const StackFrame& frame : frames_of(evidence.trace.names[static_cast<size_t>(stack)])) {
        const bool named = frame.function.find("loss") != std::string_view::npos ||
                           frame.function.find("Loss") != std::string_view::npos ||
                           frame.function.find("cross_entropy") != std::string_view::npos;
        // A user's function that holds the loop may be called after its losses, too.
        at->second |= named && frame.is_python() && frame.is_library();
      }
    }
    if (at->second) return true;
    if (evidence.history.bytes(block) <= kScalarBytes && !evidence.in_module(block)) return true;
  }
  return false;
}

// As the driver said last, otherwise what the program did not take of the device.
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

std::vector<Finding> find_leaks(const Evidence& evidence) {
  const std::vector<Site> sites = keeping_sites(evidence);
  int64_t total = 0;
  std::map<int, int64_t> by_step;
  int64_t a_step = 0;
  for (const Site& site : sites) {
    total += site.bytes;
    a_step += site.bytes / (site.by_step.rbegin()->first - site.by_step.begin()->first + 1);
    for (const auto& [step, bytes] : site.by_step) by_step[step] += bytes;
  }
  if (!evidence.matters(total)) return {};
  const bool graphs = keeps_graphs(evidence, by_step);
  const Site& largest = largest_site(evidence, sites, graphs);
  const std::string place = evidence.place(largest.block);
  const int32_t since = evidence.steps[static_cast<size_t>(by_step.begin()->first)].number;
  Finding leak{.cause = Cause::kLeak, .bytes = total, .title = "Leak"};
  std::string rate = fmt::format("{} a step since step {}", short_size(a_step), since);
  std::string end;
  if (evidence.failure != nullptr) {
    end = fmt::format("; {} are kept when memory runs out", short_size(total));
  } else if (a_step > 0 && evidence.free_bytes) {
    end = fmt::format("; at this rate it fails after {} more steps", *evidence.free_bytes / a_step);
  }
  bool trains = false, leaking_step_trains = false;
  for (size_t step = 0; step <= evidence.last; ++step) {
    const bool backward = evidence.steps[step].has_backward;
    trains |= backward;
    leaking_step_trains |= backward && by_step.contains(static_cast<int>(step));
  }
  if (!graphs) {
    const bool is_computed =
        evidence.born[largest.block].phase == StepPhase::kForward && evidence.in_module(largest.block);
    leak.sentence = fmt::format("{}, allocated at {} and never freed{}", rate, place, end);
    leak.advice = fmt::format("drop what {} allocates, or keep {}", place,
                              is_computed ? "only its value: .item() of a loss, .detach().cpu() of an output"
                                          : "a copy on the CPU (.cpu())");
  } else if (leaking_step_trains) {
    leak.title = "Graphs are kept";
    leak.cause = Cause::kGraphsKept;
    leak.sentence =
        fmt::format("{} of activations, allocated at {} and not freed by backward{}", rate, place, end);
    leak.advice = "keep results with .detach(), and call backward without retain_graph";
  } else if (!trains && computes_loss(evidence, by_step)) {
    leak.title = "Losses accumulate with their graphs";
    leak.cause = Cause::kLossesKept;
    leak.sentence = fmt::format("{} of activations at {}, as no backward frees them{}", rate, place, end);
    leak.advice = "call backward in each step, or add up loss.item()";
  } else {
    leak.title = "Evaluation keeps graphs";
    leak.cause = Cause::kGraphsKept;
    leak.sentence = fmt::format("{} of activations at {}, which no backward will use{}", rate, place, end);
    leak.advice = "evaluate under torch.no_grad()";
  }
  return {leak};
}

std::optional<Finding> find_unused_graphs(const Evidence& evidence) {
  // Where memory suffices, graphs that are dropped again are no fault.
  if (evidence.failure == nullptr || evidence.steps.empty()) return std::nullopt;
  if (evidence.last == 0 || evidence.steps[evidence.last].has_backward) return std::nullopt;
  // A step that failed may have had its backward before it; its predecessor tells.
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
  // Without graphs the outputs of few layers are live at once.
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
  // What each step allocates in forward, by site and turn, so that steps can be compared allocation by
  // allocation.
  struct StepSizes {
    std::map<std::pair<int32_t, int>, int64_t> bytes;  // stack or op, turn -> bytes
    std::map<int32_t, int> turns;
    double inputs = 0;  // bytes; sums of all that is allocated in a step may exceed 64 bits
    int64_t peak = 0;   // of live activations
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
  // The largest step before. What both allocate is compared, as a step that fails is not complete.
  struct Growth {
    size_t step = 0;
    double factor = 0;
  };
  std::optional<Growth> least;
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
    if (grown < now / 2) return std::nullopt;  // it was as large before
    if (!least || factor <= least->factor) least = {step, factor};
  }
  if (!least || least->factor < 1.05) return std::nullopt;
  if (evidence.failure == nullptr) {
    // Without a failure only steady growth counts: never less, and larger more than once.
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
  const double inputs = base.inputs > 0 && last.inputs > 0 ? last.inputs / base.inputs : least->factor;
  // Up to the request that fails, where the step before made it, too.
  const int64_t before = base.at_same.value_or(base.peak);
  const int64_t now = evidence.failure != nullptr ? live + evidence.failure->requested_bytes : last.peak;
  return Finding{
      .cause = Cause::kGrowingBatch,
      .bytes = std::max<int64_t>(0, now - before),
      .title = "The batch grew",
      .sentence = fmt::format("the batch {} since step {}: activations grew from {} to {}", times(inputs),
                              evidence.steps[least->step].number, short_size(before), short_size(now)),
      .advice = "keep the batch at its size before, or accumulate gradients over several of them"};
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
    // An evaluation beside the gradients of the last step is usual.
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
                 .sentence = fmt::format("{} of gradients stay allocated since step {}, also while the "
                                         "next forward runs",
                                         short_size(bytes), since),
                 .advice = "call optimizer.zero_grad(set_to_none=True) before forward"};
}

std::optional<Finding> find_optimizer_state(const Evidence& evidence) {
  if (evidence.failure == nullptr || evidence.steps.empty()) return std::nullopt;
  size_t first = 0;
  while (first <= evidence.last && !evidence.steps[first].has_optimizer) ++first;
  // It fails in that step, or in the next one, which has to fit beside the state for the first time.
  if (first > evidence.last || evidence.last > first + 1) return std::nullopt;
  const History& history = evidence.history;
  int64_t state = 0, weights = 0, gradients = 0;
  bool fails_in_optimizer = false;
  for (size_t block = 0; block < history.lifetimes.size(); ++block) {
    if (!evidence.stays(block)) continue;
    const MemoryCategory category = evidence.trace.block_facts[block].category;
    if (category == MemoryCategory::kOptimizerState) state += history.bytes(block);
    if (category == MemoryCategory::kWeights) weights += history.bytes(block);
    if (category == MemoryCategory::kGradients) gradients += history.bytes(block);
  }
  for (size_t i = 0; i < evidence.trace.marks.size(); ++i) {
    const TraceMark& mark = evidence.trace.marks[i];
    if (mark.position < evidence.failure->event) fails_in_optimizer = mark.phase == StepPhase::kOptimizer;
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

std::optional<Finding> find_fragmentation(const Evidence& evidence) {
  if (evidence.failure == nullptr || evidence.failure->judgement.cause != Cause::kFragmentation) {
    return std::nullopt;
  }
  const Failure& failure = *evidence.failure;
  return Finding{.cause = Cause::kFragmentation,
                 .bytes = failure.idle_bytes.value_or(0),
                 .title = "Fragmentation",
                 .sentence = fmt::format("{} are idle in {} pieces, the largest of {}",
                                         short_size(failure.idle_bytes.value_or(0)), failure.idle_pieces,
                                         short_size(failure.largest_idle_bytes.value_or(0))),
                 .advice = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"};
}

}  // namespace headroom::report
