// The reason that a program ran out of memory, the live memory, and the smallest change with which it fits,
// tested by replaying it on a simulated twin of the device. Knows no command line and no net.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answers/play.h"
#include "answers/program.h"
#include "base/enum_names.h"
#include "base/judge.h"
#include "runtime/app/run_result.h"
#include "runtime/app/setup.h"

namespace headroom {

// Plays the program in a setup. With `explains`, a failure says what lived there, which takes memory and
// time.
using Play = std::function<Prediction(const RunSetup&, bool explains)>;

// The possible changes, in the order in which they are tried: the first that fits is the smallest. The
// cheapest for a user come first: up to the memory, results do not change.
enum class ChangeKind : uint8_t {
  kLimit,  // higher, or lower for a library's sake
  kMemoryFraction,
  kLibrariesFirst,
  kStrategy,
  kPlan,
  kMemory,  // the step planned for what the device has free, in more time; where none of the above is enough
  kBatch,
  kDevice,  // with more memory, or as much given back by others
};
constexpr auto value_names(ChangeKind) {
  return std::to_array<std::string_view>(
      {"limit", "memory-fraction", "libraries-first", "strategy", "plan", "memory", "batch", "device"});
}

struct TriedChange {
  ChangeKind kind = ChangeKind::kLimit;
  std::string what;  // "--limit 76546048 (+38.00 MiB)"
  bool fits = false;
  RunSetup setup;
  bool is_least = true;  // false: less may also fit, but the search of a long trace had to end
};

struct OutOfMemoryReport {
  std::string message;  // error without the cause
  MemoryFacts facts;
  Judgment judgment;                // why
  bool reproduced = false;          // true if the twin also fails; otherwise nothing below is known
  std::vector<LiveBlock> live;      // when it failed, the largest first
  std::optional<PinningBlock> pin;  // for fragmentation
  std::vector<TriedChange> changes;

  // The first that fits; null where none does.
  const TriedChange* smallest() const;
};

// Makes the programs of all replicas for a setup's batch.
using MakePrograms = std::function<std::vector<Program>(const RunSetup&)>;

// Returns the reason that a run was out of memory, and the smallest change with which the same programs fit,
// replayed on a twin; nullopt if the run ended otherwise, or was refused before it used a device
// (MemoryTooSmall). A setup that refuses the programs counts as a failure.
std::optional<OutOfMemoryReport> explain_run(const RunResult& result, const RunSetup& present,
                                             const MakePrograms& make);
// Explains the failure of your own graph's session: `present` is Runtime::setup().
OutOfMemoryReport explain_out_of_memory(const OutOfMemory& error, const Graph& graph,
                                        std::span<const Targets> targets, RunSetup present);
// Plays the present setup, and where it fails every change to it. `facts` are the error's; of a library's
// failure (a request of 0 bytes) `message` is its text.
OutOfMemoryReport explain_out_of_memory(const MemoryFacts& facts, const RunSetup& present, const Play& play,
                                        std::string message = {});

// Seven lines at most, the verdict first; the next command is the caller's, who knows the program.
std::string to_text(const OutOfMemoryReport& report);
// Returns the same facts as one line of JSON: cause, reason, facts in exact bytes, live, pin, changes,
// smallest.
std::string to_json(const OutOfMemoryReport& report);

}  // namespace headroom
