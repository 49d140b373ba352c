// Reads rules files, for Rules' constructor.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "tools/explain/rule_texts.h"
#include "tools/explain/rules.h"
#include "tools/explain/template_match.h"

namespace headroom::explain {
namespace {

constexpr size_t kLongestLine = 1000, kMostFrameworks = 200;
constexpr std::string_view kExamples = "===";  // starts examples, which are for tests

}  // namespace

class RulesReader {
 public:
  explicit RulesReader(Rules& rules) : rules_(rules) {
    rules_.infos_.resize(kNamedFrameworks.size());
    rules_.order_.push_back(Framework::kNone);
  }

  void read_frameworks(const RulesFile& file) {
    each_line(file, [&](std::string_view line) {
      if (line.starts_with("framework ")) read_row(line);
    });
  }

  void read_rows(const RulesFile& file) {
    each_line(file, [&](std::string_view line) {
      if (line.starts_with("  ")) return read_detail(line.substr(2));
      end_row();
      if (!line.starts_with("framework ")) return read_row(line);
      head_ = line.substr(0, line.find(':'));
      take_word(head_);
      FrameworkInfo& info = rules_.infos_[static_cast<size_t>(named_framework(take_word(head_)))];
      detail_.start = &info.start;
      detail_.changes = &info.changes;
    });
    end_row();
  }

  // Looks for the names that a later row may have defined.
  void check_names() {
    std::set<std::string_view> names(std::begin(kDerivedFacts), std::end(kDerivedFacts));
    for (const Setting& setting : rules_.settings_) names.insert(setting.name);
    for (const Setting& phase : rules_.phases_) names.insert(phase.name);
    for (const Fact& fact : rules_.facts_) names.insert(fact.name);
    for (const FrameworkInfo& info : rules_.infos_) names.insert(info.id);
    for (const FrameworkInfo& info : rules_.infos_) add_names(info.changes);
    for (const Fact& fact : rules_.facts_) add_names(fact.changes);
    check(
        references_, [&](auto name) { return names.contains(name); },
        "no setting, phase, fact or framework is named '{}'");
    check(
        without_why_, [&](auto step) { return whys_.contains(step); }, "the advice has no line '  why: ...'");
    for (AdviceRow& row : rules_.advice_) {
      if (row.why.empty()) row.why = whys_[row.command];
    }
    std::ranges::stable_sort(rules_.advice_, [](const AdviceRow& a, const AdviceRow& b) {
      return std::pair(a.cause, a.place) < std::pair(b.cause, b.place);
    });
  }

 private:
  struct Reference {
    std::string_view name, file;
    int64_t line;
  };
  template <class IsKnown>
  void check(const std::vector<Reference>& references, IsKnown&& is_known, fmt::string_view what) {
    for (const Reference& reference : references) {
      if (is_known(reference.name)) continue;
      file_ = reference.file;
      line_ = reference.line;
      fail(what, reference.name);
    }
  }
  // Targets of the indented lines after a row; null for those that the row does not take.
  struct Detail {
    std::string_view *start = nullptr, *parts = nullptr, *confirm = nullptr;
    std::vector<AdviceRow>* rows = nullptr;  // of one line, from the first one on
    size_t first_row = 0;
    Changes* changes = nullptr;
    int64_t line = 0;  // line of the row
  };

  template <class... Values>
  [[noreturn]] void fail(fmt::string_view what, const Values&... values) const {
    const std::string text = fmt::vformat(what, fmt::make_format_args(values...));
    throw InvalidArgument(fmt::format("{}:{}: {}", printable(file_), line_, printable(text)));
  }

  template <class Read>
  void each_line(const RulesFile& file, Read&& read) {
    file_ = file.name;
    line_ = 0;
    for (std::string_view rest = file.text; !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      ++line_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.starts_with(kExamples)) return;
      if (line.size() > kLongestLine) fail("a line has more than {} bytes", kLongestLine);
      if (!line.empty() && line[0] != '#') read(line);
    }
  }

  // "KEY words: text"; a text that begins or ends with a blank is in quotes.
  std::string_view take_head(std::string_view line) {
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos) fail("expected 'words: text', found '{}'", line);
    head_ = line.substr(0, colon);
    const std::string_view text = line.substr(colon + 2);
    const bool is_plain = std::ranges::all_of(text, [](char c) { return c >= ' ' && c < '\x7f'; });
    if (!is_plain && printable(text) != text) fail("the text has characters that are no text");
    return text;
  }

  std::string_view unquoted(std::string_view text) const {
    text = without_quotes(text);
    if (text.empty()) fail("the text is empty");
    return text;
  }

  // Calls read(text) for each text of a row.
  template <class Read>
  void each_text(std::string_view row, Read&& read) {
    const std::optional<std::vector<std::string_view>> texts = texts_of(row, rules_.made_);
    if (!texts) fail("'{}' has more than {} texts", row, kMostTexts);
    for (const std::string_view text : *texts) read(unquoted(text));
  }

  std::string_view pattern(std::string_view text) const {
    const std::string fault = template_fault(text);
    if (!fault.empty()) fail("'{}' {}", text, fault);
    return text;
  }

  // Checks the holes of a reason.
  std::string_view reason(std::string_view text) const {
    for (size_t open = 0; (open = text.find('{', open)) != std::string_view::npos; ++open) {
      const size_t close = text.find('}', open);
      if (close == std::string_view::npos) fail("'{}' lacks a '}}'", text.substr(open));
      const Field field = parse<Field>(text.substr(open + 1, close - open - 1));
      if (is_text(field)) fail("'{}' has a hole for a text", text);
    }
    return text;
  }

  void read_row(std::string_view line) {
    const std::string_view texts = take_head(line), text = unquoted(texts);
    const std::string_view key = take_word(head_);
    if (key == to_string(kind_)) {
      read_messages(texts);
    } else if (key == "framework") {
      read_framework(text);
    } else if (key == "advice" || key == "code") {
      read_advice(text, key == "advice" ? rules_.advice_ : rules_.code_);
    } else if (key == "setting" || key == "phase" || key == "option") {
      std::vector<Setting>& rows = key == "setting" ? rules_.settings_
                                   : key == "phase" ? rules_.phases_
                                                    : rules_.options_;
      each_text(texts, [&, name = name()](auto each) {
        rows.push_back({name, pattern(each)});
        const std::string_view path = windows_path(each, rules_.made_);
        if (!path.empty() && &rows == &rules_.phases_) rows.push_back({name, path});
      });
    } else if (key == "fact") {
      read_fact(text);
    } else if (key == "needs" || key == "never") {
      each_text(texts, [&, needed = key == "needs", facts = references(name())](auto each) {
        rules_.step_conditions_.push_back({each, needed, facts});
      });
    } else if (key == "verdict") {
      const Kind kind = named<Kind>();
      const std::string_view setting = setting_of_row();
      const Cause cause = named_cause();
      rules_.verdicts_.push_back({kind, cause, named<Confidence>(), reason(text), {}, setting});
      detail_.parts = &rules_.verdicts_.back().parts;
    } else if (key == "during") {
      const std::string_view phase = reference(), setting = setting_of_row();
      const Cause cause = named_cause();
      rules_.during_.push_back({phase, setting, cause, named<Confidence>(), reason(text)});
    } else if (key == "possible") {
      const std::string_view list = name();
      rules_.possible_causes_.push_back({list, named_cause(), text});
      detail_.line = line_;
      detail_.confirm = &rules_.possible_causes_.back().confirm;
    } else if (key == "status") {
      each_text(texts, [&, list = name()](auto each) { rules_.statuses_.push_back({list, each}); });
    } else if (key == "fault") {
      const int64_t xid = number(name());
      rules_.faults_.push_back({xid, take_flag("program"), text});
    } else if (key == "vendor") {
      const auto [nvidia, own] = both_of(text);
      rules_.vendor_words_.push_back({reference(), nvidia, own});
    } else if (key == "why") {
      whys_.insert(both_of(text));
    } else if (key == "hypothetical" || key == "advising") {
      auto& words = key == "advising" ? rules_.advising_words_ : rules_.hypothetical_words_;
      each_text(texts, [&](auto each) { words.push_back(each); });
    } else {
      kind_ = parse<Kind>(key);
      read_messages(texts);
    }
    if (!head_.empty()) fail("'{}' means nothing here", head_);
  }

  void end_row() {
    const AdviceRow* row = detail_.rows == nullptr ? nullptr : &detail_.rows->back();
    const bool is_code = detail_.rows == &rules_.code_;
    const bool lacks_confirm = detail_.confirm != nullptr && detail_.confirm->empty();
    if (row != nullptr && !is_code && row->why.empty())
      without_why_.push_back({row->command, file_, detail_.line});
    const bool lacks_lines = row != nullptr && is_code && row->lines.empty();
    line_ = lacks_confirm || lacks_lines ? detail_.line : line_;
    if (lacks_lines) fail("the code has no line '  line: ...'");
    if (lacks_confirm) fail("the cause has no line '  confirm: ...'");
    detail_ = {};
  }

  void read_detail(std::string_view line) {
    const std::string_view text = unquoted(take_head(line));
    const bool is_code = detail_.rows == &rules_.code_, is_advice = detail_.rows == &rules_.advice_;
    if (is_advice || is_code) {
      if (head_ != "if" && head_ != (is_code ? "line" : "why")) fail("'{}' means nothing here", head_);
      for (AdviceRow& row : std::span(*detail_.rows).subspan(detail_.first_row)) {
        if (head_ == "line") {
          row.lines.push_back(text);
        } else {
          (head_ == "if" ? row.parts : row.why) = text;
        }
      }
      return;
    }
    std::string_view* const target = head_ == "start"     ? detail_.start
                                     : head_ == "if"      ? detail_.parts
                                     : head_ == "confirm" ? detail_.confirm
                                                          : nullptr;
    if (target != nullptr) {
      *target = text;
    } else if (detail_.changes != nullptr && head_.find(' ') == head_.npos) {
      detail_.changes->emplace_back(head_, text);
    } else {
      fail("'{}' means nothing here", head_);
    }
  }

  void read_framework(std::string_view text) {
    const std::string_view id = name();
    const auto known = std::ranges::find(kNamedFrameworks, id);
    auto index = static_cast<size_t>(known - kNamedFrameworks.begin());
    if (known == kNamedFrameworks.end()) {
      index = rules_.infos_.size();
      rules_.infos_.emplace_back();
    }
    FrameworkInfo& info = rules_.infos_[index];
    const auto has_id = [&](const FrameworkInfo& other) { return other.id == id; };
    if (std::ranges::any_of(rules_.infos_, has_id)) fail("a second framework '{}'", id);
    if (rules_.infos_.size() > kMostFrameworks) fail("these are too many frameworks");
    info.id = id;
    info.name = text;
    info.is_tool = take_flag("tool");
    info.serves = take_flag("serves");
    info.trains = take_flag("trains");
    info.is_python = take_flag("python");
    rules_.order_.push_back(static_cast<Framework>(index));
  }

  void read_messages(std::string_view texts) {
    Message message;
    message.kind = kind_;
    const Flags flags = {
        {"weak", &message.weak}, {"shell", &message.is_a_shells}, {"exit-code", &message.is_exit_code}};
    while (!head_.empty()) {
      if (take_one(flags)) continue;
      if (take_flag("since"))
        message.at_least = version();
      else if (take_flag("until"))
        message.at_most = version();
      else
        message.framework = named_framework(take_word(head_));
    }
    each_text(texts, [&](auto each) {
      message.pattern = pattern(each);
      rules_.messages_.push_back(message);
      const bool may_begin = message.framework == Framework::kNone && is_of_any_program(kind_);
      message.pattern = may_begin                 ? with_capital(each, rules_.made_)
                        : kind_ == Kind::kMention ? windows_path(each, rules_.made_)
                                                  : std::string_view();
      if (!message.pattern.empty()) rules_.messages_.push_back(message);
    });
  }

  // A message that any program prints may begin a sentence.
  static bool is_of_any_program(Kind kind) {
    return kind == Kind::kSomeMemory || kind == Kind::kRecovered || kind == Kind::kFallback ||
           kind == Kind::kTip || kind == Kind::kHint || kind == Kind::kProgress || kind == Kind::kSample;
  }

  // "words => words"
  std::pair<std::string_view, std::string_view> both_of(std::string_view text) const {
    constexpr std::string_view kArrow = " => ";
    const size_t arrow = text.find(kArrow);
    if (arrow == std::string_view::npos || arrow == 0)
      fail("expected 'words{}words', found '{}'", kArrow, text);
    return {text.substr(0, arrow), text.substr(arrow + kArrow.size())};
  }

  void read_advice(std::string_view text, std::vector<AdviceRow>& rows) {
    AdviceRow row;
    std::vector<Cause> causes;
    std::vector<Framework> frameworks;
    for (const std::string_view word : split(name(), "|")) causes.push_back(cause_named(word));
    row.command = text;
    for (size_t open = 0; (open = text.find("{set ", open)) != std::string_view::npos; ++open) {
      if (text.find('}', open) == std::string_view::npos) fail("'{}' lacks a '}}'", text.substr(open));
    }
    const Flags flags = {{"no-batch", &row.no_batch},
                         {"batch", &row.batch},
                         {"workers", &row.workers},
                         {"python", &row.python}};
    while (!head_.empty()) {
      if (take_one(flags)) {
        continue;
      } else if (take_flag("first")) {
        row.place = -1;
      } else if (take_flag("late")) {
        row.place = 1;
      } else if (take_flag("unless")) {
        for (const std::string_view fact : references(name())) row.unless.push_back(fact);
      } else if (take_flag("on") || take_flag("phase")) {
        row.on.push_back(references(name()));
      } else if (take_flag("kind")) {
        row.kind = named<Kind>();
      } else if (take_flag("from")) {
        row.from = version();
      } else if (take_flag("before")) {
        row.before = version();
      } else if (take_flag("command")) {
        row.when = When::kCommand;
      } else if (take_flag("script")) {
        row.when = When::kScript;
      } else {
        for (const std::string_view word : split(take_word(head_), "|"))
          frameworks.push_back(named_framework(word));
      }
    }
    if (frameworks.empty()) frameworks.push_back(Framework::kNone);
    detail_.rows = &rows;
    detail_.first_row = rows.size();
    for (const Cause cause : causes) {
      for (const Framework framework : frameworks) {
        row.cause = cause;
        row.framework = framework;
        rows.push_back(row);
      }
    }
    detail_.line = line_;
  }

  std::string_view name() {
    const std::string_view word = take_word(head_);
    if (word.empty()) fail("a name is missing before the colon");
    return word;
  }

  using Flags = std::vector<std::pair<std::string_view, bool*>>;
  bool take_one(const Flags& flags) {
    return std::ranges::any_of(
        flags, [&](const auto& each) { return take_flag(each.first) && (*each.second = true); });
  }

  bool take_flag(std::string_view flag) {
    const size_t end = flag.size();
    if (!head_.starts_with(flag) || (head_.size() > end && head_[end] != ' ')) return false;
    take_word(head_);
    return true;
  }

  std::string_view setting_of_row() { return take_flag("on") ? reference() : std::string_view(); }
  // The name of a setting, phase, fact or framework, of this row or another one.
  std::string_view reference() { return references(name()).front(); }

  void add_names(const Changes& changes) {
    for (const auto& [name, text] : changes) rules_.change_names_.insert(name);
  }

  // Names with '|' between them.
  std::vector<std::string_view> references(std::string_view text) {
    std::vector<std::string_view> names = split(text, "|");
    for (const std::string_view each : names) references_.push_back({each, file_, line_});
    return names;
  }

  // "fact NAME [unless A|B]: C|D and E"
  void read_fact(std::string_view text) {
    Fact fact;
    fact.name = name();
    if (take_flag("unless")) fact.unless = references(name());
    for (const std::string_view part : split(text, "|")) {
      std::vector<std::string_view>& all = fact.any.emplace_back();
      for (const std::string_view each : split(part, " and ")) all.push_back(references(each).front());
    }
    rules_.facts_.push_back(std::move(fact));
    detail_.changes = &rules_.facts_.back().changes;
  }

  template <NamedEnum E>
  E parse(std::string_view word) const {
    const std::span<const std::string_view> names = enum_names<E>();
    const auto found = std::ranges::find(names, word);
    if (found == names.end()) fail("unknown word '{}'; known: {}", word, list_with_suggestion(word, names));
    return static_cast<E>(found - names.begin());
  }
  template <NamedEnum E>
  E named() {
    return parse<E>(name());
  }

  Cause named_cause() { return cause_named(name()); }

  Cause cause_named(std::string_view word) const {
    for (const CauseInfo& row : causes()) {
      if (row.name == word) return row.cause;
    }
    fail("no cause is named '{}'", word);
  }

  Framework named_framework(std::string_view word) const {
    for (const Framework framework : rules_.order_) {
      if (!word.empty() && rules_[framework].id == word) return framework;
    }
    fail("no framework is named '{}'", word);
  }

  int64_t number(std::string_view word) const {
    const auto number = parse_number<int64_t>(word);
    if (!number) fail("'{}' is no number", word);
    return *number;
  }

  // "2.10" is 2010.
  int64_t version() {
    const std::string_view word = name();
    const size_t dot = word.find('.');
    const int64_t major = number(word.substr(0, dot)),
                  minor = dot == word.npos ? 0 : number(word.substr(dot + 1));
    if (major < 0 || major > 9999 || minor < 0 || minor > 999) fail("'{}' is no version", word);
    return 1000 * major + minor;
  }

  Rules& rules_;
  std::string_view file_, head_;  // unread words before the colon
  int64_t line_ = 0;
  Detail detail_;
  Kind kind_ = Kind::kIndex;  // kind of the last message: rows for a kind follow each other
  std::vector<Reference> references_, without_why_;
  std::map<std::string_view, std::string_view> whys_;  // of steps whose rows have none
};

Rules::Rules(std::optional<RulesFile> own) {
  std::vector<RulesFile> files(built_in_files().begin(), built_in_files().end());
  if (own) {
    own_text_ = own->text;
    files.insert(files.begin(), {own->name, own_text_});
  }
  RulesReader reader(*this);
  // Rows of one's own count before the others; frameworks of one's own come after them.
  for (const RulesFile& file : built_in_files()) reader.read_frameworks(file);
  if (own) reader.read_frameworks(files.front());
  for (const RulesFile& file : files) reader.read_rows(file);
  reader.check_names();
  make_index();
}

}  // namespace headroom::explain
