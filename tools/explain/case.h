// The failure of a log that counts, with all figures that belong to it and what follows from them by
// arithmetic alone. Knows no verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/explain/facts.h"

namespace headroom::explain {

// In bytes; absent where the log does not tell.
struct Case {
  const Log* log = nullptr;
  const Failure* failure = nullptr;  // null: the log shows none
  const Failure* lender = nullptr;   // the failure whose figures these are, where `failure` has none
  Framework framework = Framework::kNone;
  std::string strategy;  // Headroom's
  Figures figures;
  std::optional<int64_t> requested, total, free, allocated, reserved, idle, process, limit, capacity, largest;
  std::optional<int64_t> outside;  // total - free - reserved: contexts, libraries and other processes
  std::optional<int64_t> others;   // other processes: as named, else an estimate from `outside`
  bool others_named = false;
  std::optional<int64_t> own_outside_pool;  // process - reserved
  std::optional<int64_t> best;              // free + idle: the most that any arrangement could give
  std::vector<Holder> holders;              // other processes
  std::optional<int64_t> own_pid;           // this process, found among those that the message calls others

  bool is(Kind kind) const { return failure != nullptr && failure->kind == kind; }
  bool has_setting(const std::string& name) const { return log->settings.contains(name); }
  // Of `framework`, as 1000 * major + minor: as the log names it; else what its messages tell at least.
  std::optional<int64_t> named_version() const { return find(log->versions); }
  std::optional<int64_t> version() const { return named_version() ? named_version() : find(log->at_least); }

 private:
  std::optional<int64_t> find(const std::map<Framework, int64_t>& versions) const {
    const auto found = versions.find(framework);
    return found == versions.end() ? std::nullopt : std::optional(found->second);
  }
};

// The first failure that counts: what does no harm, and words that a working set-up prints, too, count only
// where there is nothing else. `log` has to outlive the result.
Case make_case(const Log& log);

// The first failure of a kind, or null.
const Failure* first_of(const Log& log, Kind kind);

// Whether the log has a failure that says what was asked for.
bool has_sized_allocation(const Log& log);

// Bytes of a tensor from "64,576" and "float"; nothing for a type or text that is not known, INT64_MAX for
// more than fits.
std::optional<int64_t> tensor_bytes(const std::string& dims, const std::string& type);

}  // namespace headroom::explain
