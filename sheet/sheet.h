// The answer of a command: verdict, facts, tables, code, notes and the next command. A command fills one
// sheet; writers.h prints it as text, JSON or HTML. Values are exact: bytes, seconds, counts. Knows no
// format.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/terminal.h"
#include "sheet/datum.h"

namespace headroom {

// Says how people read the values of a column; JSON has them as they are.
struct Unit {
  enum class Kind : uint8_t { kText, kWrappedText, kVersion, kScaled, kCount, kSize };
  Kind kind = Kind::kText;
  double scale = 1;  // factor for the value
  int decimals = 0;
  std::string_view suffix = {};
  bool has_sign = false;  // a '+' before what is above zero

  bool is_number() const { return kind >= Kind::kScaled; }
};
inline constexpr Unit kText, kWrappedText{Unit::Kind::kWrappedText};
inline constexpr Unit kVersion{Unit::Kind::kVersion};                  // a text such as 8.6, at the right
inline constexpr Unit kNumber{Unit::Kind::kScaled};                    // 1234
inline constexpr Unit kCount{Unit::Kind::kCount};                      // 1,234
inline constexpr Unit kSize{Unit::Kind::kSize};                        // bytes: "1.43 GiB"
inline constexpr Unit kMib{Unit::Kind::kScaled, 1.0 / kMiB, 1};        // bytes: "1455.0"
inline constexpr Unit kMsOfSeconds{Unit::Kind::kScaled, 1e3, 3};       // seconds: "51.200"
inline constexpr Unit kMsOfUs{Unit::Kind::kScaled, 1e-3, 1};           // microseconds: "51.2"
inline constexpr Unit kMega{Unit::Kind::kScaled, 1e-6, 1};             // "1.5" of 1,500,000
inline constexpr Unit kMs{Unit::Kind::kScaled, 1, 3};                  // milliseconds: "51.200"
inline constexpr Unit kTenths{Unit::Kind::kScaled, 1, 1};              // "0.1"
inline constexpr Unit kRatio{Unit::Kind::kScaled, 1, 3};               // "0.125"
inline constexpr Unit kPercent{Unit::Kind::kScaled, 1, 1, " %"};       // "12.5 %"
inline constexpr Unit kChange{Unit::Kind::kScaled, 1, 1, " %", true};  // "+12.5 %"

// The value as people read it; null is "-". Throws Error where a unit of numbers gets no number.
std::string shown_as(const Datum& value, const Unit& unit);

struct Column {
  std::optional<std::string> title = {};  // without one JSON alone has the column
  std::string key = {};                   // without one JSON does not have it
  Unit unit = kText;
  int drop = 0;          // where the terminal is narrow the highest is left out first; 0: never
  bool has_bar = false;  // HTML draws each value as a share of the largest
};

struct Cell {
  template <typename T>
  requires std::constructible_from<Datum, T> Cell(T&& exact) : value(std::forward<T>(exact)) {}
  Cell(Datum exact, Color painted) : value(std::move(exact)), color(painted) {}
  // People read `text` in place of the value.
  Cell(Datum exact, std::string text, std::optional<Color> painted = {})
      : value(std::move(exact)), shown(std::move(text)), color(painted) {}

  Datum value;
  std::optional<std::string> shown = {};
  std::optional<Color> color = {};
};

// The place of a row among the others: HTML sorts those that failed below them, JSON leaves their sum out.
enum class Mark : uint8_t { kNone, kBest, kFailed, kTotal };

struct SheetTable {
  struct Row {
    std::vector<Cell> cells;
    Mark mark = Mark::kNone;
  };
  std::string key = {};      // its array in JSON; tables of one key share it
  std::string caption = {};  // the line above it: "memory in MiB"
  std::string heading = {};  // in HTML
  std::vector<Column> columns = {};
  std::string more = "--json has all";  // where columns that are left out can be seen
  size_t shown_rows = SIZE_MAX;         // people see the first ones, JSON has all
  std::vector<Row> rows = {};

  // Throws Error unless there is a cell for each column, and a number in each column of numbers.
  void add(std::vector<Cell> cells, Mark mark = Mark::kNone);
  // JSON alone has it.
  void hide() {
    for (Column& column : columns) column.title.reset();
  }
};

struct Paragraph {
  enum class Kind : uint8_t { kVerdict, kFact, kNote, kHeading };
  Kind kind = Kind::kFact;
  std::string lead = {}, text = {};  // the lead is painted, and wrapped only where it stands alone
  std::optional<Color> color = {};
  size_t indent = 0;  // indent of further lines
};

// Lines to copy, or drawn with characters: never wrapped.
struct CodeBlock {
  std::string title = {};
  std::string key = {};  // an array of lines in JSON
  std::vector<std::string> lines = {};
  size_t indent = 4;
};

// HTML alone shows it.
struct Picture {
  std::string title, svg;
};

struct NextCommand {
  std::string command, why = {};
  bool is_alternative = false;  // to the one before it
};

struct Sheet {
  using Part = std::variant<Paragraph, SheetTable, CodeBlock, Picture, Field>;

  std::string title = {};  // title of the page
  std::deque<Part> parts = {};
  std::vector<NextCommand> next = {};

  // "fits: unet, batch 8 ...": `lead` in its color, red for bad news, then the rest.
  void verdict(std::string lead, std::optional<Color> color = {}, std::string rest = {}) {
    parts.emplace_back(Paragraph{Paragraph::Kind::kVerdict, std::move(lead), std::move(rest), color});
  }
  // A sentence, whose further lines are indented.
  void fact(std::string text, size_t indent = 0) {
    parts.emplace_back(Paragraph{Paragraph::Kind::kFact, {}, std::move(text), {}, indent});
  }
  // A fact for each line, whose further lines are indented.
  void lines(std::string_view text, size_t indent = 0);
  // A text that stands beside its lead: "1. ", "caching        ".
  void item(std::string lead, std::string text, std::optional<Color> color = {}) {
    const size_t indent = characters(lead);
    parts.emplace_back(Paragraph{Paragraph::Kind::kFact, std::move(lead), std::move(text), color, indent});
  }
  // A sentence about what stands above it.
  void note(std::string text, size_t indent = 0) {
    parts.emplace_back(Paragraph{Paragraph::Kind::kNote, {}, std::move(text), {}, indent});
  }
  // Begins a group of paragraphs, after an empty line; may have no text.
  void heading(std::string text) {
    parts.emplace_back(Paragraph{Paragraph::Kind::kHeading, {}, std::move(text)});
  }
  SheetTable& table(SheetTable table) { return std::get<SheetTable>(parts.emplace_back(std::move(table))); }
  void code(CodeBlock block) { parts.emplace_back(std::move(block)); }
  // The next command, and others that may stand in its place.
  void propose(const std::vector<std::string>& commands) {
    for (const std::string& command : commands) next.push_back({command, {}, !next.empty()});
  }
  // For JSON alone.
  void set(std::string key, Datum value) { parts.emplace_back(Field{std::move(key), std::move(value)}); }
};

}  // namespace headroom
