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
  std::string title = {};        // what messages call it, as the user does: "pytorch"; empty: its name
  StrategyOptions options = {};  // the strategy's own
  std::optional<int64_t> limit_bytes = {};
  LimitScope limit_scope = LimitScope::kPool;
  // A limit on the process below what context and libraries take fails with the first request, not at once: a
  // program is planned for it, and only with the libraries started can be said what would be enough.
  bool limit_is_budget = false;
  std::optional<double> memory_fraction = {};  // of the device's total, in (0, 1], without a reserve
  // Memory that a pool of all free memory leaves to libraries and others; TensorFlow's figure by default.
  std::optional<int64_t> reserve_bytes = {};
  // A strategy from outside: a shared library (see headroom_strategy.h), or a function that makes it.
  std::string plugin_path = {};
  std::function<std::unique_ptr<Allocator>(const StrategySettings&, Device&)> make = {};
  std::string record_path = {};  // file for a trace of all requests; empty: none
  // What the trace says beside strategy and device, by name.
  std::vector<std::pair<std::string, std::string>> record_settings = {};
  // The driver calls of the strategy that fail, [first, last], counted from 1.
  struct FailingCalls {
    int64_t first = 0;
    int64_t last = 0;
    bool operator==(const FailingCalls&) const = default;
  };
  std::optional<FailingCalls> failing_calls = {};
  std::optional<int64_t> thread_cache_bytes = {};  // see Allocator::set_thread_cache
  // What messages call the strategy.
  const std::string& shown_name() const { return title.empty() ? name : title; }

  bool allow_growth = false;  // a pool that is taken at the start grows instead
};

// One row of the table: all that programs need to know of a strategy.
struct Strategy {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Allocator> (*make)(const StrategySettings& settings, Device& device);
  std::span<const StrategyOption> options = {};
  bool needs_limit = false;            // and throws without one
  bool takes_all_free_memory = false;  // at the start, without a limit and growth
  // Whether it acts otherwise on a larger device even where the driver refuses nothing on either.
  bool depends_on_total = false;
  // When a program runs out of memory, strategies are tried as cures in this order; 0: never.
  int cure_order = 0;
  // On a simulated GPU it reserves less than on a real one, where it has reserved up to so many times the
  // largest live set. 0: as much.
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
// Those that are tried as cures for out of memory, in that order.
std::vector<const Strategy*> cures();
// Whether such a pool holds all that was free, so that libraries find no more than its reserve.
bool takes_all_free_memory(const StrategySettings& settings);

// Whether a device with more memory may change what such a strategy does where no call finds less room than
// it asks for: always with a limit, and for strategies that nothing is known about.
bool depends_on_total(const StrategySettings& settings);

// Makes an allocator on `device`, which is initialised first and must outlive it. With a limit on the process
// the libraries that it expects start first, so that the rest of the limit is known. Throws InvalidArgument
// for settings that are unknown, out of range or contradictory, OutOfMemory when there is no room for a pool
// taken at the start, and what Device::initialise and start_library throw.
std::unique_ptr<Allocator> make_allocator(const StrategySettings& settings, Device& device);

// The memory that TensorFlow leaves to libraries and others when it takes all: 225 MiB of less than 2 GiB,
// otherwise 500, 1050 or 1536 MiB by compute capability (major * 10 + minor).
int64_t reserve_for_others_bytes(int64_t available_bytes, int compute_capability);

}  // namespace headroom
