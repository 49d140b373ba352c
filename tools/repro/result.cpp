#include "tools/repro/result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/table.h"

namespace headroom::repro {
namespace {

using Json = nlohmann::ordered_json;

// A ballast is exact to a page of 2 MiB, and so is what the driver reports for a process.
constexpr int64_t kTolerance = 4 * kMiB;

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
  return std::abs(*expected - *measured) <= kTolerance;
}

Json json_of(const Measured::Figure& figure) {
  return std::visit([](const auto& value) { return Json(value); }, figure);
}

Json json_of(const Expected& expected) {
  return json_of(figure_of(expected));
}

// A cell of the table; the whole text where it differs.
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

TableCell mark_of(const Comparison& row) {
  if (!row.ok) return {"DIFFERS", Colour::kRed};
  if (row.compared) return {"ok", Colour::kGreen};
  return {row.differs_because.empty() ? "" : "ours", Colour::kYellow};
}

// The figures of a scenario. Its id is shown where there are several.
std::string figures(const ScenarioResult& result, const Terminal& terminal) {
  Table table({{""},
               {.title = "expected", .wraps = true},
               {.title = "measured", .wraps = true},
               {.title = "result"}});
  for (const Comparison& row : result.comparisons) {
    table.add({name_in_table(row.name), cell(row, row.expected), cell(row, row.measured), mark_of(row)});
  }
  return "sizes in MiB\n" + table.text(terminal);
}

// Why figures may differ, each reason once.
std::string reasons(std::span<const ScenarioResult> results, const Terminal& terminal) {
  std::string text;
  std::vector<std::string_view> seen;
  for (const ScenarioResult& result : results) {
    for (const Comparison& row : result.comparisons) {
      if (row.differs_because.empty() ||
          std::find(seen.begin(), seen.end(), row.differs_because) != seen.end())
        continue;
      seen.push_back(row.differs_because);
      text += "\n" + terminal.wrapped(fmt::format("ours: {}", row.differs_because)) + "\n";
    }
  }
  return text;
}

}  // namespace

ScenarioResult compare(const Scenario& scenario, const Stage& stage, const Measured& measured) {
  ScenarioResult result{&scenario, stage.device, stage.fixed, {}, measured.lines, true};
  const std::span<const Expected> expected = stage.fixed ? scenario.fixed : scenario.expected;
  for (const Expected& figure : expected) {
    if (figure.on == CheckedOn::kSimulated && !stage.is_sim()) continue;
    Comparison row{std::string(figure.name), figure_of(figure), std::nullopt};
    if (const Measured::Figure* found = measured.find(figure.name)) row.measured = *found;
    row.differs_because = figure.differs_because;
    row.compared = figure.differs_because.empty();
    row.ok = row.compared ? agree(row, stage.is_sim()) : row.measured.has_value();
    result.ok = result.ok && row.ok;
    result.comparisons.push_back(std::move(row));
  }
  for (const auto& [name, figure] : measured.figures) {
    const bool is_there =
        std::any_of(result.comparisons.begin(), result.comparisons.end(),
                    [&, &wanted = name](const Comparison& row) { return row.name == wanted; });
    if (!is_there) result.comparisons.push_back({name, std::nullopt, figure});
  }
  return result;
}

std::string to_json(std::span<const ScenarioResult> results) {
  Json json;
  json["scenarios"] = Json::array();
  for (const ScenarioResult& result : results) {
    Json row;
    row["id"] = result.scenario->id;
    row["title"] = result.scenario->title;
    row["device"] = result.device;
    row["expected"] = Json::object();
    row["measured"] = Json::object();
    for (const Comparison& figure : result.comparisons) {
      if (figure.expected) row["expected"][figure.name] = json_of(*figure.expected);
      if (figure.measured) row["measured"][figure.name] = json_of(*figure.measured);
      if (!figure.differs_because.empty()) {
        row["expected"][figure.name + "_may_differ_because"] = figure.differs_because;
      }
    }
    row["ok"] = result.ok;
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
    throw InvalidArgument(fmt::format("not the result of a scenario: {}", error.what()));
  }
  return measured;
}

std::string result_text(const ScenarioResult& result, std::string_view options, const Terminal& terminal) {
  const Scenario& scenario = *result.scenario;
  const std::string verdict = result.ok ? terminal.painted("as expected", Colour::kGreen)
                                        : terminal.painted("NOT as expected", Colour::kRed);
  std::string text = terminal.wrapped(fmt::format("{} {} on {}{}: {}", scenario.id, verdict, result.device,
                                                  result.fixed ? " with its fix" : "", scenario.title)) +
                     "\n" + terminal.wrapped(scenario.story) + "\n";
  if (result.fixed) text += terminal.wrapped(fmt::format("fix: {}", scenario.fix)) + "\n";
  if (!result.lines.empty()) text += "\n";
  for (const std::string& line : result.lines) text += terminal.wrapped("  " + line, 4) + "\n";
  text += "\n" + figures(result, terminal) + reasons({&result, 1}, terminal);
  if (result.fixed || scenario.fix.empty()) {
    return text + fmt::format("\nnext: headroom repro --all{}\n", options);
  }
  return text + "\n" + terminal.wrapped(fmt::format("fix: {}", scenario.fix)) +
         fmt::format("\nnext: headroom repro {} --fix{}\n", scenario.id, options);
}

std::string result_text(std::span<const ScenarioResult> results, bool verbose, std::string_view options,
                        const Terminal& terminal) {
  const auto right = std::count_if(results.begin(), results.end(), [](const auto& j) { return j.ok; });
  const auto first_wrong = std::find_if(results.begin(), results.end(), [](const auto& j) { return !j.ok; });
  const ScenarioResult& first = results.front();
  const bool all_right = first_wrong == results.end();
  std::string text =
      fmt::format("{} on {}{}\n\n",
                  terminal.painted(fmt::format("{} of {} scenarios as expected", right, results.size()),
                                   all_right ? Colour::kGreen : Colour::kRed),
                  first.device, first.fixed ? " with their fixes" : "");
  Table table({{"id"},
               {.title = "what happens", .wraps = true},
               {.title = "figures", .is_number = true, .drop = 1},
               {.title = "result"}});
  for (const ScenarioResult& result : results) {
    const auto agreed = std::count_if(result.comparisons.begin(), result.comparisons.end(),
                                      [](const Comparison& row) { return row.ok; });
    table.add({result.scenario->id,
               result.scenario->title,
               fmt::format("{} of {}", agreed, result.comparisons.size()),
               {result.ok ? "ok" : "DIFFERS", result.ok ? Colour::kGreen : Colour::kRed}});
  }
  text += table.text(terminal, "");
  for (const ScenarioResult& result : results) {
    if (!verbose && result.ok) continue;
    text += fmt::format("\n{} {}, ", result.scenario->id, result.scenario->title) + figures(result, terminal);
  }
  if (verbose) text += reasons(results, terminal);
  if (!all_right) {
    return text + fmt::format("\nnext: headroom repro {}{}{}\n", first_wrong->scenario->id,
                              first.fixed ? " --fix" : "", options);
  }
  return text + fmt::format("\nnext: headroom repro {}{}\n", first.fixed ? "--list" : "--all --fix", options);
}

std::string scenario_list(const Terminal& terminal) {
  std::string text = fmt::format("{} scenarios\n\n", scenarios().size());
  for (const Scenario& scenario : scenarios()) {
    const std::string head = fmt::format("{:<4} {}{}", scenario.id, scenario.title,
                                         scenario.on == CheckedOn::kSimulated ? " (simulated GPU only)" : "");
    text += terminal.painted(terminal.wrapped(head, 5), Colour::kBold) + "\n     " +
            terminal.wrapped(scenario.story, 5, 5) + "\n";
    if (!scenario.fix.empty())
      text += "     " + terminal.wrapped(fmt::format("fix: {}", scenario.fix), 5, 5) + "\n";
  }
  return text + "\nnext: headroom repro A1\n";
}

std::string scenarios_markdown() {
  constexpr size_t kWidth = 100;
  const Terminal page(kWidth, false);
  std::string text;
  for (const Scenario& scenario : scenarios()) {
    text += fmt::format("### {}: {}\n\n{}\n\n", scenario.id, scenario.title, page.wrapped(scenario.story));
    std::vector<std::string> figures;
    for (const Expected& figure : scenario.expected) {
      const Measured::Figure value = figure_of(figure);
      const auto* number = std::get_if<int64_t>(&value);
      figures.push_back(fmt::format(
          "{} {}", name_in_table(std::string(figure.name)),
          !number                 ? fmt::format("`{}`", std::get<std::string>(value))
          : is_size(figure.name)  ? format_mib(*number) + " MiB"
                                  : fmt::format("{}", *number)));
    }
    text += page.wrapped(fmt::format("- **Expected**: {}", fmt::join(figures, "; ")), 2) + "\n";
    if (!scenario.fix.empty()) text += page.wrapped(fmt::format("- **Fix**: {}", scenario.fix), 2) + "\n";
    text += "\n";
  }
  return text;
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
