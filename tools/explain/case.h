// The failure of a log that counts, with all figures that belong to it and what follows from them by
// arithmetic alone. Judges nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/explain/log.h"
#include "tools/explain/number_pair.h"

namespace headroom::explain {

// In bytes; absent where the log does not say.
struct Case : MemoryNumbers {
  const Log* log = nullptr;
  const Failure* failure = nullptr;  // null: the log shows none
  const Failure* lender = nullptr;   // the failure whose figures these are, where `failure` has none
  Framework framework = Framework::kNone;
  std::vector<Framework> tools;  // on top of it, those first whose settings decide
  std::string strategy;          // Headroom's
  Figures figures;
  const StatedCause* stated = nullptr;  // beside the failure; null where there is none
  std::optional<int64_t> outside;       // total - free - reserved: contexts, libraries and other processes
  std::optional<int64_t> own_outside_pool;  // process - reserved
  std::optional<int64_t> best;              // the most that any arrangement could give
  std::vector<Holder> holders;              // processes that are not of this run
  std::vector<Holder> ranks;                // other processes of this run
  std::set<std::string_view> derived;       // facts that follow from figures and from other facts
  bool is_impossible = false;               // the driver's figures contradict each other, and are not used
  std::optional<int64_t> own_pid;           // this process, if the message lists it among the others

  std::optional<double> parameter_count;  // parameters of the model
  std::string dtype;  // type of its weights: "float16"; the framework's default if none is named
  bool dtype_is_named = false;
  std::optional<int64_t> weight_bytes;  // the count of parameters by their type
  // Of a failure whose message is of no known kind: a line that says that one number is too large, and where.
  std::optional<NumberPair> pair;
  const CloseLine* pair_line = nullptr;  // null: the failure's own
  bool attention_scores = false;         // true if the request, or the largest buffer, has one row per token

  const Rules& rules() const { return *log->rules; }
  bool in(std::string_view phase) const {
    return failure != nullptr && (failure->phases.contains(phase) || derived.contains(phase));
  }
  bool uses(Framework any) const;
  // A setting, a phase, a fact or the id of a framework.
  bool has(std::string_view fact) const;
  std::optional<int64_t> bytes(Field field) const;
  bool is(Kind kind) const { return failure != nullptr && failure->kind == kind; }
  bool is_apple() const;  // a failure of Apple's GPUs
  bool has_setting(std::string_view name) const { return log->settings.contains(name); }
  // The version of `framework`, as 1000 * major + minor: as the log names it, else the oldest that prints its
  // messages.
  std::optional<int64_t> named_version() const { return find(log->versions); }
  std::optional<int64_t> version() const { return named_version() ? named_version() : find(log->at_least); }
  // The newest that it may be; nothing where it may be any.
  std::optional<int64_t> newest_version() const {
    return named_version() ? named_version() : find(log->at_most);
  }

 private:
  std::optional<int64_t> find(const std::map<Framework, int64_t>& versions) const {
    const auto found = versions.find(framework);
    return found == versions.end() ? std::nullopt : std::optional(found->second);
  }
};

// The first failure that counts: harmless messages, and those that a working set-up also prints, count only
// where there is nothing else. `log` has to outlive the result.
Case make_case(const Log& log);

// Adds the facts that follow from the figures and words of a case, and the pair that it may hold.
void find_facts(Case& found);

// Gives what the facts, the tools and the framework call a change, in this order; empty where none does. In a
// training the words of a tool that serves do not count.
std::string_view own_words(const Case& found, std::string_view change);

// The first option that the log shows of those that a fact or program lists ("options: pixels|batch"), with a
// number that can be halved; null where there is none.
const OptionInUse* option_to_lower(const Case& found);
bool counts_tokens(const OptionInUse& option);

// The first failure of a kind, or null.
const Failure* first_of(const Log& log, Kind kind);

// Tells whether the log has a failure that says how much was requested.
bool has_sized_allocation(const Log& log);

}  // namespace headroom::explain
