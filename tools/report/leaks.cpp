// Finds lines that keep memory in step after step, and if they keep results or the graphs of backward passes.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/report/findings.h"
#include "trace/stack.h"

namespace headroom::report {
namespace {

// Kept blocks of one allocation site.
struct Site {
  size_t block = 0;  // one of them
  int64_t bytes = 0;
  std::vector<size_t> kept;                     // all blocks that stay
  std::map<int, int64_t> by_step;               // position of the step -> bytes that stay
  std::set<int> allocates_in;                   // positions of the steps in which the site allocates at all
  bool frees_late = false;                      // some of its blocks outlived a whole step and were freed
  int64_t freed_live = 0, most_freed_live = 0;  // bytes of blocks that are freed, live at once
  int64_t never_freed_at_last = 0;              // bytes of the last step, also not after the last allocation
};

// A tensor of one number: a loss.
constexpr int64_t kScalarBytes = 8;

// Returns true if a site of a short history has kept blocks of every step that it ran in, including the last
// one, for three steps or more. After a failure it is unknown which blocks the rest of the step would have
// freed.
bool keeps_all(const Evidence& evidence, const Site& site) {
  constexpr size_t kShort = 10, kEnough = 3;
  if (evidence.failure != nullptr || evidence.last >= kShort) return false;
  // Blocks that the last step frees only after its last allocation are not kept.
  const int64_t each = site.bytes / static_cast<int64_t>(std::max<size_t>(site.by_step.size(), 1));
  if (site.frees_late || site.never_freed_at_last < each / 2) return false;
  const size_t steps = site.by_step.size();
  return steps >= kEnough && steps == site.allocates_in.size() &&
         site.by_step.rbegin()->first == static_cast<int>(evidence.last) &&
         site.by_step.begin()->first + static_cast<int>(steps) == static_cast<int>(evidence.last) + 1;
}

// Returns true if a site keeps blocks of step after step, up to the end.
bool keeps_on(const Evidence& evidence, const Site& site) {
  const std::map<int, int64_t>& steps = site.by_step;
  const size_t enough = evidence.last <= 4 ? 2 : 3;
  if (steps.size() < enough) return false;
  const int first = steps.begin()->first, latest = steps.rbegin()->first;
  // A queue of limited length frees its earlier blocks, and a cache stops growing. What is dropped now and
  // then, as a state that is carried through one text, may grow beyond memory before it is.
  const bool is_largest = evidence.failure != nullptr && site.bytes > site.most_freed_live / 5 * 6;
  if (site.frees_late && first > *site.allocates_in.begin() && !is_largest) return false;
  const double period = static_cast<double>(latest - first) / static_cast<double>(steps.size() - 1);
  return static_cast<double>(static_cast<int>(evidence.last) - 2 - latest) < period;
}

void forget_after(Site& site, int step) {
  for (auto at = site.by_step.upper_bound(step); at != site.by_step.end(); at = site.by_step.erase(at)) {
    site.bytes -= at->second;
  }
}

// Returns the sites that leave blocks allocated in step after step.
std::vector<Site> keeping_sites(const Evidence& evidence) {
  const History& history = evidence.history;
  // By stack, or by names if there is none, and by category.
  std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, Site> sites;
  std::vector<Site*> site_of(history.lifetimes.size());  // of blocks that are freed
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
      // Blocks of the last step may still be freed in it.
      if (step < static_cast<int>(evidence.last) || site.by_step.empty()) site.block = block;
      site.bytes += history.bytes(block);
      site.kept.push_back(block);
      site.by_step[step] += history.bytes(block);
      const bool freed_at_end = history.lifetimes[block].end <= std::ssize(evidence.trace.events);
      if (step == static_cast<int>(evidence.last) && !freed_at_end)
        site.never_freed_at_last += history.bytes(block);
    } else if (history.lifetimes[block].end <= evidence.stop) {
      site_of[block] = &site;
      const size_t next = static_cast<size_t>(step) + 2;
      site.frees_late |=
          next < evidence.steps.size() && history.lifetimes[block].end > evidence.steps[next].begin;
    }
  }
  for (int64_t i = 0; i < evidence.stop; ++i) {
    const TraceEvent& event = evidence.trace.events[static_cast<size_t>(i)];
    Site* site = site_of[static_cast<size_t>(event.block)];
    if (site == nullptr) continue;
    site->freed_live += event.allocates ? event.bytes : -event.bytes;
    site->most_freed_live = std::max(site->most_freed_live, site->freed_live);
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
      if (of == nullptr || site.bytes > of->bytes) of = &site;
      bytes += site.bytes;
    }
    if (!places.empty()) break;
  }
  return *std::ranges::max_element(places, [](const auto& a, const auto& b) {
            return a.second.first < b.second.first;
          })->second.second;
}

// Returns true if a step keeps what a graph needs from few calls of modules: the largest of its inputs, which
// a result does not hold, and a computed value.
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
  return of.size() == steps.size() &&
         std::ranges::all_of(of, [](const auto& kept) { return kept.second.input && kept.second.result; });
}

// Returns true if the steps keep much of their modules' allocations, as graphs for backward do. Kept results
// alone are few blocks.
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

// Returns true if those steps compute a loss: a function of that name, or a tensor of one number outside
// modules.
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
        // A user's function that contains the loop may also be named after its losses.
        at->second |= named && frame.is_python() && frame.is_library();
      }
    }
    if (at->second) return true;
    if (evidence.history.bytes(block) <= kScalarBytes && !evidence.in_module(block)) return true;
  }
  return false;
}

}  // namespace

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
  for (const Site& site : sites)
    leak.kept_blocks.insert(leak.kept_blocks.end(), site.kept.begin(), site.kept.end());
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
  if (evidence.born[largest.block].phase == StepPhase::kBackward) {
    leak.title = "Graphs of gradients are kept";
    leak.cause = Cause::kGraphsKept;
    leak.sentence = fmt::format("{} of what backward computes, kept for another backward{}", rate, end);
    leak.advice =
        "create_graph=False where no second derivative is needed, or fewer inner steps before the outer "
        "backward";
  } else if (!graphs) {
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

}  // namespace headroom::report
