#include "tools/explain/explanation.h"

#include <fmt/format.h>

#include <cctype>
#include <initializer_list>

#include "base/bytes.h"

namespace headroom::explain {
namespace {

constexpr std::pair<Field, std::string_view> kNames[] = {
    {Field::kRequested, "requested"},
    {Field::kTotal, "device total"},
    {Field::kFree, "device free"},
    {Field::kStartFree, "free at the start"},
    {Field::kPool, "pool at the start"},
    {Field::kAllocated, "allocated"},
    {Field::kReserved, "reserved by the pool"},
    {Field::kIdle, "reserved and idle"},
    {Field::kPrivate, "in pools of recorded graphs"},
    {Field::kLargest, "largest free block"},
    {Field::kCapacity, "the pool may hold"},
    {Field::kLimit, "limit"},
    {Field::kProcessLimit, "limit on the process"},
    {Field::kReserveLimit, "limit to leave room for libraries"},
    {Field::kLimitLeft, "left of the limit"},
    {Field::kProcess, "this process"},
    {Field::kOthers, "other processes"},
    {Field::kWeights, "weights"},
    {Field::kActivations, "one step's activations"},
    {Field::kCacheNeeded, "cache for the longest request"},
    {Field::kCacheFree, "left for the cache"},
    {Field::kCacheShort, "missing before the cache"},
    {Field::kCache, "cache"},
    {Field::kGraphs, "recorded graphs"},
    {Field::kHostUsed, "machine's memory in use"},
    {Field::kHostTotal, "machine's memory"},
    {Field::kBuffer, "largest buffer"},
};

Evidence message(const Failure& failure) {
  return {"message", std::nullopt, failure.line, failure.text};
}

// Sums up the rounding of the figures. A difference within that is not shown: it comes from rounding.
int64_t precision_of(const Case& found, std::initializer_list<Field> fields) {
  int64_t sum = 0;
  for (const Field field : fields) {
    if (const auto& figure = found.figures[field]) sum += figure->precision;
  }
  return sum;
}

void add_computed(std::vector<Evidence>& evidence, const Case& found) {
  using enum Field;
  const auto add = [&](std::string_view name, std::optional<int64_t> bytes, std::string_view how,
                       std::initializer_list<Field> fields) {
    if (!bytes || *bytes <= precision_of(found, fields)) return;  // below 0 figures contradict each other
    evidence.push_back({std::string(name), bytes, std::nullopt, std::string(how)});
  };
  if (!found.figures[kReserved])
    add("reserved by the pool", found.reserved, "allocated + idle", {kAllocated, kIdle});
  if (!found.figures[kIdle])
    add("reserved and idle", found.idle, "reserved - allocated", {kReserved, kAllocated});
  const auto& start_free = found.figures[kStartFree];
  const auto& pool = found.figures[kPool];
  if (found.outside && *found.outside < 0)
    add("more than the device has", -*found.outside, "free + reserved - total", {kTotal, kFree, kReserved});
  if (start_free && pool) {
    add("left at the start", start_free->bytes - pool->bytes, "free at the start - pool at the start",
        {kStartFree, kPool});
  }
  const std::initializer_list<Field> all = {kTotal, kFree, kReserved, kAllocated, kIdle, kProcess};
  add("outside the pool", found.outside, "total - free - reserved", all);
  if (found.own_outside_pool)
    add("this process, outside its pool", found.own_outside_pool, "this process - reserved", all);
  // The estimate is good to what a context and libraries may take.
  if (found.others_are_estimated && found.others && *found.others >= kGiB / 2) {
    add("other processes, at least", found.others,
        found.process ? "total - free - this process"
                      : "outside the pool - 1 GiB for a context and libraries",
        all);
  }
  const bool is_limited = found.free && *room_of(found) < *found.free;
  add("maximum available", found.best, is_limited ? "limit - reserved + idle" : "free + idle",
      {kFree, kIdle});
  if (found.requested && found.best && *found.requested > *found.best) {
    add("short by", *found.requested - *found.best, "requested - maximum available",
        {kRequested, kFree, kIdle});
  }
  if (found.weight_bytes && found.in("loading")) {
    evidence.push_back(
        {"weights", found.weight_bytes, std::nullopt,
         fmt::format("{:.3g} billion parameters in {}", *found.parameter_count / 1e9, found.dtype)});
  }
}

std::string sentence(std::string clause) {
  if (!clause.empty()) clause[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(clause[0])));
  return clause + ".";
}

std::vector<Evidence> collect(const Case& found, const LogJudgment& judgment) {
  std::vector<Evidence> evidence;
  const Failure* const witness = judgment.witness != nullptr ? judgment.witness : found.failure;
  if (witness == nullptr) return evidence;
  evidence.push_back(message(*witness));
  if (found.failure != witness) evidence.push_back(message(*found.failure));
  if (found.pair_line != nullptr && judgment.cause == Cause::kLimit)
    evidence.push_back({"message", std::nullopt, found.pair_line->line, found.pair_line->text});
  if (judgment.cause == Cause::kUnknown) {
    for (const CloseLine& close : found.log->close_lines) {
      if (close.line != witness->line && close.score > 1)
        evidence.push_back({"close to a cause", std::nullopt, close.line, close.text});
    }
  }
  const bool is_about_memory = judgment.witness == nullptr;
  if (!is_about_memory) return evidence;
  if (found.lender != nullptr) evidence.push_back(message(*found.lender));
  for (const auto& [field, name] : kNames) {
    const std::string_view shown = field == Field::kPrivate && found.is_apple() ? "other allocations" : name;
    if (const auto& figure = found.figures[field])
      evidence.push_back({std::string(shown), figure->bytes, figure->line, {}});
  }
  const int64_t line = found.lender != nullptr ? found.lender->line : witness->line;
  if (found.own_pid) {
    evidence.push_back({fmt::format("process {}", *found.own_pid), found.process, line,
                        "this process, as it holds just more than its pool"});
  }
  for (const Holder& holder : found.holders) {
    evidence.push_back({fmt::format("process {}", holder.pid), holder.bytes, line, {}});
  }
  add_computed(evidence, found);
  return evidence;
}

}  // namespace

Explanation explain(const Log& log) {
  const Case found = make_case(log);
  Explanation result;
  result.judgment = judge_log(found);
  result.framework = (*log.rules)[found.framework].name;
  for (const Framework tool : found.tools) result.tools.push_back((*log.rules)[tool].name);
  result.evidence = collect(found, result.judgment);
  result.next = advise(found, result.judgment);
  result.code = code_for(found, result.judgment);
  result.judgment.reason = sentence(std::move(result.judgment.reason));
  if (found.failure != nullptr) {
    result.rank = found.failure->rank;
    for (const auto& [phase, line] : found.failure->phases) result.phases.push_back(phase);
    result.facts.assign(found.derived.begin(), found.derived.end());
  }
  for (const Field field : enum_values<Field>()) {
    if (const auto& figure = found.figures[field])
      result.figures.emplace_back(to_string(field), figure->bytes);
  }
  result.already_on.assign(log.settings.begin(), log.settings.end());
  result.misspelled = log.misspelled;
  result.failure_count = log.failure_count;
  result.line_count = log.line_count;
  return result;
}

}  // namespace headroom::explain
