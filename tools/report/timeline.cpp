#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "tools/report/views.h"

namespace headroom::report {
namespace {

// The letters in the order of MemoryCategory. The stack begins at the bottom with the longest-lived category.
constexpr std::string_view kLetters = "#WGOAISL";
constexpr MemoryCategory kOrder[] = {MemoryCategory::kWeights,   MemoryCategory::kOptimizerState,
                                     MemoryCategory::kInputs,    MemoryCategory::kActivations,
                                     MemoryCategory::kGradients, MemoryCategory::kWorkspace,
                                     MemoryCategory::kLibrary,   MemoryCategory::kOther};

// One sample per column: the fullest that falls into it.
std::vector<MemorySample> columns_of(const History& history, int width) {
  std::vector<MemorySample> columns;
  const size_t count = history.samples.size();
  const auto wide = static_cast<size_t>(width);
  for (size_t column = 0; column < wide; ++column) {
    const size_t begin = column * count / wide;
    const size_t end = std::clamp((column + 1) * count / wide, begin + 1, count);
    columns.push_back(*std::max_element(
        history.samples.begin() + static_cast<long>(begin), history.samples.begin() + static_cast<long>(end),
        [](const MemorySample& a, const MemorySample& b) { return a.live_bytes < b.live_bytes; }));
  }
  return columns;
}

char letter_at(const MemorySample& sample, int64_t level) {
  for (const MemoryCategory category : kOrder) {
    const int64_t bytes = sample.bytes[static_cast<size_t>(category)];
    if (level < bytes) return kLetters[static_cast<size_t>(category)];
    level -= bytes;
  }
  return ' ';
}

// The distance of the axis' marks: 1, 2 or 5 times a power of ten of a unit, at most `most` up to `highest`.
double round_step(int64_t highest, int most) {
  double unit = 1;
  while (unit * 1024 <= static_cast<double>(highest)) unit *= 1024;
  const double least = static_cast<double>(highest) / unit / most;
  double step = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (step < least) step *= factor;
  }
  return std::max(1.0, step * unit);
}

// Returns the label of the mark inside (low, high], such as "15 MiB"; empty if there is none.
std::string mark_between(double low, double high, double step) {
  const double mark = std::floor(high / step) * step;
  if (mark <= low) return "";
  std::string text = format_bytes(static_cast<int64_t>(mark));
  if (const size_t zeros = text.find(".00 "); zeros != std::string::npos) text.erase(zeros, 3);
  return text;
}

}  // namespace

std::string timeline(const History& history, int width, int height) {
  const std::vector<MemorySample> columns = columns_of(history, width);
  int64_t highest = 1;
  for (const MemorySample& sample : columns)
    highest = std::max({highest, sample.live_bytes, sample.reserved_bytes});
  const double step = round_step(highest, 4);
  std::string text;
  for (int row = height - 1; row >= 0; --row) {
    // The middle of the cell; in doubles, because a trace may claim 2^62 bytes.
    const double unit = static_cast<double>(highest) / height;
    const auto level = static_cast<int64_t>((row + 0.5) * unit);
    std::string line;
    for (const MemorySample& sample : columns) {
      const char letter = letter_at(sample, level);
      const int64_t top = sample.reserved_bytes;
      const bool edge = history.peak_reserved_bytes && static_cast<double>(top) > row * unit &&
                        static_cast<double>(top) <= (row + 1) * unit;
      line += letter == ' ' && edge ? '-' : letter;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    const std::string mark = row == 0 ? "0 B" : mark_between(row * unit, (row + 1) * unit, step);
    text += fmt::format("{:>11} |{}\n", mark, line);
  }
  const size_t peak = history.peak_sample * static_cast<size_t>(width) / history.samples.size();
  text += fmt::format("{:>11} +{:-<{}}\n", "", "", width);
  text += fmt::format("{:>13}{:>{}} peak, event {} of {}\n", "", "^", peak + 1, history.recorded_peak_event(),
                      history.trace.recorded_events);
  std::string legend;
  for (const MemoryCategory category : kOrder) {
    const auto index = static_cast<size_t>(category);
    const bool used =
        std::ranges::any_of(columns, [&](const MemorySample& sample) { return sample.bytes[index] > 0; });
    if (!used) continue;
    legend +=
        fmt::format("{}{} {}", legend.empty() ? "" : ", ", kLetters[index], kMemoryCategoryNames[index]);
  }
  if (history.peak_reserved_bytes) legend += ", - reserved";
  return text + fmt::format("{:>13}{}\n", "", legend);
}

}  // namespace headroom::report
