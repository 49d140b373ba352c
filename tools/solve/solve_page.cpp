#include "tools/solve/solve_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/bytes.h"
#include "sheet/writers.h"

namespace headroom::solve {
namespace {

// Sizes of the drawing and of the part with the lines, in its own units.
constexpr double kWidth = 760, kHeight = 300, kLeft = 60, kRight = 740, kTop = 30, kBottom = 260;

class Curve {
 public:
  explicit Curve(const SolvePage& page) : page_(page), least_(page.memory_bytes), most_(page.memory_bytes) {
    for (const PageLine& line : page.lines) {
      for (const PagePoint& point : line.points) {
        least_ = std::min(least_, point.memory_bytes);
        most_ = std::max(most_, point.memory_bytes);
        percent_ = std::max(percent_, point.more_percent);
      }
    }
    // All that a card has free may be far beyond what matters.
    most_ = std::min(most_, 2 * largest_point());
  }

  std::string svg() const {
    std::string svg = fmt::format(
        "<svg class=\"curve\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"more time of a step by "
        "memory\">\n",
        kWidth, kHeight);
    svg += line("axis", kLeft, kBottom, kRight, kBottom) + line("axis", kLeft, kTop, kLeft, kBottom);
    svg += text(kLeft, kTop - 12, "start", "more time of a step");
    svg += text(kLeft - 6, kBottom, "end", "0 %") +
           text(kLeft - 6, kTop + 5, "end", fmt::format("{:.0f} %", percent_));
    svg += text(kLeft, kBottom + 20, "start", format_bytes(least_)) +
           text(kRight, kBottom + 20, "end", format_bytes(most_));
    if (page_.memory_bytes <= most_) {
      const double x = x_of(page_.memory_bytes);
      svg += line("budget", x, kTop, x, kBottom) + text(x, kBottom + 36, "middle", "the budget");
    }
    for (size_t i = 0; i < page_.lines.size(); ++i) svg += drawn(page_.lines[i], i);
    return svg + "</svg>\n";
  }

 private:
  int64_t largest_point() const {
    int64_t largest = 0;
    for (const PageLine& line : page_.lines) {
      for (const PagePoint& point : line.points) largest = std::max(largest, point.memory_bytes);
    }
    return largest;
  }
  double x_of(int64_t bytes) const {
    const auto span = static_cast<double>(std::max<int64_t>(1, most_ - least_));
    return kLeft + (kRight - kLeft) * static_cast<double>(bytes - least_) / span;
  }
  double y_of(double percent) const { return kBottom - (kBottom - kTop) * percent / percent_; }

  static std::string line(const char* kind, double x0, double y0, double x1, double y1) {
    return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind,
                       x0, y0, x1, y1);
  }
  static std::string text(double x, double y, const char* anchor, const std::string& words) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                       escaped_html(words));
  }
  std::string drawn(const PageLine& drawn_line, size_t index) const {
    std::string points, dots;
    for (const PagePoint& point : drawn_line.points) {
      const double x = x_of(point.memory_bytes), y = y_of(std::max(0.0, point.more_percent));
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      dots += fmt::format(
          "<circle class=\"l{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}</title></circle>\n", index, x,
          y,
          escaped_html(fmt::format("{}, {:+.1f} %, {}", format_bytes(point.memory_bytes), point.more_percent,
                                   drawn_line.name)));
    }
    const double y = kTop + 18 * static_cast<double>(index);
    return fmt::format("<polyline class=\"l{}\" points=\"{}\"/>\n", index, points) + dots +
           fmt::format("<circle class=\"l{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n", index, kRight - 8,
                       y - 4) +
           text(kRight - 18, y, "end", drawn_line.name);
  }

  const SolvePage& page_;
  int64_t least_, most_;
  double percent_ = 1;
};

std::string drawn(const PageTable& table) {
  std::string html =
      fmt::format("<section>\n<h2>{}</h2>\n<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>",
                  escaped_html(table.title));
  for (const PageColumn& column : table.columns) {
    html += fmt::format("<th{}>{}</th>", column.is_number ? " class=\"n\"" : "", escaped_html(column.title));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string cell = escaped_html(row[i]);
      html +=
          table.columns[i].is_number
              ? fmt::format("<td class=\"n\" data-name=\"{}\" data-value=\"{}\">{}</td>",
                            escaped_html(table.columns[i].title), std::strtod(row[i].c_str(), nullptr), cell)
              : fmt::format("<td>{}</td>", cell);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n</section>\n";
}

}  // namespace

std::string to_html(const SolvePage& page) {
  std::string html(kPageBeforeData);
  html += fmt::format("<header>\n<p class=\"verdict{}\">{}</p>\n<h1>{}</h1>\n", page.keeps ? "" : " bad",
                      escaped_html(page.verdict), escaped_html(page.title));
  for (const std::string& fact : page.facts) html += fmt::format("<p>{}</p>\n", escaped_html(fact));
  html += "</header>\n<main>\n";
  const bool has_points = std::any_of(page.lines.begin(), page.lines.end(),
                                      [](const PageLine& line) { return !line.points.empty(); });
  if (has_points) html += "<section>\n<h2>Memory against time</h2>\n" + Curve(page).svg() + "</section>\n";
  if (!page.code.empty()) {
    html += "<section>\n<h2>Change the program</h2>\n<pre><code>";
    for (const std::string& line : page.code) html += escaped_html(line) + "\n";
    html += "</code></pre>\n</section>\n";
  }
  for (const PageTable& table : page.tables) {
    if (!table.rows.empty()) html += drawn(table);
  }
  return html + "</main>\n" + std::string(kPageAfterData);
}

}  // namespace headroom::solve
