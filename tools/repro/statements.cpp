#include "tools/repro/statements.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "tools/repro/result.h"
#include "tools/repro/texts.h"

namespace headroom::repro {
namespace {

struct Statement {
  Truth truth = Truth::kTrue;
  std::string_view says;
  std::string_view command;  // that shows it; empty: see the figure
  std::string_view figure;   // with names of figures of scenarios in braces
};
struct Document {
  std::string_view title;
  std::vector<Statement> statements;
};

Statement statement_of(std::string_view row) {
  const std::vector<std::string_view> fields = split(row, " | ");
  return {parse_enum<Truth>(fields.at(0), "truth"), fields.at(1), fields.at(2), fields.at(3)};
}

// The documents of statements.txt.
const std::vector<Document>& documents() {
  static const std::vector<Document> all = [] {
    std::vector<Document> read;
    for_each_section(statements_text(), [&](std::string_view title, std::string_view lines) {
      Document& document = read.emplace_back(Document{title, {}});
      for (const std::string_view row : rows_of(lines)) document.statements.push_back(statement_of(row));
    });
    return read;
  }();
  return all;
}

struct Hole {
  size_t begin = 0, end = 0;  // of the text, braces included
  std::string_view scenario, figure;
};

// Calls `take` for each hole from left to right.
void for_each_hole(std::string_view text, const std::function<void(const Hole&)>& take) {
  for (size_t open = 0; (open = text.find('{', open)) != std::string_view::npos;) {
    const size_t dot = text.find('.', open), close = text.find('}', open);
    take({open, close + 1, text.substr(open + 1, dot - open - 1), text.substr(dot + 1, close - dot - 1)});
    open = close + 1;
  }
}

// "out_of_memory" is a word of JSON.
std::string in_prose(std::string figure) {
  const bool is_word = figure.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
  if (is_word) std::ranges::replace(figure, '_', ' ');
  return figure;
}

std::string filled(std::string_view text, const MeasuredById& measured) {
  std::string result;
  size_t end = 0;
  for_each_hole(text, [&](const Hole& hole) {
    const auto scenario = measured.find(hole.scenario);
    const Measured::Figure* figure =
        scenario == measured.end() ? nullptr : scenario->second.find(hole.figure);
    if (figure == nullptr) {
      throw InvalidArgument(fmt::format("{} has no figure {}", hole.scenario, hole.figure));
    }
    result += text.substr(end, hole.begin - end);
    result += in_prose(figure_text(hole.figure, *figure));
    end = hole.end;
  });
  return result + std::string(text.substr(end));
}

}  // namespace

MeasuredById needed_scenarios() {
  MeasuredById needed;
  for (const Document& document : documents()) {
    for (const Statement& statement : document.statements) {
      for_each_hole(statement.figure,
                    [&](const Hole& hole) { needed.try_emplace(std::string(hole.scenario)); });
    }
  }
  return needed;
}

Sheet statements_sheet(const MeasuredById& measured) {
  Sheet sheet;
  int64_t count = 0, differ = 0;
  for (const Document& document : documents()) {
    count += std::ssize(document.statements);
    differ += std::ranges::count_if(document.statements,
                                    [](const Statement& each) { return each.truth != Truth::kTrue; });
  }
  sheet.verdict(fmt::format("{} statements of {} documents; {} are not true, or no longer", count,
                            documents().size(), differ));
  List rows;
  for (const Document& document : documents()) {
    SheetTable& table = sheet.table({.caption = std::string(document.title),
                                     .columns = {{"statement", "", kWrappedText},
                                                 {"command", "", kWrappedText},
                                                 {"figure", "", kWrappedText},
                                                 {"is"}}});
    for (const Statement& each : document.statements) {
      constexpr Color kColors[] = {Color::kGreen, Color::kYellow, Color::kRed};
      const std::string figure = filled(each.figure, measured);
      table.add({each.says,
                 each.command,
                 figure,
                 {to_string(each.truth), kColors[static_cast<size_t>(each.truth)]}});
      rows.push_back(Record{{"document", document.title},
                            {"statement", each.says},
                            {"command", each.command},
                            {"figure", figure},
                            {"truth", to_string(each.truth)}});
    }
  }
  sheet.set("statements", std::move(rows));
  sheet.next = {{"headroom repro --all"}};
  return sheet;
}

std::string statements_markdown(const MeasuredById& measured) {
  std::string text;
  for (const Document& document : documents()) {
    text += fmt::format("## {}\n\n| statement | command | figure | |\n| --- | --- | --- | --- |\n",
                        document.title);
    for (const Statement& each : document.statements) {
      text += fmt::format("| {} | {} | {} | *{}* |\n", each.says,
                          each.command.empty() ? "" : fmt::format("`{}`", each.command),
                          filled(each.figure, measured), to_string(each.truth));
    }
    text += "\n";
  }
  return text;
}

}  // namespace headroom::repro
