#include "tools/explain/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "tools/explain/command_line.h"
#include "tools/explain/log_rules.h"
#include "tools/explain/rule_texts.h"

namespace headroom::explain {
namespace {

constexpr size_t kLongestRepeated = 100;  // characters of a command; a longer one is not repeated

using F = Framework;

constexpr std::string_view kStrategyOption = "--strategy ";

void replace(std::string& text, std::string_view hole, std::string_view value) {
  for (size_t at = 0; (at = text.find(hole, at)) != std::string::npos; at += value.size())
    text.replace(at, hole.size(), value);
}

// A row in the words of the system and the vendor that the log shows.
std::string with_own_words(const Case& found, std::string_view row) {
  std::string text(row);
  for (const VendorWord& word : found.rules().vendor_words()) {
    if (found.has(word.setting)) replace(text, word.nvidia, word.own);
  }
  return text;
}

// Fills the holes of rows with the user's own program and numbers.
class Holes {
 public:
  explicit Holes(const Case& found) : found_(found), run_(start()) {
    values_ = {{"tip", found.log->tip},         {"share", share_that_fits(found)},
               {"less_share", less_share()},    {"lower_share", lower_share()},
               {"raised", raised_limit()},      {"lowered", lowered_number()},
               {"fraction", needed_fraction()}, {"layers", layers()},
               {"context", context()},          {"more", more_share()}};
    set("len", tokens_that_fit(found));
    set("asked", found.bytes(Field::kAsked));
    set("most", found.bytes(Field::kMost));
    const auto& batch = found.log->background[Field::kBatch];
    set("less_batch", batch && batch->bytes > 1 ? std::optional(batch->bytes / 2) : std::nullopt);
    // Something above a limit that was too low, in MiB.
    set("above_mb",
        found.requested ? std::optional(sum_of_bytes(*found.requested, 2 * kGiB) / kMiB) : std::nullopt);
  }

  // Empty where a hole has no value, or where the user's command would stay as it is, so that the row says
  // nothing.
  std::string fill(std::string_view row) const {
    const std::string text = filled_in(row);
    const size_t end = std::min(text.find("  #"), text.size());
    if (text.substr(0, end) == run_.text()) return {};
    const bool has_command = row.find("{run}") != row.npos || row.find("{set ") != row.npos ||
                             row.find("{without ") != row.npos || row.find("{half}") != row.npos ||
                             row.find("{workers}") != row.npos;
    if (end <= kLongestRepeated || !has_command) return text;
    return abridged(run_.text(), text.substr(0, end)) + text.substr(end);
  }

  // In the program's own words, of "a || b" a command's option, or an argument; empty where it has none.
  // "less" and "lighter" have words for any program.
  std::string with_changes(std::string_view row) const {
    std::string text(row);
    for (const std::string_view name : found_.rules().change_names()) {
      const std::string hole = fmt::format("{{{}}}", name);
      if (text.find(hole) == std::string::npos) continue;
      const std::string own = name == "lighter" ? lighter() : std::string(own_change(name));
      if (own.empty()) return {};
      replace(text, hole, own);
    }
    return text;
  }

  bool has_workers() const { return !run_.with_fewer_workers().empty(); }
  bool is_python() const {
    return found_.log->is_python || uses_any([](const FrameworkInfo& any) { return any.is_python; });
  }
  bool has_batch() const { return run_.batch().has_value(); }
  // Tells whether a command starts the server, which takes options; one inside a program takes arguments.
  bool is_command() const {
    if (found_.log->command.empty()) return found_.log->script.empty() && !trains();
    return uses_any([&](const FrameworkInfo& any) { return any.serves && run_.starts(any.start); });
  }

 private:
  template <class Is>
  bool uses_any(Is&& is) const {
    const std::span<const F> all = found_.rules().frameworks();
    return std::ranges::any_of(all, [&](F any) { return found_.uses(any) && is(found_.rules()[any]); });
  }

  std::string filled_in(std::string_view row) const {
    std::string text(row);
    if (text.empty() || !fill_values(text) || !fill_sets(text) || !fill_withouts(text) || !fill_halves(text))
      return {};
    replace(text, "{workers}", fewer_workers());
    replace(text, "{run}", without_assigned_in(text));
    replace(text, "{script}", found_.log->script.empty() ? "PROGRAM.py" : found_.log->script);
    return in_container(text);
  }

  std::string_view own_change(std::string_view name) const {
    const std::string_view own = own_words(found_, name);
    const size_t end = own.find(kOr);
    return end == own.npos || is_command() ? own.substr(0, end) : own.substr(end + kOr.size());
  }

  bool trains() const {
    return uses_any([](const FrameworkInfo& any) { return any.trains; });
  }

  std::string start() const {
    if (!found_.log->command.empty()) return found_.log->command;
    if (!found_.log->proven.empty()) return found_.log->proven;
    if (!found_.log->script.empty() && found_.framework != F::kHeadroom)
      return "python " + found_.log->script;
    for (const F framework : found_.rules().frameworks()) {
      const FrameworkInfo& info = found_.rules()[framework];
      // A training that runs a server's engine inside is no server.
      if (!info.start.empty() && found_.uses(framework) && !(info.serves && trains()))
        return std::string(info.start);
    }
    return is_python() ? "python PROGRAM.py" : "PROGRAM";
  }

  void set(std::string name, std::optional<int64_t> value) {
    values_.emplace_back(std::move(name), value ? fmt::format("{}", *value) : "");
  }

  bool fill_values(std::string& text) const {
    for (const auto& [name, value] : values_) {
      const std::string hole = "$" + name;
      if (text.find(hole) == std::string::npos) continue;
      if (value.empty()) return false;
      replace(text, hole, value);
    }
    return true;
  }

  // "{set -c|--ctx-size 2048}": the user's command with that option; "{set --max-num-seqs <64}" with a lower
  // value.
  bool fill_sets(std::string& text) const {
    constexpr std::string_view kOpen = "{set ";
    const size_t open = text.find(kOpen);
    if (open == std::string::npos) return true;
    const size_t close = closing_brace(text, open);
    const std::string option = text.substr(open + kOpen.size(), close - open - kOpen.size());
    const size_t blank = option.find(' ');
    const std::string flags = option.substr(0, blank);
    std::string value = blank == std::string::npos ? "" : option.substr(blank + 1);
    if (value.starts_with('<')) {
      value = lower_value(flags, value.substr(1));
      if (value.empty()) return false;
    }
    if (found_.uses(F::kLlamaCpp) && !is_command()) return false;  // an option that the binding lacks
    // "--memPoolSize=workspace:1024" replaces another value of the same option.
    const size_t equals = flags.find('=');
    const std::string name = flags.substr(0, equals);
    const bool is_given = equals != std::string::npos && run_.with(name, "") == run_.text();
    const std::string made = is_given ? run_.with(name, flags.substr(equals + 1)) : run_.with(flags, value);
    if (made == run_.text()) return false;  // it is on already
    text.replace(open, close + 1 - open, made);
    return true;
  }

  // The end of a hole, whose value may be JSON.
  static size_t closing_brace(const std::string& text, size_t open) {
    int depth = 0;
    for (size_t at = open; at < text.size(); ++at) {
      depth += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
      if (depth == 0) return at;
    }
    return text.size() - 1;
  }

  // "{without --gpu-only}": the user's command without that switch.
  bool fill_withouts(std::string& text) const {
    constexpr std::string_view kOpen = "{without ";
    const size_t open = text.find(kOpen), close = text.find('}', open);
    if (open == std::string::npos) return true;
    const std::string made = run_.without(text.substr(open + kOpen.size(), close - open - kOpen.size()));
    if (made == run_.text()) return false;
    text.replace(open, close + 1 - open, made);
    return true;
  }

  // "64", or half of what the command has where that is not more than 64; empty where it is 1.
  std::string lower_value(const std::string& flags, const std::string& usual) const {
    const std::optional<int64_t> known = run_.number(flags);
    if (!known || *known > std::strtol(usual.c_str(), nullptr, 10)) return usual;
    return *known > 1 ? fmt::format("{}", *known / 2) : "";
  }

  bool fill_halves(std::string& text) const {
    if (text.find("{half}") == std::string::npos) return true;
    const std::optional<int64_t> batch = run_.batch();
    const auto& printed = found_.log->background[Field::kBatch];
    const std::string option = lower_option();
    std::string_view own = own_words(found_, "less");
    const bool is_one = batch ? *batch < 2 : printed && printed->bytes == 1;
    if (is_one && own.empty()) own = "shorter sequences, or smaller images or chunks: the batch is 1 already";
    replace(text, "{half}",
            batch && !is_one                               ? run_.with_half_batch()
            : !option.empty()                              ? option
            : !own.empty()                                 ? std::string(own)
            : !found_.log->command.empty() && is_command() ? "fewer and shorter requests at once"
            : found_.in(kInference)
                ? "less at once: fewer sequences, a shorter prompt or context, a smaller image or chunk"
            : !is_python() && found_.framework != Framework::kNone ? "half as much data at once"
            : trains() || found_.in("training")
                ? "a batch half as large"
                : "less at once: a batch half as large, a smaller image or chunk, or a shorter sequence");
    return true;
  }

  std::string lighter() const {
    if (const std::string_view own = own_change("lighter"); !own.empty()) return std::string(own);
    if (found_.in(kInference))
      return "a smaller or quantized model (8 or 4 bits), or a part of it on the CPU or another GPU";
    return found_.in(kTraining)
               ? "bfloat16 (mixed precision), LoRA or an 8-bit optimizer"
               : "weights in 16 or 4 bits, or a smaller model; when it trains, also activation "
                 "checkpointing, LoRA or an 8-bit optimizer";
  }

  // The first of the options to lower that the log shows: in the user's command, or as the log prints it.
  std::string lower_option() const {
    const OptionInUse* const option = option_to_lower(found_);
    if (option == nullptr) return {};
    const std::string half = fmt::format("{}", option->value / 2);
    if (run_.number(option->name) == option->value) return run_.with(option->name, half);
    return fmt::format("{}: {}{} instead of {}", option->name, half, counts_tokens(*option) ? " tokens" : "",
                       option->value);
  }

  // The user's command without what `row` itself sets before it: "LIMIT=90% {run}".
  std::string without_assigned_in(const std::string& row) const {
    std::string run = run_.text();
    for (size_t begin = 0, end = 0; (end = row.find(' ', begin)) != std::string::npos; begin = end + 1) {
      const size_t equals = row.find('=', begin);
      if (equals == std::string::npos || equals > end) break;
      const size_t old = (" " + run).find(" " + row.substr(begin, equals + 1 - begin));
      if (old == std::string::npos) continue;
      const size_t behind = run.find(' ', old);
      if (behind == std::string::npos) continue;
      run.erase(old, behind + 1 - old);
    }
    return run;
  }

  std::string fewer_workers() const {
    const std::string made = run_.with_fewer_workers();
    return made.empty() ? "fewer loader workers (num_workers) and smaller queues" : made;
  }

  // Gives the fraction of the device that is needed, in hundredths.
  std::string needed_fraction() const {
    if (!found_.limit || !found_.total || !found_.requested || found_.limit_is_reserve) return "";
    const int64_t held = found_.reserved.value_or(found_.allocated.value_or(0));
    const double needed = static_cast<double>(sum_of_bytes(held, *found_.requested));
    const double fraction = std::ceil(100 * needed / static_cast<double>(*found_.total)) / 100;
    return fraction < 1 ? fmt::format("{:.2f}", fraction) : "";
  }

  // Nine tenths of the layers that what was free has room for; without figures two thirds, or 20.
  std::string layers() const {
    const auto& known = found_.log->background[Field::kLayers];
    const int64_t given = known ? known->bytes : run_.number("-ngl|--n-gpu-layers|--gpu-layers").value_or(0);
    if (given <= 1 || given > 500) return "20";
    double part = 0.66;
    if (found_.free_at_start && found_.requested && *found_.requested > 0 && found_.in("layers"))
      part = 0.9 * static_cast<double>(*found_.free_at_start) / static_cast<double>(*found_.requested);
    return fmt::format(
        "{}", std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(given) * part), 1, given - 1));
  }

  std::string context() const {
    std::optional<int64_t> known = run_.number("-c|--ctx-size");
    for (const Field field : {Field::kSequence, Field::kContext}) {
      const auto& said = found_.log->background[field];
      if (!known && said) known = said->bytes;
    }
    if (known && *known < 1024) return "";
    return known ? fmt::format("{}", *known / 2) : "4096";
  }

  // More than the log shows: a little, or a tenth where the share is small; and a tenth more than the weights
  // took of what was free, where it prints both.
  std::string more_share() const {
    constexpr double kMost = 0.97;
    const std::string share(run_.value("--gpu-memory-utilization|--mem-fraction-static"));
    const std::string& shown = share.empty() ? found_.log->share : share;
    const double known = shown.empty() ? 0.9 : std::strtod(shown.c_str(), nullptr);
    if (known >= 0.95 || known <= 0) return "";
    double more = known + (found_.in(kSmallShare) ? 0.1 : 0.05);
    const auto weights = found_.bytes(Field::kWeights), after = found_.bytes(Field::kFreeAfter);
    if (weights && after && *weights > 0 && *after > 0) {
      const double taken = static_cast<double>(*weights);
      more = std::max(more, taken / (taken + static_cast<double>(*after)) + 0.1);
    }
    return fmt::format("{:.2f}", std::min(more, kMost));
  }

  // Three fifths of the share that the log shows, for an engine beside a trainer.
  std::string less_share() const {
    const double known = std::strtod(found_.log->share.c_str(), nullptr);
    return fmt::format("{:.2f}", known > 0.1 && known <= 1 ? known * 0.6 : 0.3);
  }

  // A little less than the share that the log shows, or than the usual one.
  std::string lower_share() const {
    const double known = std::strtod(found_.log->share.c_str(), nullptr);
    return fmt::format("{:.2f}", known > 0.2 && known <= 1 ? known - 0.08 : 0.82);
  }

  // Of two numbers, one larger than the other may be: "max_lora_rank=64  # or more".
  std::string raised_limit() const {
    if (!found_.pair || found_.pair->most_name.empty()) return "";
    const NumberPair& pair = *found_.pair;
    const std::string asked = pair.is_size ? format_bytes(pair.asked) : fmt::format("{}", pair.asked);
    if (!pair.most_is_setting()) return fmt::format("{}: {} or more", pair.most_name, asked);
    const bool is_option = pair.most_name.starts_with("--");
    return fmt::format("{}{}{}  # or more", pair.most_name, is_option ? " " : "=", pair.asked);
  }

  std::string lowered_number() const {
    if (!found_.pair) return "";
    const NumberPair& pair = *found_.pair;
    const std::string most = pair.is_size ? format_bytes(pair.most) : fmt::format("{}", pair.most);
    return pair.asked_name.empty() ? fmt::format("{} or less at once", most)
                                   : fmt::format("{}: {} or less", pair.asked_name, most);
  }

  const Case& found_;
  const CommandLine run_;
  std::vector<std::pair<std::string, std::string>> values_;
};

bool fits(const AdviceRow& row, const Case& found, Cause cause, const Holes& holes) {
  const auto is_on = [&](std::string_view fact) { return found.has(fact); };
  const size_t strategy = row.command.find(kStrategyOption);
  if (row.cause != cause) return false;
  if (row.framework != F::kNone && !found.uses(row.framework)) return false;
  if (std::ranges::any_of(row.unless, is_on)) return false;
  const auto is_one_on = [&](const auto& facts) { return std::ranges::any_of(facts, is_on); };
  if (!std::ranges::all_of(row.on, is_one_on)) return false;
  if (row.kind && !found.is(*row.kind)) return false;
  // While weights load there is no batch yet.
  const bool halves = row.command.find("{half}") != std::string_view::npos;
  if (halves && found.in("loading") && !found.in("step")) return false;
  if (row.when != When::kAlways && (row.when == When::kCommand) != holes.is_command()) return false;
  if (row.no_batch && holes.has_batch()) return false;
  if (row.batch && !holes.has_batch()) return false;
  if (row.workers && !holes.has_workers() && !found.in("workers")) return false;
  if (row.python && !holes.is_python()) return false;
  if (found.failure != nullptr && !has_part(found.failure->text, row.parts)) return false;
  if (strategy != std::string_view::npos &&
      row.command.substr(strategy + kStrategyOption.size()) == found.strategy)
    return false;
  return true;
}

// True unless `oldest` is older, and, for a row with an end, where `newest` is known to be.
bool is_in_time(const AdviceRow& row, std::optional<int64_t> oldest, std::optional<int64_t> newest) {
  if (oldest && *oldest < row.from) return false;
  return row.before == 0 || (newest && *newest < row.before);
}

// Of "a || b" an option of the user's command, or an argument where the log shows no options.
std::string_view form_here(const Case& found, std::string_view row) {
  const size_t end = row.find(kOr);
  return end == row.npos || found.in(kOptionsGiven) ? row.substr(0, end) : row.substr(end + kOr.size());
}

// Tells whether a step is good on this system, for this program and what it was doing.
bool is_of_use(const Case& found, std::string_view step) {
  const auto has = [&](std::string_view fact) { return found.has(fact); };
  const auto forbids = [&](const StepCondition& condition) {
    return step.find(condition.words) != std::string_view::npos &&
           std::ranges::any_of(condition.facts, has) != condition.is_needed;
  };
  const std::span<const StepCondition> conditions = found.rules().step_conditions();
  return std::ranges::none_of(conditions, forbids);
}

// A step of little use here counts only where there would be fewer than two.
void collect(std::vector<Advice>& advice, size_t most, const Case& found, Cause cause, const Holes& holes,
             bool any_use = false) {
  for (const AdviceRow& row : found.rules().advice()) {
    if (advice.size() >= most) return;
    if (!fits(row, found, cause, holes)) continue;
    if (!is_in_time(row, found.version(), found.named_version())) continue;
    const std::string here = with_own_words(found, holes.with_changes(form_here(found, row.command)));
    if (!any_use && !is_of_use(found, here)) continue;
    std::string command = holes.fill(here);
    // A tool's own words for the batch come first, and are not said again.
    const bool halves = here.find("{half}") != std::string::npos;
    const auto same = [&](const Advice& other) {
      return other.command == command || (halves && other.command.find("batch") != std::string::npos);
    };
    if (command.empty() || std::ranges::any_of(advice, same)) continue;
    advice.push_back({std::move(command), std::string(row.why)});
  }
}

// Gives the memory that the whole process may take; 0: unknown.
int64_t memory_to_keep(const Case& found, Cause cause) {
  int64_t memory = 0;
  if (cause == Cause::kLimit && found.limit && !found.limit_is_reserve) {
    const int64_t outside = found.limit_is_on_process ? 0 : found.own_outside_pool.value_or(0);
    memory = sum_of_bytes(*found.limit, outside);
  } else if (cause == Cause::kExhausted && found.total) {
    memory = *found.total;
    for (const Holder& holder : found.holders) memory -= holder.bytes;
  }
  return std::max<int64_t>(memory, 0);
}

std::string memory_text(int64_t memory) {
  return memory > 0 ? exact_size(std::max(memory / kMiB, int64_t{1}) * kMiB) : "SIZE";
}

// The command of a training as `headroom solve` takes it: the user's own, if Python or one of its launchers
// runs it.
std::string python_command(const Log& log) {
  constexpr std::string_view kLaunchers[] = {"python", "torchrun ", "accelerate "};
  const bool is_known = std::ranges::any_of(
      kLaunchers, [&](std::string_view launcher) { return log.command.starts_with(launcher); });
  if (is_known && log.command.size() <= kLongestRepeated) return log.command;
  return "python " + shell_word(log.script);
}

// Proposes to solve a training, whose file the log names, or may be any, for several changes together.
std::optional<Advice> solve_it(const Case& found, Cause cause) {
  if (found.framework != F::kTorch || !found.ranks.empty() || found.in(kInference) ||
      found.in("generation") || found.in("evaluation") || found.in("colocated") || found.in("merging"))
    return {};
  const int64_t memory = memory_to_keep(found, cause);
  if (found.in("step") && found.log->script.ends_with(".py")) {
    if (memory == 0) return {};
    return Advice{
        fmt::format("headroom solve --memory {} -- {}", memory_text(memory), python_command(*found.log)),
        "find modules to checkpoint and other changes that fit, without a GPU"};
  }
  const bool is_of_the_pool =
      cause == Cause::kExhausted || cause == Cause::kFragmentation || cause == Cause::kLimit;
  const bool is_known = !found.log->script.empty() || found.in("loading") || found.in(kServes);
  if (!is_of_the_pool || is_known || !found.is(Kind::kAllocation)) return {};
  return Advice{fmt::format("headroom solve --memory {} -- python train.py", memory_text(memory)),
                "find changes that fit this budget, without a GPU"};
}

}  // namespace

Code code_for(const Case& found, const LogJudgment& judgment) {
  const Holes holes(found);
  const std::optional<int64_t> version = found.newest_version();
  for (const AdviceRow& row : found.rules().code()) {
    if (fits(row, found, judgment.cause, holes) && is_in_time(row, version, version))
      return {std::string(row.command), {row.lines.begin(), row.lines.end()}};
  }
  return {};
}

std::vector<Advice> advise(const Case& found, const LogJudgment& judgment) {
  constexpr size_t kSteps = 2, kMostSteps = 4;
  const Holes holes(found);
  std::vector<Advice> advice;
  if (found.framework == F::kHeadroom && !found.log->proven.empty()) {
    advice.push_back({found.log->proven, "the smallest change that the program found to fit"});
  }
  const bool has_other_ways = !judgment.other_ways.empty();
  collect(advice, has_other_ways ? advice.size() + 1 : kSteps, found, judgment.cause, holes);
  if (has_other_ways) {
    for (const Possibility& other : judgment.other_ways)
      collect(advice, std::min(advice.size() + 1, kMostSteps - 1), found, other.cause, holes);
    collect(advice, advice.size() + 1, found, judgment.cause, holes);
  }
  if (std::optional<Advice> solve = solve_it(found, judgment.cause)) advice.push_back(std::move(*solve));
  collect(advice, kSteps, found, judgment.cause, holes, true);
  if (advice.size() < kSteps) std::abort();  // each cause has two rows without conditions; a test counts them
  return advice;
}

}  // namespace headroom::explain
