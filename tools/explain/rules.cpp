#include "tools/explain/rules.h"

#include <algorithm>
#include <iterator>

namespace headroom::explain {

const Rules& Rules::built_in() {
  static const Rules made;
  return made;
}

std::vector<PossibleCause> Rules::possible_causes(std::string_view list) const {
  std::vector<PossibleCause> found;
  std::copy_if(possible_causes_.begin(), possible_causes_.end(), std::back_inserter(found),
               [&](const PossibleCause& row) { return row.list == list; });
  return found;
}

std::string_view Rules::list_of(std::string_view message) const {
  for (const Status& row : statuses_) {
    if (message.find(row.text) != std::string_view::npos) return row.list;
  }
  return "start";
}

const Fault* Rules::fault(int64_t xid) const {
  const auto found = std::ranges::find_if(faults_, [&](const Fault& row) { return row.xid == xid; });
  return found == faults_.end() ? nullptr : &*found;
}

void Rules::make_index() {
  for (const CauseInfo& row : causes()) {
    made_.push_back(std::string(row.name) + ": ");
    messages_.push_back({Kind::kStatedCause, Framework::kHeadroom, made_.back()});
  }
  read_templates();
  for (const Message& message : messages_) words_.push_back(head_of(message.pattern));
  for (const auto* list : {&settings_, &phases_, &options_}) {
    for (const Setting& setting : *list) words_.push_back(head_of(setting.pattern));
  }
  std::ranges::sort(words_);
  words_.erase(std::unique(words_.begin(), words_.end()), words_.end());
  scanner_.emplace(words_);
  readings_.resize(words_.size());
  const auto readings_of = [&](std::string_view pattern) -> Readings& {
    const auto word = std::lower_bound(words_.begin(), words_.end(), head_of(pattern));
    return readings_[static_cast<size_t>(word - words_.begin())];
  };
  for (const Message& message : messages_) readings_of(message.pattern).messages.push_back(&message);
  for (const Setting& setting : settings_) readings_of(setting.pattern).settings.push_back(&setting);
  for (const Setting& phase : phases_) readings_of(phase.pattern).phases.push_back(&phase);
  for (const Setting& option : options_) readings_of(option.pattern).options.push_back(&option);
  for (Readings& readings : readings_) {
    readings.is_hint = readings.settings.empty() && readings.phases.empty() && readings.options.empty() &&
                       std::ranges::all_of(readings.messages, [](const Message* message) {
                         return message->kind == Kind::kHint;
                       });
    readings.is_fact = std::ranges::all_of(
        readings.messages, [](const Message* message) { return message->kind == Kind::kMention; });
    const auto is = [&](Kind kind) {
      return [kind](const Message* message) { return message->kind == kind; };
    };
    const auto samples = std::ranges::count_if(readings.messages, is(Kind::kSample));
    const auto hints = std::ranges::count_if(readings.messages, is(Kind::kHint));
    readings.is_sample = readings.settings.empty() && readings.phases.empty() && samples > 0 &&
                         samples + hints == static_cast<ptrdiff_t>(readings.messages.size());
  }
}

void Rules::read_templates() {
  const auto each_pattern = [this](auto&& visit) {
    for (Message& message : messages_) visit(message);
    for (Setting& setting : settings_) visit(setting);
    for (Setting& phase : phases_) visit(phase);
  };
  std::vector<size_t> begins;
  each_pattern([&](const auto& row) {
    begins.push_back(parts_.size());
    read_template(row.pattern, parts_);
  });
  begins.push_back(parts_.size());
  size_t i = 0;
  each_pattern([&](auto& row) {
    row.parts = std::span<const TemplatePart>(parts_).subspan(begins[i], begins[i + 1] - begins[i]);
    ++i;
  });
}

}  // namespace headroom::explain
