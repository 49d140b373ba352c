#include "runtime/base/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace headroom {
namespace {

std::string folded(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<int64_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string_view suggest_nearest(std::string_view text, std::span<const std::string_view> known) {
  const std::string wanted = folded(text);
  std::string_view nearest;
  int64_t nearest_distance = 0;
  for (const std::string_view word : known) {
    const int64_t distance = edit_distance(wanted, folded(word));
    const auto tolerated = static_cast<int64_t>(std::max(wanted.size(), word.size()) / 3);
    if (distance > tolerated || (!nearest.empty() && distance >= nearest_distance)) continue;
    nearest = word;
    nearest_distance = distance;
  }
  if (!nearest.empty() || wanted.size() < 3) return nearest;
  for (const std::string_view word : known) {
    if (folded(word).find(wanted) != std::string::npos) return word;  // "growth" for "allow-growth"
  }
  return {};
}

std::string list_with_suggestion(std::string_view text, std::span<const std::string_view> known) {
  const std::string list = fmt::format("{}", fmt::join(known, ", "));
  const std::string_view nearest = suggest_nearest(text, known);
  return nearest.empty() ? list : fmt::format("{}; did you mean '{}'?", list, nearest);
}

}  // namespace headroom
