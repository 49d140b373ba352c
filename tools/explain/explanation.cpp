#include "tools/explain/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

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
    {Field::kLimit, "limit that was set"},
    {Field::kProcess, "this process"},
    {Field::kOthers, "other processes"},
};

Evidence message(const Failure& failure) {
  return {"message", std::nullopt, failure.line, failure.text};
}

void add_computed(std::vector<Evidence>& evidence, const Case& facts) {
  const auto add = [&](std::string_view name, std::optional<int64_t> bytes, std::string_view how) {
    if (bytes) evidence.push_back({std::string(name), bytes, std::nullopt, std::string(how)});
  };
  if (!facts.figures[Field::kReserved]) add("reserved by the pool", facts.reserved, "allocated + idle");
  if (!facts.figures[Field::kIdle]) add("reserved and idle", facts.idle, "reserved - allocated");
  const auto& start_free = facts.figures[Field::kStartFree];
  const auto& pool = facts.figures[Field::kPool];
  if (start_free && pool) {
    add("left at the start", start_free->bytes - pool->bytes, "free at the start - pool at the start");
  }
  add("outside the pool", facts.outside, "total - free - reserved");
  if (facts.own_outside_pool)
    add("this process, outside its pool", facts.own_outside_pool, "this process - reserved");
  if (facts.others && *facts.others > 0 && !facts.others_named) {
    add("other processes, at least", facts.others,
        facts.process ? "total - free - this process"
                      : "outside the pool - 1 GiB for a context and libraries");
  }
  add("the most that can be had", facts.best, "free + idle");
  if (facts.requested && facts.best && *facts.requested > *facts.best) {
    add("short by", *facts.requested - *facts.best, "requested - the most that can be had");
  }
}

std::vector<Evidence> collect(const Case& facts, const Judgement& judgement) {
  std::vector<Evidence> evidence;
  const Failure* const witness = judgement.witness != nullptr ? judgement.witness : facts.failure;
  if (witness == nullptr) return evidence;
  evidence.push_back(message(*witness));
  if (facts.failure != witness) evidence.push_back(message(*facts.failure));
  const bool is_about_memory = judgement.witness == nullptr;
  if (!is_about_memory) return evidence;
  if (facts.lender != nullptr) evidence.push_back(message(*facts.lender));
  for (const auto& [field, name] : kNames) {
    if (const auto& figure = facts.figures[field])
      evidence.push_back({std::string(name), figure->bytes, figure->line, {}});
  }
  const int64_t line = facts.lender != nullptr ? facts.lender->line : witness->line;
  if (facts.own_pid) {
    evidence.push_back({fmt::format("process {}", *facts.own_pid), facts.process, line,
                        "this process itself, as it holds just more than the pool"});
  }
  for (const Holder& holder : facts.holders) {
    evidence.push_back({fmt::format("process {}", holder.pid), holder.bytes, line, {}});
  }
  add_computed(evidence, facts);
  return evidence;
}

}  // namespace

Explanation explain(const Log& log) {
  const Case facts = make_case(log);
  Explanation result;
  result.judgement = judge(facts);
  result.framework = facts.framework;
  result.evidence = collect(facts, result.judgement);
  result.next = advise(facts, result.judgement);
  result.failure_count = log.failure_count;
  result.line_count = log.line_count;
  return result;
}

}  // namespace headroom::explain
