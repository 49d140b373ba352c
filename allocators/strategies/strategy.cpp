#include "allocators/strategies/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "allocators/strategies/arena_allocator.h"
#include "allocators/strategies/bfc_allocator.h"
#include "allocators/strategies/caching_allocator.h"
#include "allocators/strategies/direct_allocator.h"
#include "allocators/strategies/expandable_allocator.h"
#include "allocators/strategies/mapped_allocator.h"
#include "allocators/strategies/packed_allocator.h"
#include "allocators/strategies/plugin_allocator.h"
#include "allocators/strategies/pool_allocator.h"
#include "allocators/strategies/stream_ordered_allocator.h"
#include "allocators/strategies/two_ended_allocator.h"
#include "allocators/trace_recorder.h"
#include "base/bytes.h"
#include "base/text.h"
#include "device/faulty/faulty_device.h"
#include "trace/read_trace.h"

namespace headroom {
namespace {

std::string with_exact(int64_t bytes) {
  return fmt::format("{} ({} bytes)", format_bytes(bytes), bytes);
}

void check_limit(const StrategySettings& settings, int64_t total_bytes) {
  const int64_t limit = *settings.limit_bytes;
  if (limit < Allocator::kAlignment) {
    throw InvalidArgument(fmt::format("limit of {} bytes: the minimum is {}", limit, Allocator::kAlignment));
  }
  if (limit > total_bytes) {
    throw InvalidArgument(fmt::format("limit of {} is above the device's total of {}", with_exact(limit),
                                      with_exact(total_bytes)));
  }
  if (settings.memory_fraction) {
    throw InvalidArgument("a limit and a memory fraction exclude each other: pass one");
  }
}

// After this only the pool may take memory, or the limit would be exceeded.
void start_everything_else(Device& device, int64_t limit_bytes, bool is_budget) {
  const MemoryInfo info = device.memory().info();
  const int64_t kept = info.process + device.libraries().pending_bytes();
  // The context may have used more while it was made, which leaves the bytes released since.
  const int64_t needed = std::max(kept, info.context);
  if ((kept >= limit_bytes || needed > limit_bytes) && !is_budget) {
    throw InvalidArgument(fmt::format(
        "limit of {} on the process leaves nothing for tensors: context, libraries and kernels take {}",
        with_exact(limit_bytes), with_exact(needed)));
  }
  for (const Library library : {Library::kBlas, Library::kDnn}) {
    if (device.libraries().is_expected(library)) device.libraries().start(library);
  }
}

// The cap on a pool: the limit, a fraction of the total, or all free memory less the reserve.
Limit pool_limit(const StrategySettings& settings, Device& device) {
  const MemoryInfo info = device.memory().info();
  if (settings.limit_bytes) return {*settings.limit_bytes, settings.limit_scope};
  if (settings.memory_fraction) {
    return {static_cast<int64_t>(static_cast<double>(info.total) * *settings.memory_fraction),
            LimitScope::kPool};
  }
  const int64_t reserve =
      settings.reserve_bytes.value_or(reserve_for_others_bytes(info.free, device.compute_capability()));
  return {reserve < info.free ? info.free - reserve : info.free, LimitScope::kPool, true};
}

std::unique_ptr<Allocator> make_grab_all(const StrategySettings& settings, Device& device) {
  const auto growth = settings.allow_growth ? BfcAllocator::Growth::kDoubling : BfcAllocator::Growth::kAtOnce;
  return std::make_unique<BfcAllocator>(device, settings.name, pool_limit(settings, device), growth);
}

std::unique_ptr<Allocator> make_allow_growth(const StrategySettings& settings, Device& device) {
  return std::make_unique<BfcAllocator>(device, settings.name, pool_limit(settings, device),
                                        BfcAllocator::Growth::kDoubling);
}

// The cap on a strategy that takes memory as needed: only if one was set.
std::optional<Limit> asked_limit(const StrategySettings& settings, Device& device) {
  if (!settings.limit_bytes && !settings.memory_fraction) return std::nullopt;
  return pool_limit(settings, device);
}

std::unique_ptr<Allocator> make_caching(const StrategySettings& settings, Device& device) {
  const CachingRules rules = caching_rules(settings.options);
  const std::optional<Limit> limit = asked_limit(settings, device);
  if (rules.expandable_segments) {
    return std::make_unique<ExpandableAllocator>(device, settings.shown_name(), limit, rules);
  }
  return std::make_unique<CachingAllocator>(device, settings.shown_name(), limit, rules,
                                            settings.kernels_after);
}

std::unique_ptr<Allocator> make_pool(const StrategySettings& settings, Device& device) {
  return std::make_unique<PoolAllocator>(device, settings.name, asked_limit(settings, device),
                                         settings.options.bytes("initial").value_or(0));
}

std::unique_ptr<Allocator> make_arena(const StrategySettings& settings, Device& device) {
  return std::make_unique<ArenaAllocator>(device, settings.name, asked_limit(settings, device));
}

std::unique_ptr<Allocator> make_two_ended(const StrategySettings& settings, Device& device) {
  return std::make_unique<TwoEndedAllocator>(device, settings.name, pool_limit(settings, device),
                                             settings.options.bytes("large").value_or(kTwoEndedLargeBytes));
}

std::unique_ptr<Allocator> make_mapped(const StrategySettings& settings, Device& device) {
  return std::make_unique<MappedAllocator>(device, settings.name, asked_limit(settings, device),
                                           settings.options.bytes("page").value_or(0));
}

std::unique_ptr<Allocator> make_stream_ordered(const StrategySettings& settings, Device& device) {
  const auto threshold = settings.options.text("release_threshold");
  return std::make_unique<StreamOrderedAllocator>(
      device, settings.shown_name(), asked_limit(settings, device),
      threshold ? parse_bytes(*threshold, "release_threshold") : std::numeric_limits<int64_t>::max());
}

PackOptions pack_options(const StrategySettings& settings) {
  PackOptions options;
  // The largest count is some hours.
  if (const auto millions = settings.options.count("work", 0, 10'000'000)) {
    options.max_work = *millions * 1'000'000;
  }
  return options;
}

std::unique_ptr<Allocator> make_packed(const StrategySettings& settings, Device& device) {
  RequestPlan plan;
  if (const auto path = settings.options.text("trace")) {
    const std::vector<Trace> traces = read_traces(std::string(*path));
    if (traces.size() > 1) {
      throw InvalidArgument(
          fmt::format("{}: has traces of {} devices; a plan is for one", *path, traces.size()));
    }
    plan = plan_requests(traces[0], pack_options(settings));
  }
  return std::make_unique<PackedAllocator>(device, settings.name, asked_limit(settings, device),
                                           std::make_shared<const RequestPlan>(std::move(plan)));
}

// Repeats the trace that is replayed, planned once for all capacities, unless it has one of its own.
void plan_replay(const Trace& trace, StrategySettings& settings) {
  if (settings.options.text("trace")) return;
  settings.make = [plan = std::make_shared<const RequestPlan>(plan_requests(trace, pack_options(settings)))](
                      const StrategySettings& asked, Device& device) {
    return std::make_unique<PackedAllocator>(device, asked.name, asked_limit(asked, device), plan);
  };
}

std::unique_ptr<Allocator> make_direct(const StrategySettings& settings, Device& device) {
  return std::make_unique<DirectAllocator>(device, settings.name, asked_limit(settings, device));
}

std::unique_ptr<Allocator> make_plugin(const StrategySettings& settings, Device& device) {
  return std::make_unique<PluginAllocator>(device, settings.plugin_path, asked_limit(settings, device),
                                           settings.options.all());
}

// Makes an allocator on a device that makes the given calls fail.
template <typename Make>
std::unique_ptr<Allocator> make_failing(const Make& make, const StrategySettings& settings, Device& device) {
  const auto [first, last] = *settings.failing_calls;
  auto faulty = std::make_unique<FaultyDevice>(device);
  faulty->initialize();
  faulty->faults().arm({.failing_call = first, .failing_calls = last - first + 1});
  std::unique_ptr<Allocator> allocator = make(settings, *faulty);
  allocator->keep(std::move(faulty));
  return allocator;
}

constexpr Strategy kStrategies[] = {
    {.name = "grab-all",
     .summary = "reserves all free memory at the start except a margin, as TensorFlow does by default",
     .make = make_grab_all,
     .takes_all_free_memory = true,
     .depends_on_total = true},
    {.name = "allow-growth",
     .summary = "reserves regions on demand, doubling their size from 2 MiB",
     .make = make_allow_growth,
     .cure_order = 1},  // the nearest to a pool
    {.name = "hard-limit",
     .summary = "reserves a fixed number of bytes at the start and never more",
     .make = make_grab_all,
     .needs_limit = true,
     .depends_on_total = true},
    {.name = "two-ended",
     .summary = "reserves as grab-all does; places small blocks at the high end, large ones at the low end",
     .make = make_two_ended,
     .options = kTwoEndedOptions,
     .takes_all_free_memory = true,
     .depends_on_total = true},
    {.name = "caching",
     .summary = "caches segments of a few sizes and splits them into blocks, as PyTorch does by default",
     .make = make_caching,
     .options = kCachingOptions,
     .cure_order = 3},
    {.name = "pool",
     .summary = "doubles its segments, or reserves half of the rest of the limit, as RMM's pool does",
     .make = make_pool,
     .options = kPoolOptions,
     .cure_order = 5},
    {.name = "arena",
     .summary = "reserves half of the free memory in one piece and gives parts of it to streams, as RMM's "
                "arena does",
     .make = make_arena,
     .depends_on_total = true},
    {.name = "mapped",
     .summary = "maps physical pages under blocks on demand, idle pages before new ones",
     .make = make_mapped,
     .options = kMappedOptions,
     .depends_on_total = true,  // it has addresses in proportion to the memory
     .cure_order = 2},
    {.name = "stream-ordered",
     .summary = "passes every request to the driver's own pool, as cudaMallocAsync does",
     .make = make_stream_ordered,
     .options = kStreamOrderedOptions,
     .cure_order = 4,
     .gpu_reserved_ratio = 1.31},  // after eight passes of a recorded training: docs/performance.md
    {.name = "packed",
     .summary = "repeats a traced run at offsets planned in advance",
     .make = make_packed,
     .options = kPackedOptions,
     .prepare_replay = plan_replay},
    {.name = "direct",
     .summary = "calls the driver for every request and caches nothing: the baseline",
     .make = make_direct,
     .cure_order = 6},
};

}  // namespace

std::span<const Strategy> strategies() {
  return kStrategies;
}

const Strategy& find_strategy(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Strategy& strategy : kStrategies) {
    if (strategy.name == name) return strategy;
    known.push_back(strategy.name);
  }
  throw InvalidArgument(
      fmt::format("unknown strategy '{}': known are {}", name, list_with_suggestion(name, known)));
}

StrategySettings prepared_for(const Trace& trace, StrategySettings settings) {
  if (plans_ahead(settings)) find_strategy(settings.name).prepare_replay(trace, settings);
  return settings;
}

bool plans_ahead(const StrategySettings& settings) {
  const bool is_of_table = !settings.make && settings.plugin_path.empty();
  return is_of_table && find_strategy(settings.name).prepare_replay != nullptr;
}

std::vector<const Strategy*> cures() {
  std::vector<const Strategy*> result;
  for (const Strategy& strategy : kStrategies) {
    if (strategy.cure_order > 0) result.push_back(&strategy);
  }
  std::ranges::sort(result,
                    [](const Strategy* a, const Strategy* b) { return a->cure_order < b->cure_order; });
  return result;
}

bool takes_all_free_memory(const StrategySettings& settings) {
  if (settings.limit_bytes || settings.memory_fraction || settings.allow_growth) return false;
  return std::ranges::any_of(kStrategies, [&](const Strategy& strategy) {
    return strategy.name == settings.name && strategy.takes_all_free_memory;
  });
}

bool depends_on_total(const StrategySettings& settings) {
  const bool is_known = !settings.make && settings.plugin_path.empty();
  const bool has_limit = settings.limit_bytes || settings.memory_fraction;
  return !is_known || has_limit || settings.failing_calls || find_strategy(settings.name).depends_on_total;
}

std::unique_ptr<Allocator> make_allocator(const StrategySettings& settings, Device& device) {
  auto make = settings.make;
  if (!make && !settings.plugin_path.empty()) make = make_plugin;
  if (!make) {
    const Strategy& strategy = find_strategy(settings.name);
    settings.options.require_known(strategy.name, strategy.options);
    if (strategy.needs_limit && !settings.limit_bytes) {
      throw InvalidArgument(
          fmt::format("strategy {} needs a limit in bytes: pass one, such as 1GiB", strategy.name));
    }
    make = strategy.make;
  }
  if (settings.limit_bytes) check_limit(settings, device.memory().info().total);
  if (settings.limit_scope == LimitScope::kProcess && !settings.limit_bytes) {
    throw InvalidArgument(
        "the scope of the limit is the process, but there is no limit: pass one, such as 1GiB");
  }
  const double fraction = settings.memory_fraction.value_or(1);
  if (!(fraction > 0 && fraction <= 1)) {
    throw InvalidArgument(fmt::format("memory fraction of {}: it must be above 0 and at most 1", fraction));
  }
  device.initialize();
  if (settings.limit_scope == LimitScope::kProcess) {
    start_everything_else(device, *settings.limit_bytes, settings.limit_is_budget);
  }
  std::unique_ptr<Allocator> allocator =
      settings.failing_calls ? make_failing(make, settings, device) : make(settings, device);
  if (settings.thread_cache_bytes) allocator->set_thread_cache(*settings.thread_cache_bytes);
  if (!settings.record_path.empty()) {
    TraceSettings recorded = {{"strategy", settings.name}, {"device", device.name()}};
    if (const auto limit = allocator->limit_bytes())
      recorded.emplace_back("limit_bytes", std::to_string(*limit));
    recorded.insert(recorded.end(), settings.record_settings.begin(), settings.record_settings.end());
    allocator->set_observer(trace_recorder(settings.record_path, recorded));
  }
  return allocator;
}

int64_t reserve_for_others_bytes(int64_t available_bytes, int compute_capability) {
  if (available_bytes < 2 * kGiB) return 225 * kMiB;
  const int major = compute_capability / 10;
  return (major <= 6 ? 500 : major == 7 ? 1050 : 1536) * kMiB;
}

}  // namespace headroom
