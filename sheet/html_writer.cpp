#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "sheet/page.h"
#include "sheet/writers.h"

namespace headroom {
namespace {

// The header has what stands before the first table; each table, picture and block of code is a section.
class HtmlWriter {
 public:
  void operator()(const Paragraph& paragraph) {
    const std::string text = escaped_html(printable(paragraph.lead + paragraph.text));
    if (paragraph.kind == Paragraph::Kind::kVerdict) {
      const bool is_bad = paragraph.color == Color::kRed;
      verdicts += fmt::format("<p class=\"verdict{}\">{}</p>\n", is_bad ? " bad" : "", text);
    } else if (paragraph.kind == Paragraph::Kind::kHeading) {
      begin(paragraph.text);
    } else if (sections.empty()) {
      facts += fmt::format("<p>{}</p>\n", text);
    } else {
      sections += fmt::format("<p class=\"note\">{}</p>\n", text);
    }
  }

  void operator()(const SheetTable& table) {
    std::vector<size_t> shown;
    for (size_t i = 0; i < table.columns.size(); ++i) {
      const bool has_value = std::ranges::any_of(table.rows, [&](const auto& row) {
        const Cell& cell = row.cells[i];
        if (!cell.shown && cell.value.is_null()) return false;
        return !(cell.shown ? *cell.shown : shown_as(cell.value, table.columns[i].unit)).empty();
      });
      if (table.columns[i].title && has_value) shown.push_back(i);
    }
    if (shown.empty()) return;
    begin(table.heading);
    if (!table.caption.empty()) sections += fmt::format("<p>{}</p>\n", escaped_html(table.caption));
    sections += "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>";
    for (const size_t i : shown) {
      sections += fmt::format("<th{}>{}</th>", table.columns[i].unit.is_number() ? " class=\"n\"" : "",
                              escaped_html(*table.columns[i].title));
    }
    sections += "</tr></thead>\n<tbody>\n";
    for (size_t at = 0; at < std::min(table.shown_rows, table.rows.size()); ++at) {
      const SheetTable::Row& row = table.rows[at];
      constexpr const char* kClasses[] = {"", "best", "failed", "total"};
      sections += fmt::format("<tr class=\"{}\">", kClasses[static_cast<size_t>(row.mark)]);
      for (const size_t i : shown) sections += cell(table, row.cells[i], i);
      sections += "</tr>\n";
    }
    sections += "</tbody></table></div>\n";
  }

  void operator()(const CodeBlock& code) {
    if (code.lines.empty()) return;
    begin(code.title);
    // A snippet keeps its indentation, so that it can be pasted.
    sections += "<pre><code>";
    for (const std::string& line : code.lines) sections += escaped_html(printable(line)) + "\n";
    sections += "</code></pre>\n";
  }

  void operator()(const Picture& picture) {
    begin(picture.title);
    sections += picture.svg;
  }

  void operator()(const Field&) {}

  std::string verdicts, facts, sections;

 private:
  void begin(const std::string& heading) {
    sections += sections.empty() ? "<section>\n" : "</section>\n<section>\n";
    if (!heading.empty()) sections += fmt::format("<h2>{}</h2>\n", escaped_html(heading));
  }

  static std::string cell(const SheetTable& table, const Cell& cell, size_t at) {
    const Column& column = table.columns[at];
    const std::string text =
        escaped_html(cell.shown ? printable(*cell.shown) : shown_as(cell.value, column.unit));
    if (!column.unit.is_number()) {
      const char* kind = at == 0 || !table.columns[at - 1].title ? "name" : "";
      if (column.title->empty()) kind = "mark";
      if (cell.color == Color::kRed) kind = "bad";
      return fmt::format("<td class=\"{}\">{}</td>", kind, text);
    }
    const std::optional<double> value = cell.value.number();
    const std::string sorted = value ? fmt::format(" data-value=\"{}\"", *value) : "";
    std::string bar;
    if (column.has_bar && value) {
      double most = 1;
      for (const auto& row : table.rows) most = std::max(most, row.cells[at].value.number().value_or(0));
      bar = fmt::format("<i style=\"width:{:.1f}%\"></i>", 100 * *value / most);
    }
    return fmt::format("<td class=\"n{}\" data-name=\"{}\"{}>{}{}</td>", bar.empty() ? "" : " meter",
                       escaped_html(*column.title), sorted,
                       bar.empty() ? text : fmt::format("<span>{}</span>", text), bar);
  }
};

}  // namespace

std::string escaped_html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string to_html(const Sheet& sheet) {
  HtmlWriter page;
  for (const Sheet::Part& part : sheet.parts) std::visit(page, part);
  std::string html(kPageBeforeData);
  constexpr std::string_view kTitle = "@TITLE@";
  const std::string title = escaped_html(sheet.title);
  html.replace(html.find(kTitle), kTitle.size(), title);
  html += fmt::format("<header>\n{}<h1>{}</h1>\n{}</header>\n<main>\n{}", page.verdicts, title, page.facts,
                      page.sections);
  if (!page.sections.empty()) html += "</section>\n";
  for (const NextCommand& next : sheet.next) {
    html += fmt::format("<p>Next: <code>{}</code></p>\n", escaped_html(next.command));
  }
  return html + "</main>\n" + std::string(kPageAfterData);
}

}  // namespace headroom
