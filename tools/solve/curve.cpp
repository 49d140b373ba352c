#include "tools/solve/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/bytes.h"
#include "sheet/writers.h"

namespace headroom::solve {
namespace {

// Sizes of the drawing and of the part with the lines, in its own units.
constexpr double kWidth = 760, kHeight = 324, kLeft = 84, kRight = 740, kTop = 40, kBottom = 260;

std::string line(const char* kind, double x0, double y0, double x1, double y1) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind,
                     x0, y0, x1, y1);
}

std::string text(double x, double y, const char* anchor, const std::string& words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped_html(words));
}

std::string dot(size_t line, double x, double y, const std::string& title) {
  return fmt::format("<circle class=\"l{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}</title></circle>\n",
                     line, x, y, escaped_html(title));
}

}  // namespace

std::string draw(const CurvePoints& same_bits, const CurvePoints& other_bits, int64_t budget_bytes) {
  std::vector<std::pair<std::string, const CurvePoints*>> lines;
  if (!same_bits.empty()) lines.emplace_back("same bits", &same_bits);
  if (!other_bits.empty()) lines.emplace_back("other bits", &other_bits);
  int64_t least = budget_bytes, largest = 0;
  double percent = 1;
  for (const CurvePoints* line : {&same_bits, &other_bits}) {
    for (const auto& [bytes, more_percent] : *line) {
      least = std::min(least, bytes);
      largest = std::max(largest, bytes);
      percent = std::max(percent, more_percent);
    }
  }
  // All that a card has free may be far beyond what matters.
  const int64_t most = std::min(std::max(largest, budget_bytes), 2 * largest);
  const auto x_of = [&](int64_t bytes) {
    return kLeft + (kRight - kLeft) * static_cast<double>(bytes - least) /
                       static_cast<double>(std::max<int64_t>(1, most - least));
  };

  std::string svg = fmt::format(
      "<svg class=\"curve\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"more time of a step by "
      "memory\">\n",
      kWidth, kHeight);
  svg += line("axis", kLeft, kBottom, kRight, kBottom) + line("axis", kLeft, kTop, kLeft, kBottom);
  svg += text(kLeft, kTop - 12, "start", "more time of a step") + text(kLeft - 6, kBottom, "end", "0 %") +
         text(kLeft - 6, kTop + 5, "end", fmt::format("{:.0f} %", percent));
  svg += text(kLeft, kBottom + 26, "start", format_bytes(least)) +
         text(kRight, kBottom + 26, "end", format_bytes(most));
  if (budget_bytes <= most) {
    const double x = x_of(budget_bytes);
    svg += line("budget", x, kTop, x, kBottom) + text(x, kBottom + 52, "middle", "the budget");
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& [name, line] = lines[i];
    std::string points, dots;
    for (const auto& [bytes, more_percent] : *line) {
      const double x = x_of(bytes), y = kBottom - (kBottom - kTop) * std::max(0.0, more_percent) / percent;
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      dots += dot(i, x, y, fmt::format("{}, {:+.1f} %, {}", format_bytes(bytes), more_percent, name));
    }
    const double y = kTop + 26 * static_cast<double>(i);
    svg += fmt::format("<polyline class=\"l{}\" points=\"{}\"/>\n", i, points) + dots +
           dot(i, kRight - 8, y - 4, name) + text(kRight - 18, y, "end", name);
  }
  return svg + "</svg>\n";
}

}  // namespace headroom::solve
