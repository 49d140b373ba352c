// Finds what follows from a case's figures and words: facts of the system, the program and its activity that
// no single line of the log names.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/text.h"
#include "tools/explain/case.h"
#include "tools/explain/rule_texts.h"

namespace headroom::explain {
namespace {

// Some drivers give no piece of 4 GiB, whatever is free. Two thirds of what the pool does not hold may be
// others' where the message does not say what is free.
void find_large_piece(Case& result) {
  if (!result.is(Kind::kAllocation) || !result.requested || !result.total) return;
  if (*result.requested < 4 * kGiB || *result.requested > *result.total) return;
  const int64_t held = std::max(result.reserved.value_or(0), result.allocated.value_or(0));
  const int64_t room = result.free ? *result.free : (*result.total - held) / 3 * 2;
  if (room > *result.requested) result.derived.insert(kLargePiece);
}

// A server gets less than half where others are meant to have the rest.
void find_small_share(Case& result) {
  const double share = std::strtod(result.log->share.c_str(), nullptr);
  if (share > 0 && share < 0.5) result.derived.insert(kSmallShare);
}

// A message that no rule knows may still compare two numbers, on its own line or on one of those that look
// closest to a cause. Two sizes near words of memory that ran out need no word of an error on their own line.
void find_pair(Case& result) {
  const Failure& failure = *result.failure;
  if (failure.kind != Kind::kOtherError && failure.kind != Kind::kSomeMemory &&
      failure.kind != Kind::kAftermath)
    return;
  constexpr int64_t kLinesOfAMessage = 3;
  const bool is_of_memory = failure.kind == Kind::kSomeMemory;
  const auto read = [&](const std::string& line) {
    result.pair = number_pair_in(line);
    if (result.pair || !is_of_memory) return;
    result.pair = number_pair_in(line, true);
    if (result.pair && !result.pair->is_size) result.pair.reset();
  };
  read(failure.text);
  for (const CloseLine& line : result.log->close_lines) {
    if (result.pair) break;
    read(line.text);
    const int64_t below = line.line - failure.line;
    if (!result.pair && below > 0 && below < kLinesOfAMessage) result.pair = number_pair_in(line.text, true);
    if (result.pair) result.pair_line = &line;
  }
  if (!result.pair) return;
  const int64_t line = result.pair_line != nullptr ? result.pair_line->line : failure.line;
  result.figures[Field::kAsked] = Figure{result.pair->asked, line};
  result.figures[Field::kMost] = Figure{result.pair->most, line};
  result.derived.insert(result.pair->is_size ? kSizePair : kPair);
  if (result.pair->most_is_setting()) result.derived.insert(kOptionPair);
}

bool names_training(std::string_view command) {
  for (const std::string_view word : {"train", "finetune", "fine_tune", "sft", "grpo", "dpo"}) {
    if (command.find(word) != std::string_view::npos) return true;
  }
  return false;
}

// What frameworks and the command say of the activity; the rest is rows of rules/facts.txt.
void find_kind_of_program(Case& result) {
  const auto any_tool = [&](bool FrameworkInfo::*is) {
    return result.rules()[result.framework].*is ||
           std::ranges::any_of(result.tools, [&](Framework tool) { return result.rules()[tool].*is; });
  };
  if (result.log->command.find(" --") != std::string::npos) result.derived.insert(kOptionsGiven);
  if (any_tool(&FrameworkInfo::serves)) result.derived.insert(kServes);
  if (any_tool(&FrameworkInfo::trains) || names_training(result.log->command) ||
      names_training(result.log->script))
    result.derived.insert(kTrains);
}

void find_sizes(Case& result) {
  constexpr int64_t kSmallCardBytes = 8 * kGiB + kGiB / 2, kTinyBytes = 64 * kMiB, kHugeBytes = 32 * kGiB;
  // A channel of NCCL takes megabytes.
  const int64_t tiny = result.is(Kind::kCollective) ? kMiB : kTinyBytes;
  if (result.total && *result.total <= kSmallCardBytes) result.derived.insert(kSmallCard);
  if (result.requested && *result.requested <= tiny && !result.total && !result.allocated)
    result.derived.insert(kTinyRequest);
  if (result.requested && result.total && *result.requested >= *result.total / 4)
    result.derived.insert(kLargeRequest);
  if (result.requested && result.total && *result.requested <= *result.total / 64)
    result.derived.insert(kSmallRequest);
  if (result.requested && *result.requested >= kHugeBytes) result.derived.insert(kHugeRequest);
  const bool is_refusal =
      result.is(Kind::kAllocation) || result.is(Kind::kBareRefusal) || result.is(Kind::kSomeMemory);
  const bool has_room =
      result.free && *result.free >= 2 * kGiB && (!result.total || *result.free >= *result.total / 4);
  if (is_refusal && has_room && !result.requested) result.derived.insert(kRefusedWithRoom);
  if (result.requested && result.free_at_start && *result.free_at_start / 10 * 9 > *result.requested)
    result.derived.insert(kFitsAtStart);
  if (result.requested && result.free && *result.requested < *result.free) result.derived.insert(kFitsInFree);
  const bool is_empty = result.total && result.allocated && !result.free && result.holders.empty() &&
                        *result.allocated <= *result.total / 20 && result.requested &&
                        *result.requested <= *result.total / 10;
  if (is_refusal && is_empty) result.derived.insert(kRefusedWhenEmpty);
  const auto asked = result.bytes(Field::kAsked), most = result.bytes(Field::kMost);
  if (result.is(Kind::kExceeds) && asked && most && *asked <= *most) result.derived.insert(kFitsByCount);
  if (std::strtod(result.log->fraction.c_str(), nullptr) >= 0.98) result.derived.insert(kWholeFraction);
  if (result.process && result.reserved && *result.process - *result.reserved >= *result.process / 2)
    result.derived.insert(kOutsidePool);
}

// Only where the message does not say what the pool holds: otherwise figures of the pool tell.
void find_rest_elsewhere(Case& result) {
  if (!result.is(Kind::kAllocation) || result.is_apple() || !result.total || !result.free ||
      !result.requested)
    return;
  if (result.reserved || result.process || !result.allocated) return;
  const int64_t rest = *result.total - *result.free - *result.allocated;
  if (*result.total <= 64 * kGiB && rest - kGiB >= *result.requested) result.derived.insert(kRestElsewhere);
}

void find_words_of_request(Case& result) {
  if (result.requested) result.derived.insert(kSized);
  if (!result.log->tip.empty()) result.derived.insert(kOwnTip);
  if (result.attention_scores) result.derived.insert(kScores);
  if (result.is_apple()) result.derived.insert(kMps);
}

void find_stated_facts(Case& result) {
  const auto has = [&](std::string_view fact) { return result.has(fact); };
  for (const Fact& fact : result.rules().facts()) {
    if (std::ranges::any_of(fact.unless, has)) continue;
    const auto holds = [&](const std::vector<std::string_view>& all) {
      return std::ranges::all_of(all, has);
    };
    if (std::ranges::any_of(fact.any, holds)) result.derived.insert(fact.name);
  }
}

// A quarter of what is allocated; on Apple's GPUs the figure means other allocations, mostly idle pieces of
// the pool.
void find_graph_pools(Case& result) {
  const std::optional<int64_t> graphs = result.bytes(Field::kPrivate);
  if (result.is_apple() && graphs && result.allocated && *graphs > *result.allocated)
    result.derived.insert(kMpsKept);
  if (result.is_apple() || !graphs || !result.allocated || *graphs < kGiB / 2) return;
  if (*graphs >= *result.allocated / 4) result.derived.insert(kGraphPools);
}

// The second request of a process failed while it handled the failure of the first.
void find_held_by_handler(Case& result) {
  const Failure& first = *result.failure;
  if (first.kind != Kind::kAllocation) return;
  const auto is_second = [&](const Failure& other) {
    return other.kind == Kind::kAllocation && other.rank == first.rank && other.handling_line > first.line &&
           other.figures[Field::kRequested];
  };
  if (std::ranges::any_of(result.log->failures, is_second)) result.derived.insert(kHeldByHandler);
}

void find_long_sequence(Case& result) {
  constexpr int64_t kLong = 1024;
  constexpr int64_t kLongContextTokens = 32768;
  const auto& length = result.log->background[Field::kLength];
  if (length && length->bytes >= kLong) result.derived.insert(kLongSequence);
  const auto& batch = result.log->background[Field::kBatch];
  if (batch && batch->bytes == 1) result.derived.insert(kBatchOfOne);
  const auto& context = result.log->background[Field::kSequence];
  const auto& cache = result.log->background[Field::kCache];
  const auto& weights = result.log->background[Field::kWeights];
  if ((context && context->bytes >= kLongContextTokens) ||
      (cache && weights && cache->bytes > weights->bytes / 2))
    result.derived.insert(kLongContext);
}

}  // namespace

std::string_view own_words(const Case& found, std::string_view change) {
  const auto text_in = [&](const Changes& changes) {
    const auto at = std::ranges::find_if(changes, [&](const auto& each) { return each.first == change; });
    return at == changes.end() ? std::string_view() : at->second;
  };
  for (const Fact& fact : found.rules().facts()) {
    const std::string_view text = text_in(fact.changes);
    if (!text.empty() && found.in(fact.name)) return text;
  }
  for (const Framework tool : found.tools) {
    const FrameworkInfo& info = found.rules()[tool];
    const std::string_view text = text_in(info.changes);
    if (!text.empty() && !(info.serves && found.in(kTraining))) return text;
  }
  return text_in(found.rules()[found.framework].changes);
}

bool counts_tokens(const OptionInUse& option) {
  return option.kind == "length" || option.kind == "tokens";
}

const OptionInUse* option_to_lower(const Case& found) {
  constexpr int64_t kFewest = 2, kFewestTokens = 1024;
  const std::string_view own = own_words(found, "options");
  constexpr std::string_view kAll = "batch|samples|length|tokens|pixels|frames";
  for (const std::string_view kind : split(own.empty() ? kAll : own, "|")) {
    for (const OptionInUse& option : found.log->options) {
      const bool can_be_halved = option.value >= (counts_tokens(option) ? kFewestTokens : kFewest);
      if (option.kind == kind && can_be_halved) return &option;
    }
  }
  return nullptr;
}

void find_facts(Case& found) {
  if (found.in(kFailedLoading)) found.derived.insert(kLoading);
  find_small_share(found);
  find_large_piece(found);
  find_pair(found);
  find_graph_pools(found);
  find_held_by_handler(found);
  find_long_sequence(found);
  find_kind_of_program(found);
  find_sizes(found);
  find_rest_elsewhere(found);
  find_words_of_request(found);
  find_stated_facts(found);
  if (found.has("engine_beside") && !found.holders.empty()) found.derived.insert(kOwnRanks);
  if (!own_words(found, "less").empty()) found.derived.insert(kOwnWords);
}

}  // namespace headroom::explain
