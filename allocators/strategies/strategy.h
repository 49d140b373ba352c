// The table of memory strategies, and how one is made from its settings. Knows no command line.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocators/allocator.h"
#include "allocators/strategies/strategy_options.h"
#include "trace/trace.h"

namespace headroom {

// A user's choice. Limit and memory fraction exclude each other.
struct StrategySettings {
  std::string name = "grab-all";
  std::string title = {};        // name in messages, as the user gave it: "pytorch"; empty: its name
  StrategyOptions options = {};  // the strategy's own
  std::optional<int64_t> limit_bytes = {};
  LimitScope limit_scope = LimitScope::kPool;
  // A limit on the process below the memory of context and libraries fails with the first request, not at
  // once: a program is planned for it, and the sufficient limit is known only after the libraries have
  // started.
  bool limit_is_budget = false;
  std::optional<double> memory_fraction = {};  // share of the device's total, in (0, 1], without a reserve
  // Memory that a pool of all free memory leaves to libraries and others; TensorFlow's figure by default.
  std::optional<int64_t> reserve_bytes = {};
  // A strategy from outside: a shared library (see headroom_strategy.h), or a function that makes it.
  std::string plugin_path = {};
  std::function<std::unique_ptr<Allocator>(const StrategySettings&, Device&)> make = {};
  std::string record_path = {};  // file for a trace of all requests; empty: none
  // Settings that the trace records beside strategy and device, by name.
  std::vector<std::pair<std::string, std::string>> record_settings = {};
  // The driver calls of the strategy that fail, [first, last], counted from 1.
  struct FailingCalls {
    int64_t first = 0;
    int64_t last = 0;
    bool operator==(const FailingCalls&) const = default;
  };
  std::optional<FailingCalls> failing_calls = {};
  std::optional<int64_t> thread_cache_bytes = {};  // see Allocator::set_thread_cache
  // For PyTorch's allocator: its segments lie where a driver puts them (SegmentPlaces) in a process that runs
  // kernels after so many allocations.
  std::optional<int64_t> kernels_after = {};
  // Returns the strategy's name in messages.
  const std::string& shown_name() const { return title.empty() ? name : title; }

  bool allow_growth = false;  // a pool that is taken at the start grows instead
};

// One row of the table: everything that programs need to know about a strategy.
struct Strategy {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Allocator> (*make)(const StrategySettings& settings, Device& device);
  std::span<const StrategyOption> options = {};
  bool needs_limit = false;            // and throws without one
  bool takes_all_free_memory = false;  // at the start, without a limit and growth
  // True if it behaves differently on a larger device even if the driver refuses no request on either.
  bool depends_on_total = false;
  // When a program runs out of memory, strategies are tried as cures in this order; 0: never.
  int cure_order = 0;
  // Factor of the largest live set that the strategy has reserved on a real GPU, if a simulated GPU shows
  // less. 0: the same on both.
  double gpu_reserved_ratio = 0;
  // Prepares settings for a replay of that trace; null: nothing to prepare. Throws InvalidArgument for a
  // trace that the strategy cannot take.
  void (*prepare_replay)(const Trace& trace, StrategySettings& settings) = nullptr;
};

// Every strategy, the default one first.
std::span<const Strategy> strategies();
// The strategy of that name. Throws InvalidArgument for an unknown one, with the nearest known name.
const Strategy& find_strategy(std::string_view name);
// The settings prepared for replays of that trace, see Strategy::prepare_replay, which takes time: so once
// for all replays. Throws as that does.
StrategySettings prepared_for(const Trace& trace, StrategySettings settings);
// Returns true if the strategy does something there, and may refuse the trace.
bool plans_ahead(const StrategySettings& settings);
// Returns the strategies that are tried as cures for out of memory, in that order.
std::vector<const Strategy*> cures();
// Returns true if such a pool holds all memory that was free, so that only its reserve is left for libraries.
bool takes_all_free_memory(const StrategySettings& settings);

// Returns true if more device memory may change the behavior of such a strategy even if no call finds less
// room than it asks for: always with a limit, and for unknown strategies.
bool depends_on_total(const StrategySettings& settings);

// Makes an allocator on `device`, which is initialized first and must outlive it. With a limit on the
// process, the libraries that it expects start first, so that the rest of the limit is known. Throws
// InvalidArgument for settings that are unknown, out of range or contradictory, OutOfMemory if there is no
// room for a pool reserved at the start, and the exceptions of Device::initialize and start_library.
std::unique_ptr<Allocator> make_allocator(const StrategySettings& settings, Device& device);

// The memory that TensorFlow leaves to libraries and others when it takes all: 225 MiB of less than 2 GiB,
// otherwise 500, 1050 or 1536 MiB by compute capability (major * 10 + minor).
int64_t reserve_for_others_bytes(int64_t available_bytes, int compute_capability);

}  // namespace headroom
