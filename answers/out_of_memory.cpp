#include "answers/out_of_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "allocators/strategies/strategy_text.h"
#include "answers/lower.h"
#include "base/bytes.h"
#include "base/edge.h"
#include "base/errors.h"

namespace headroom {
namespace {

// One search: what is tried goes to the report.
struct Search {
  const RunSetup& present;
  const Play& play;
  OutOfMemoryReport& report;
  SearchWork work;  // that is left

  bool fits(const RunSetup& setup) {
    const Prediction attempt = play(setup, false);
    work.left -= attempt.work;
    return attempt.fits;
  }
  void note(ChangeKind kind, std::string what, bool does_fit, const RunSetup& setup,
            bool is_least = true) const {
    if (!is_least) what += " (less may do)";
    report.changes.push_back({kind, std::move(what), does_fit, setup, is_least});
  }
};

// The least number of steps in [1, most] found to fit; nothing when none of growing steps fits. `set(count)`
// changes `setup`.
template <typename Set>
std::optional<Edge> least_steps(Search& search, int64_t most, const RunSetup& setup, const Set& set) {
  const auto attempt = [&](int64_t count) {
    set(count);
    const Prediction played = search.play(setup, false);
    return EdgeTrial{.fits = played.fits, .work = played.work};
  };
  return EdgeSearch(search.work, attempt).above(0, most);
}

// The limit of the virtual device that had no room, as far as its GPU has more.
void change_virtual_limit(ChangeKind kind, Search& search) {
  const std::string& device = search.report.facts.device;
  std::vector<GpuSizes> sizes = parse_gpu_sizes(search.present.options.virtual_devices, "virtual-devices");
  const DeviceMap& gpus = search.present.gpus;
  if (device.empty() || search.report.facts.requested == 0) return;
  const auto logical = static_cast<size_t>(parse_device_name(device).ordinal);
  const int physical = gpus.find(parse_device_name(device)).physical;
  const std::optional<int> number = gpus.physical[static_cast<size_t>(physical)].ordinal;
  const auto of_gpu = std::ranges::find_if(sizes, [&](const GpuSizes& one) { return one.gpu == number; });
  if (of_gpu == sizes.end()) return;  // it is whole, or was cut up in code
  size_t place = 0;
  int64_t room = search.present.device.total_bytes;
  for (size_t i = 0; i < gpus.logical.size(); ++i) {
    if (gpus.logical[i].physical != physical) continue;
    if (i < logical) ++place;
    room -= *gpus.logical[i].limit_bytes;
  }
  const int64_t page = search.present.device.granularity_bytes, limit = of_gpu->bytes[place];
  RunSetup setup = search.present;
  const auto set = [&](int64_t pages) {
    setup.gpus.logical[logical].limit_bytes = of_gpu->bytes[place] = limit + pages * page;
    setup.options.virtual_devices = format_gpu_sizes(sizes);
  };
  const std::optional<Edge> pages = least_steps(search, room / page, setup, set);
  if (!pages) return search.note(kind, "any higher limit of " + device, false, setup);
  set(pages->fitting);
  search.note(kind, "limit of " + device + " +" + format_bytes(pages->fitting * page), true, setup,
              pages->is_closed);
}

void change_limit(ChangeKind kind, Search& search) {
  if (search.present.gpus.has_virtual()) return change_virtual_limit(kind, search);
  const std::optional<int64_t> limit = search.present.options.strategy_settings().limit_bytes;
  if (!limit || !with_limit(search.present.options, *limit)) return;
  // A library that finds no room needs less of a pool, not more.
  const int64_t direction = search.report.facts.requested > 0 ? 1 : -1;
  const int64_t page = search.present.device.granularity_bytes;
  const int64_t room = direction > 0 ? search.present.device.total_bytes - *limit : *limit;
  RunSetup setup = search.present;
  const auto set = [&](int64_t pages) {
    setup.options = *with_limit(search.present.options, *limit + direction * pages * page);
  };
  const std::optional<Edge> pages = least_steps(search, room / page, setup, set);
  if (!pages) return search.note(kind, direction > 0 ? "any higher limit" : "any lower limit", false, setup);
  set(pages->fitting);
  search.note(kind, std::string("limit ") + (direction > 0 ? "+" : "-") + format_bytes(pages->fitting * page),
              true, setup, pages->is_closed);
}

void change_fraction(ChangeKind kind, Search& search) {
  const std::optional<double> fraction = search.present.options.memory_fraction;
  if (!fraction) return;
  RunSetup setup = search.present;
  const auto set = [&](int64_t hundredths) {
    setup.options.memory_fraction = *fraction + 0.01 * static_cast<double>(hundredths);
  };
  const auto most = static_cast<int64_t>((1 - *fraction) * 100);
  const std::optional<Edge> steps = least_steps(search, most, setup, set);
  if (!steps) return search.note(kind, "any larger memory fraction", false, setup);
  set(steps->fitting);
  search.note(kind, "memory fraction +" + std::to_string(steps->fitting) + " %", true, setup,
              steps->is_closed);
}

void start_libraries_first(ChangeKind kind, Search& search) {
  if (search.report.facts.requested > 0 || search.present.options.libraries_first) return;
  RunSetup setup = search.present;
  setup.options.libraries_first = true;
  search.note(kind, "libraries-first", search.fits(setup), setup);
}

// Under the present limit, if there is one.
void change_strategy(ChangeKind kind, Search& search) {
  const StrategySettings settings = search.present.options.strategy_settings();
  for (const Strategy* cure : cures()) {
    const std::string_view other = cure->name;
    if (settings.name == other) continue;
    if (search.work.is_spent() && search.report.smallest() != nullptr) return;
    RunSetup setup = search.present;
    setup.options.strategy = other;
    setup.options.limit_bytes = settings.limit_bytes;
    setup.options.memory_fraction = settings.memory_fraction;
    search.note(kind, "strategy " + std::string(other), search.fits(setup), setup);
  }
}

void pack_plan(ChangeKind kind, Search& search) {
  if (!search.present.has_plan || search.present.options.plan == PlanMode::kPacked) return;
  RunSetup setup = search.present;
  setup.options.plan = PlanMode::kPacked;
  search.note(kind, "plan packed", search.fits(setup), setup);
}

// Values are dropped and computed again until the step fits in what the device has free.
void plan_for_memory(ChangeKind kind, Search& search) {
  const RunSetup& present = search.present;
  const bool has_limit = present.options.strategy_settings().limit_bytes.has_value();
  const bool is_one_device = present.gpus.physical.size() == 1 && !present.gpus.has_virtual();
  if (!present.has_plan || present.batch == 0 || has_limit || !is_one_device) return;
  if (search.report.smallest() != nullptr) return;
  RunSetup setup = present;
  const int64_t page = present.device.granularity_bytes;
  const int64_t free = (present.device.total_bytes - present.gpus.physical.front().used_bytes) / page * page;
  if (free <= 0) return;
  setup.strategy.reset();
  setup.options.memory_bytes = free;
  setup.options.memory_fraction.reset();
  setup.options.allow_growth = false;
  setup.options.strategy = "direct";
  setup.options.plan = PlanMode::kPacked;
  search.note(kind, "memory " + exact_size(free), search.fits(setup), setup);
}

void shrink_batch(ChangeKind kind, Search& search) {
  const int64_t unit = search.present.batch_unit;
  int64_t units = search.present.batch / unit;
  if (units <= 1) return;
  RunSetup setup = search.present;
  // Sixteenths of it, and where even one of these is too large, sixteenths of that.
  while (units > 1) {
    const int64_t step = std::max<int64_t>(units / 16, 1);
    const auto set = [&](int64_t steps) { setup.batch = (units - steps * step) * unit; };
    const std::optional<Edge> steps = least_steps(search, (units - 1) / step, setup, set);
    if (steps) {
      set(steps->fitting);
      return search.note(kind, "batch " + std::to_string(setup.batch), true, setup, steps->is_closed);
    }
    units = step > 1 ? step : 1;
  }
  setup.batch = unit;
  search.note(kind, "any smaller batch", false, setup);
}

void enlarge_device(ChangeKind kind, Search& search) {
  const int64_t page = search.present.device.granularity_bytes;
  RunSetup setup = search.present;
  const auto set = [&](int64_t bytes) {
    setup.device.total_bytes = search.present.device.total_bytes + bytes;
  };
  constexpr int64_t kMostTimes = 64;
  const int64_t most = kMostTimes * search.present.device.total_bytes / page;
  const auto attempt = [&](int64_t count) {
    set(count * page);
    const Prediction played = search.play(setup, false);
    const auto pages_of = [&](int64_t total_bytes) {
      return (total_bytes - search.present.device.total_bytes + page - 1) / page;
    };
    EdgeTrial trial{.fits = played.fits, .work = played.work};
    if (played.fits) trial.guess = pages_of(played.used_bytes);
    if (played.enough_total > 0) trial.same_from = pages_of(played.enough_total);
    return trial;
  };
  const std::optional<Edge> pages = EdgeSearch(search.work, attempt).above(0, most);
  if (!pages) return search.note(kind, "any larger device", false, setup);
  int64_t bytes = pages->fitting * page;
  set(bytes);
  // Beside the process of a trace only whole pages count.
  const int64_t odd = (free_bytes(setup) - setup.device.overhead_bytes()) % page;
  if (!setup.has_plan && odd > 0) {
    set(bytes - odd);
    if (search.fits(setup)) bytes -= odd;
    set(bytes);
  }
  search.note(kind, format_bytes(bytes) + " more on the device", true, setup, pages->is_closed);
}

// In the order of ChangeKind.
constexpr void (*kSearches[])(ChangeKind kind, Search& search) = {
    change_limit, change_fraction, start_libraries_first, change_strategy,
    pack_plan,    plan_for_memory, shrink_batch,          enlarge_device};
static_assert(std::size(kSearches) == enum_names<ChangeKind>().size());

// Planning and lowering a step takes about as long as this many events of a trace.
constexpr int64_t kEventsOfStep = 8;

Play play_of(const MakePrograms& make) {
  return [make](const RunSetup& setup, bool explains) -> Prediction {
    try {
      const std::vector<Program> programs = planned(make(setup), setup.options.plan);
      Prediction played = play(lower(programs, setup.options), setup, {.explains = explains});
      played.enough_total = 0;  // see would_play_alike: a limit may depend on the total
      played.work = 0;
      for (const Program& program : programs) {
        for (const Plan& plan : *program.plans) {
          played.work += kEventsOfStep * static_cast<int64_t>(plan.steps.size());
        }
      }
      return played;
    } catch (const InvalidArgument& error) {
      return {.reason = error.what()};
    }
  };
}

}  // namespace

const TriedChange* OutOfMemoryReport::smallest() const {
  const auto found = std::ranges::find_if(changes, [](const TriedChange& change) { return change.fits; });
  return found == changes.end() ? nullptr : &*found;
}

OutOfMemoryReport explain_out_of_memory(const MemoryFacts& facts, const RunSetup& present, const Play& play,
                                        std::string message) {
  OutOfMemoryReport report;
  report.message = facts.requested > 0 ? out_of_memory_message(facts) : std::move(message);
  report.facts = facts;
  report.judgment = judge(facts);
  Prediction now = play(present, true);
  report.reproduced = !now.fits;
  if (!report.reproduced) return report;
  if (now.failure) {
    report.live = std::move(now.failure->live);
    if (report.judgment.cause == Cause::kFragmentation) report.pin = std::move(now.failure->pin);
  }
  // Half of what a search for the least capacity plays: here each change is a search of its own.
  Search search{present, play, report,
                SearchWork{.left = kMaxSearchedEvents / 2 - now.work,
                           .is_long = now.work > kMaxSearchedEvents / SearchWork::kTrials}};
  for (const ChangeKind kind : enum_values<ChangeKind>()) kSearches[static_cast<size_t>(kind)](kind, search);
  return report;
}

std::optional<OutOfMemoryReport> explain_run(const RunResult& result, const RunSetup& present,
                                             const MakePrograms& make) {
  const bool was_refused =
      result.outcome == RunOutcome::kOutOfMemory && result.memory && result.memory->device_total == 0;
  if (!result.memory || was_refused) return std::nullopt;
  OutOfMemoryReport report = explain_out_of_memory(*result.memory, present, play_of(make), result.error);
  if (result.failed_rank && result.memory->requested > 0) {
    report.message = fmt::format("{}: {}", name_failed_replica(result), report.message);
  }
  return report;
}

OutOfMemoryReport explain_out_of_memory(const OutOfMemory& error, const Graph& graph,
                                        std::span<const Targets> targets, RunSetup present) {
  present.has_plan = true;
  const std::shared_ptr<const Graph> not_owned(std::shared_ptr<const Graph>(), &graph);
  const std::vector<Program> programs = {{not_owned, {targets.begin(), targets.end()}}};
  return explain_out_of_memory(error.facts(), present, play_of([&](const RunSetup&) { return programs; }));
}

}  // namespace headroom
