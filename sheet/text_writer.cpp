#include <fmt/format.h>

#include <algorithm>

#include "base/table.h"
#include "base/text.h"
#include "sheet/writers.h"

namespace headroom {
namespace {

class TextWriter {
 public:
  explicit TextWriter(const Terminal& terminal) : terminal_(terminal) {}

  void operator()(const Paragraph& paragraph) {
    const bool is_heading = paragraph.kind == Paragraph::Kind::kHeading;
    if (is_heading || (after_block_ && paragraph.kind != Paragraph::Kind::kNote)) begin();
    if (paragraph.kind != Paragraph::Kind::kNote) after_block_ = false;
    if (is_heading && paragraph.text.empty()) return;
    std::string lead = printable(paragraph.lead);
    const size_t used = characters(lead);
    if (paragraph.text.empty()) lead = terminal_.wrapped(lead);
    text_ += paragraph.color ? terminal_.painted(lead, *paragraph.color) : lead;
    text_ += terminal_.wrapped(printable(paragraph.text), paragraph.indent, used) + "\n";
  }

  void operator()(const SheetTable& sheet) {
    const std::string drawn = table(sheet);
    if (drawn.empty()) return;
    begin();
    if (!sheet.caption.empty()) text_ += terminal_.wrapped(sheet.caption) + "\n";
    text_ += drawn;
    after_block_ = true;
  }

  void operator()(const CodeBlock& code) {
    if (code.lines.empty()) return;
    begin();
    if (!code.title.empty()) text_ += code.title + "\n";
    for (const std::string& line : code.lines) {
      const std::string shown = printable(line);
      text_ += (shown.empty() ? "" : std::string(code.indent, ' ')) + shown + "\n";
    }
    after_block_ = true;
  }

  void operator()(const Picture&) {}
  void operator()(const Field&) {}

  void next(const std::vector<NextCommand>& commands) {
    if (commands.empty()) return;
    begin();
    for (const auto& [command, why, is_alternative] : commands) {
      // A command stays on one line, so that it can be copied.
      text_ += (is_alternative ? "  or: " : "next: ") +
               (why.empty() ? command : terminal_.painted(command, Color::kBold)) + "\n";
      if (!why.empty()) text_ += "      " + terminal_.wrapped(why, 6, 6) + "\n";
    }
  }

  const std::string& text() const { return text_; }

 private:
  void begin() {
    if (!text_.empty()) text_ += "\n";
  }

  std::string table(const SheetTable& sheet) const {
    std::vector<TableColumn> columns;
    std::vector<size_t> shown;
    std::vector<bool> is_empty;
    for (size_t i = 0; i < sheet.columns.size(); ++i) {
      const Column& column = sheet.columns[i];
      if (!column.title) continue;
      shown.push_back(i);
      is_empty.push_back(std::ranges::all_of(sheet.rows, [i](const SheetTable::Row& row) {
        return row.cells[i].value.is_null() && !row.cells[i].shown;
      }));
      columns.push_back({.title = *column.title,
                         .is_number = column.unit.kind >= Unit::Kind::kVersion,
                         .drop = column.drop,
                         .wraps = column.unit.kind == Unit::Kind::kWrappedText});
    }
    if (shown.empty() || sheet.rows.empty()) return {};
    Table table(std::move(columns));
    for (size_t i = 0; i < std::min(sheet.shown_rows, sheet.rows.size()); ++i) {
      const SheetTable::Row& row = sheet.rows[i];
      std::vector<TableCell> cells;
      for (size_t at = 0; at < shown.size(); ++at) {
        const Cell& cell = row.cells[shown[at]];
        // A column without any value is not shown.
        cells.emplace_back(is_empty[at] ? ""
                           : cell.shown ? printable(*cell.shown)
                                        : shown_as(cell.value, sheet.columns[shown[at]].unit));
        cells.back().color = cell.color;
        if (row.mark == Mark::kBest) cells.back().color = Color::kGreen;
      }
      table.add(std::move(cells));
    }
    return table.text(terminal_, sheet.more);
  }

  const Terminal& terminal_;
  std::string text_;
  bool after_block_ = false;
};

}  // namespace

std::string to_text(const Sheet& sheet, const Terminal& terminal) {
  TextWriter writer(terminal);
  for (const Sheet::Part& part : sheet.parts) std::visit(writer, part);
  writer.next(sheet.next);
  return writer.text();
}

void print(const Sheet& sheet, bool as_json, const Terminal& terminal) {
  fmt::print("{}", as_json ? to_json(sheet) + "\n" : to_text(sheet, terminal));
}

}  // namespace headroom
