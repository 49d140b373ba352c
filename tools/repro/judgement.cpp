#include "tools/repro/judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"

namespace headroom::repro {
namespace {

using Json = nlohmann::ordered_json;

// A ballast is exact to a page of 2 MiB, and so is what the driver says that a process holds.
constexpr int64_t kPages = 4 * kMiB;

bool is_size(std::string_view name) {
  return name.ends_with("_bytes");
}

Measured::Figure figure_of(const Expected& expected) {
  if (const auto* number = std::get_if<int64_t>(&expected.value)) return *number;
  return std::string(std::get<std::string_view>(expected.value));
}

bool agree(const Comparison& row, bool is_sim) {
  if (!row.measured) return false;
  const auto* expected = std::get_if<int64_t>(&*row.expected);
  const auto* measured = std::get_if<int64_t>(&*row.measured);
  if (is_sim || expected == nullptr || measured == nullptr || !is_size(row.name)) {
    return row.expected == row.measured;
  }
  return std::abs(*expected - *measured) <= kPages;
}

Json json_of(const Measured::Figure& figure) {
  return std::visit([](const auto& value) { return Json(value); }, figure);
}

Json json_of(const Expected& expected) {
  return json_of(figure_of(expected));
}

// What the cell of a table says; whole texts where they matter.
std::string cell(const Comparison& row, const std::optional<Measured::Figure>& figure) {
  constexpr size_t kWidest = 34;
  if (!figure) return "-";
  if (const auto* number = std::get_if<int64_t>(&*figure)) {
    return is_size(row.name) ? format_mib(*number) : fmt::format("{}", *number);
  }
  const std::string& text = std::get<std::string>(*figure);
  if (text.size() <= kWidest || !row.ok) return text;
  return text.substr(0, kWidest - 3) + "...";
}

std::string name_in_table(std::string name) {
  if (is_size(name)) name.resize(name.size() - std::string_view("_bytes").size());
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

const char* verdict_of(const Comparison& row) {
  if (!row.ok) return "DIFFERS";
  if (row.compared) return "ok";
  return row.differs_because.empty() ? "" : "ours";
}

std::string table_head() {
  return fmt::format("sizes in MiB\n{:<4} {:<28} {:<34} {:<34} {}\n", "", "", "expected", "measured",
                     "result");
}

std::string table_rows(const Judgement& judgement) {
  std::string text;
  for (const Comparison& row : judgement.comparisons) {
    std::string line = fmt::format("     {:<28} {:<34} {:<34} {}", name_in_table(row.name),
                                   cell(row, row.expected), cell(row, row.measured), verdict_of(row));
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

// Why figures are ours, each reason once.
std::string reasons(std::span<const Judgement> judgements) {
  std::string text;
  std::vector<std::string_view> seen;
  for (const Judgement& judgement : judgements) {
    for (const Comparison& row : judgement.comparisons) {
      if (row.differs_because.empty() ||
          std::find(seen.begin(), seen.end(), row.differs_because) != seen.end())
        continue;
      seen.push_back(row.differs_because);
      text += fmt::format("\nours: {}\n", row.differs_because);
    }
  }
  return text;
}

std::string options_of(const Judgement& judgement) {
  return judgement.device == "sim" ? "" : " --device " + judgement.device;
}

}  // namespace

Judgement judge(const Scenario& scenario, const Stage& stage, const Measured& measured) {
  Judgement judgement{&scenario, stage.device, stage.cured, {}, measured.lines, true};
  const std::span<const Expected> expected = stage.cured ? scenario.cured : scenario.expected;
  for (const Expected& figure : expected) {
    if (figure.on == CheckedOn::kSimulated && !stage.is_sim()) continue;
    Comparison row{std::string(figure.name), figure_of(figure), std::nullopt};
    if (const Measured::Figure* found = measured.find(figure.name)) row.measured = *found;
    row.differs_because = figure.differs_because;
    row.compared = figure.differs_because.empty();
    row.ok = row.compared ? agree(row, stage.is_sim()) : row.measured.has_value();
    judgement.ok = judgement.ok && row.ok;
    judgement.comparisons.push_back(std::move(row));
  }
  for (const auto& [name, figure] : measured.figures) {
    const bool is_there =
        std::any_of(judgement.comparisons.begin(), judgement.comparisons.end(),
                    [&, &wanted = name](const Comparison& row) { return row.name == wanted; });
    if (!is_there) judgement.comparisons.push_back({name, std::nullopt, figure});
  }
  return judgement;
}

std::string to_json(std::span<const Judgement> judgements) {
  Json json;
  json["scenarios"] = Json::array();
  for (const Judgement& judgement : judgements) {
    Json row;
    row["id"] = judgement.scenario->id;
    row["title"] = judgement.scenario->title;
    row["device"] = judgement.device;
    row["expected"] = Json::object();
    row["measured"] = Json::object();
    for (const Comparison& figure : judgement.comparisons) {
      if (figure.expected) row["expected"][figure.name] = json_of(*figure.expected);
      if (figure.measured) row["measured"][figure.name] = json_of(*figure.measured);
      if (!figure.differs_because.empty()) {
        row["expected"][figure.name + "_may_differ_because"] = figure.differs_because;
      }
    }
    row["ok"] = judgement.ok;
    json["scenarios"].push_back(row);
  }
  return json.dump(2);
}

Measured parse_measured(const std::string& json) {
  Measured measured;
  try {
    const Json figures = Json::parse(json).at("scenarios").at(0).at("measured");
    for (const auto& [name, value] : figures.items()) {
      if (value.is_string()) {
        measured.add(name, value.get<std::string>());
      } else {
        measured.add(name, value.get<int64_t>());
      }
    }
  } catch (const Json::exception& error) {
    throw InvalidArgument(fmt::format("no scenario's result: {}", error.what()));
  }
  return measured;
}

std::string describe(const Judgement& judgement) {
  const Scenario& scenario = *judgement.scenario;
  std::string text =
      fmt::format("{} {} on {}{}: {}\n{}\n", scenario.id,
                  judgement.ok ? "came out as expected" : "did NOT come out as expected", judgement.device,
                  judgement.cured ? " with its fix" : "", scenario.title, scenario.story);
  if (judgement.cured) text += fmt::format("fix: {}\n", scenario.fix);
  if (!judgement.lines.empty()) text += "\n";
  for (const std::string& line : judgement.lines) text += fmt::format("  {}\n", line);
  text += "\n" + table_head() + table_rows(judgement) + reasons({&judgement, 1});
  if (judgement.cured || scenario.fix.empty()) {
    return text + fmt::format("\nnext: headroom repro --all{}\n", options_of(judgement));
  }
  return text + fmt::format("\nfix: {}\nnext: headroom repro {} --fix{}\n", scenario.fix, scenario.id,
                            options_of(judgement));
}

std::string describe(std::span<const Judgement> judgements) {
  const auto right = std::count_if(judgements.begin(), judgements.end(), [](const auto& j) { return j.ok; });
  const auto first_wrong =
      std::find_if(judgements.begin(), judgements.end(), [](const auto& j) { return !j.ok; });
  const Judgement& first = judgements.front();
  std::string text = fmt::format("{} of {} scenarios came out as expected on {}{}\n\n", right,
                                 judgements.size(), first.device, first.cured ? " with their fixes" : "");
  text += table_head();
  for (const Judgement& judgement : judgements) {
    text += fmt::format("{:<4} {:<98} {}\n", judgement.scenario->id, judgement.scenario->title,
                        judgement.ok ? "ok" : "DIFFERS");
    text += table_rows(judgement);
  }
  text += reasons(judgements);
  const std::string options = options_of(first);
  if (first_wrong != judgements.end()) {
    return text + fmt::format("\nnext: headroom repro {}{}{}\n", first_wrong->scenario->id,
                              first.cured ? " --fix" : "", options);
  }
  return text + fmt::format("\nnext: headroom repro {}{}\n", first.cured ? "--list" : "--all --fix", options);
}

std::string describe_scenarios() {
  std::string text = fmt::format("{} scenarios\n\n", scenarios().size());
  for (const Scenario& scenario : scenarios()) {
    text += fmt::format("{:<4} {}{}\n     {}\n", scenario.id, scenario.title,
                        scenario.on == CheckedOn::kSimulated ? " (simulated GPU only)" : "", scenario.story);
    if (!scenario.fix.empty()) text += fmt::format("     fix: {}\n", scenario.fix);
  }
  return text + "\nnext: headroom repro A1\n";
}

std::string scenarios_json() {
  Json json;
  json["scenarios"] = Json::array();
  for (const Scenario& scenario : scenarios()) {
    Json row;
    row["id"] = scenario.id;
    row["title"] = scenario.title;
    row["story"] = scenario.story;
    row["expected"] = Json::object();
    for (const Expected& figure : scenario.expected)
      row["expected"][std::string(figure.name)] = json_of(figure);
    row["fix"] = scenario.fix;
    json["scenarios"].push_back(row);
  }
  return json.dump(2);
}

}  // namespace headroom::repro
