#include "tools/repro/result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "base/bytes.h"
#include "base/errors.h"

namespace headroom::repro {
namespace {

using Json = nlohmann::ordered_json;

// A ballast is exact to a page of 2 MiB, and so is the driver's figure for a process.
constexpr int64_t kTolerance = 4 * kMiB;

bool is_size(std::string_view name) {
  return name.ends_with("_bytes");
}
bool is_time(std::string_view name) {
  return name.ends_with("_us");
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

Datum value_of(const Measured::Figure& figure) {
  return std::visit([](const auto& value) { return Datum(value); }, figure);
}

// A size or a time has its unit.
std::string number_text(std::string_view name, int64_t number) {
  if (is_size(name)) return format_mib(number) + " MiB";
  return fmt::format("{}{}", number, is_time(name) ? " us" : "");
}

// A figure as the table shows it: a long text is cut unless it differs.
std::string cell(const Comparison& row, const std::optional<Measured::Figure>& figure) {
  constexpr size_t kWidest = 34;
  if (!figure) return "-";
  if (const auto* number = std::get_if<int64_t>(&*figure)) return number_text(row.name, *number);
  const std::string& text = std::get<std::string>(*figure);
  if (text.size() <= kWidest || !row.ok) return text;
  return text.substr(0, kWidest - 3) + "...";
}

std::string name_in_table(std::string name) {
  if (is_size(name) || is_time(name)) name.resize(name.rfind('_'));
  std::ranges::replace(name, '_', ' ');
  return name;
}

Cell mark_of(const Comparison& row) {
  if (!row.ok) return {"DIFFERS", Color::kRed};
  if (row.compared) return {"ok", Color::kGreen};
  return {row.differs_because.empty() ? "" : "ours", Color::kYellow};
}

// The figures of a scenario.
void add_figures(Sheet& sheet, const ScenarioResult& result, std::string caption = {}) {
  SheetTable& table = sheet.table(
      {.caption = std::move(caption),
       .columns = {{""}, {"expected", "", kWrappedText}, {"measured", "", kWrappedText}, {"result"}}});
  for (const Comparison& row : result.comparisons) {
    table.add({name_in_table(row.name), cell(row, row.expected), cell(row, row.measured), mark_of(row)});
  }
}

// Returns the reasons for differing figures, each once.
void add_reasons(Sheet& sheet, std::span<const ScenarioResult> results) {
  std::vector<std::string_view> seen;
  for (const ScenarioResult& result : results) {
    for (const Comparison& row : result.comparisons) {
      if (row.differs_because.empty() || std::ranges::find(seen, row.differs_because) != seen.end()) continue;
      seen.push_back(row.differs_because);
      sheet.fact(fmt::format("ours: {}", row.differs_because));
    }
  }
}

Datum to_list(std::span<const ScenarioResult> results) {
  List list;
  for (const ScenarioResult& result : results) {
    Record expected, measured;
    for (const Comparison& figure : result.comparisons) {
      if (figure.expected) expected.push_back({figure.name, value_of(*figure.expected)});
      if (figure.measured) measured.push_back({figure.name, value_of(*figure.measured)});
      if (!figure.differs_because.empty())
        expected.push_back({figure.name + "_may_differ_because", figure.differs_because});
    }
    list.push_back(Record{{"id", result.scenario->id},
                          {"title", result.scenario->title},
                          {"device", result.device},
                          {"expected", std::move(expected)},
                          {"measured", std::move(measured)},
                          {"ok", result.ok}});
  }
  return list;
}

}  // namespace

std::string figure_text(std::string_view name, const Measured::Figure& figure) {
  const auto* number = std::get_if<int64_t>(&figure);
  return number != nullptr ? number_text(name, *number) : std::get<std::string>(figure);
}

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
    const bool is_there = std::ranges::any_of(
        result.comparisons, [&, &wanted = name](const Comparison& row) { return row.name == wanted; });
    if (!is_there) result.comparisons.push_back({name, std::nullopt, figure});
  }
  return result;
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

Sheet to_sheet(const ScenarioResult& result, std::string_view options) {
  const Scenario& scenario = *result.scenario;
  Sheet sheet;
  sheet.set("scenarios", to_list({&result, 1}));
  sheet.verdict(
      fmt::format("{} {}", scenario.id, result.ok ? "as expected" : "NOT as expected"),
      result.ok ? Color::kGreen : Color::kRed,
      fmt::format(" on {}{}: {}", result.device, result.fixed ? " with its fix" : "", scenario.title));
  sheet.fact(std::string(scenario.story));
  if (result.fixed) sheet.fact(fmt::format("fix: {}", scenario.fix));
  if (!result.lines.empty()) sheet.heading({});
  for (const std::string& line : result.lines) sheet.fact("  " + line, 4);
  add_figures(sheet, result);
  add_reasons(sheet, {&result, 1});
  const bool is_last = result.fixed || scenario.fix.empty();
  if (!is_last) sheet.heading(fmt::format("fix: {}", scenario.fix));
  sheet.next = {{is_last ? fmt::format("headroom repro --all{}", options)
                         : fmt::format("headroom repro {} --fix{}", scenario.id, options)}};
  return sheet;
}

Sheet to_sheet(std::span<const ScenarioResult> results, bool verbose, std::string_view options) {
  const auto right = std::ranges::count_if(results, [](const auto& j) { return j.ok; });
  const auto first_wrong = std::ranges::find_if(results, [](const auto& j) { return !j.ok; });
  const ScenarioResult& first = results.front();
  const bool all_right = first_wrong == results.end();
  Sheet sheet;
  sheet.set("scenarios", to_list(results));
  sheet.verdict(fmt::format("{} of {} scenarios as expected", right, results.size()),
                all_right ? Color::kGreen : Color::kRed,
                fmt::format(" on {}{}", first.device, first.fixed ? " with their fixes" : ""));
  SheetTable& table = sheet.table(
      {.columns = {{"id"}, {"what happens", "", kWrappedText}, {"figures", "", kVersion, 1}, {"result"}},
       .more = ""});
  for (const ScenarioResult& result : results) {
    const auto agreed =
        std::ranges::count_if(result.comparisons, [](const Comparison& row) { return row.ok; });
    table.add({result.scenario->id,
               result.scenario->title,
               fmt::format("{} of {}", agreed, result.comparisons.size()),
               {result.ok ? "ok" : "DIFFERS", result.ok ? Color::kGreen : Color::kRed}});
  }
  for (const ScenarioResult& result : results) {
    if (verbose || !result.ok)
      add_figures(sheet, result, fmt::format("{} {}", result.scenario->id, result.scenario->title));
  }
  if (verbose) add_reasons(sheet, results);
  const std::string next = !all_right
                               ? fmt::format("{}{}", first_wrong->scenario->id, first.fixed ? " --fix" : "")
                           : first.fixed ? "--list"
                                         : "--all --fix";
  sheet.next = {{fmt::format("headroom repro {}{}", next, options)}};
  return sheet;
}

Sheet scenario_list() {
  Sheet sheet;
  sheet.verdict(fmt::format("{} scenarios", scenarios().size()));
  sheet.heading({});
  List list;
  for (const Scenario& scenario : scenarios()) {
    const std::string_view where = scenario.on == CheckedOn::kSimulated ? " (simulated GPU only)" : "";
    sheet.item(fmt::format("{:<4} ", scenario.id), fmt::format("{}{}", scenario.title, where), Color::kBold);
    sheet.item("     ", std::string(scenario.story));
    if (!scenario.fix.empty()) sheet.item("     ", fmt::format("fix: {}", scenario.fix));
    Record expected;
    for (const Expected& figure : scenario.expected)
      expected.push_back({std::string(figure.name), value_of(figure_of(figure))});
    list.push_back(Record{{"id", scenario.id},
                          {"title", scenario.title},
                          {"story", scenario.story},
                          {"expected", std::move(expected)},
                          {"fix", scenario.fix}});
  }
  sheet.set("scenarios", std::move(list));
  sheet.next = {{"headroom repro A1"}};
  return sheet;
}

std::string scenarios_markdown() {
  constexpr size_t kWidth = 100;
  const Terminal page(kWidth, false);
  std::string text;
  for (const Scenario& scenario : scenarios()) {
    text += fmt::format("### {}: {}\n\n{}\n\n", scenario.id, scenario.title, page.wrapped(scenario.story));
    std::vector<std::string> figures;
    for (const Expected& figure : scenario.expected) {
      if (!figure.differs_because.empty()) continue;
      const Measured::Figure value = figure_of(figure);
      const std::string shown = figure_text(figure.name, value);
      const bool is_number = std::holds_alternative<int64_t>(value);
      figures.push_back(fmt::format("{} {}", name_in_table(std::string(figure.name)),
                                    is_number ? shown : fmt::format("`{}`", shown)));
    }
    text += page.wrapped(fmt::format("- **Expected**: {}", fmt::join(figures, "; ")), 2) + "\n";
    if (!scenario.fix.empty()) text += page.wrapped(fmt::format("- **Fix**: {}", scenario.fix), 2) + "\n";
    text += "\n";
  }
  return text;
}

}  // namespace headroom::repro
