#include "base/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <type_traits>

namespace headroom {
namespace {

constexpr size_t kGap = 2;  // blanks between columns
// A column of texts is not wrapped to less than the first while another column can be left out for it, and
// never to less than the second.
constexpr size_t kWrappedWell = 24, kWrappedMin = 16;

// Returns the position at which to break a word that is too long: after the last separator of a path or name.
size_t break_in_word(std::string_view head) {
  const size_t mark = head.find_last_of("/_.:,=");
  return mark == std::string_view::npos || mark + 1 < head.size() / 2 ? head.size() : mark + 1;
}

// Lines of at most `width` characters, broken at blanks, and inside words that are longer.
std::vector<std::string> lines_in(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (characters(text) > width) {
    const std::string_view head = first_characters(text, width);
    size_t end = text[head.size()] == ' ' ? head.size() : head.rfind(' ');
    if (end == std::string_view::npos || end == 0) end = break_in_word(head);
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(text.find_first_not_of(' ', end), text.size()));
  }
  lines.emplace_back(text);
  return lines;
}

}  // namespace

std::string thousands(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > (number < 0 ? 4u : 3u);) text.insert(at -= 3, ",");
  return text;
}

Table::Layout Table::layout(size_t width) const {
  std::vector<size_t> natural(columns_.size()), least(columns_.size());
  Layout made;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t widest = 0;
    for (const std::vector<TableCell>& row : rows_) widest = std::max(widest, characters(row[i].text));
    if (widest == 0) continue;
    const size_t head = characters(columns_[i].title);
    natural[i] = std::max(widest, head);
    least[i] = columns_[i].wraps ? std::min(natural[i], std::max(head, kWrappedWell)) : natural[i];
    made.shown.push_back(i);
  }
  const auto total = [&](const std::vector<size_t>& widths) {
    size_t sum = made.shown.empty() ? 0 : kGap * (made.shown.size() - 1);
    for (const size_t i : made.shown) sum += widths[i];
    return sum;
  };
  while (width > 0 && total(least) > width) {
    const auto last = std::ranges::max_element(
        made.shown, [&](size_t a, size_t b) { return columns_[a].drop < columns_[b].drop; });
    if (last == made.shown.end() || columns_[*last].drop == 0) break;
    // A column without a title is omitted together with the one before it.
    if (!columns_[*last].title.empty()) made.left_out.push_back(columns_[*last].title);
    made.shown.erase(last);
  }
  if (width > 0 && total(least) > width) {
    for (const size_t i : made.shown) {
      if (columns_[i].wraps)
        least[i] = std::min(least[i], std::max(characters(columns_[i].title), kWrappedMin));
    }
  }
  if (width > 0 && total(natural) > width) {
    // Texts get the width that the narrowest form leaves, the longest text first.
    size_t left = width - std::min(width, total(least));
    for (const size_t i : made.shown) {
      if (!columns_[i].wraps) continue;
      const size_t more = std::min(left, natural[i] - least[i]);
      least[i] += more;
      left -= more;
    }
    natural = least;
  }
  for (const size_t i : made.shown) made.widths.push_back(natural[i]);
  return made;
}

Table Table::rest(const Layout& made) const {
  std::vector<size_t> kept;
  bool has_name = false;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto at = std::ranges::find(made.shown, i) - made.shown.begin();
    const bool is_shown = at < std::ssize(made.shown);
    // A column of marks names no row.
    const bool is_name = is_shown && !has_name && !columns_[i].is_number && made.widths[at] > 1;
    if (!is_shown || is_name) kept.push_back(i);
    has_name = has_name || is_name;
  }
  const auto of_kept = [&](const auto& all) {
    std::remove_cvref_t<decltype(all)> some;
    for (const size_t i : kept) some.push_back(all[i]);
    return some;
  };
  Table other(of_kept(columns_));
  for (const std::vector<TableCell>& row : rows_) other.add(of_kept(row));
  return other;
}

std::string Table::text(const Terminal& terminal, std::string_view more) const {
  const Layout made = layout(terminal.width());
  std::string text;
  const auto add_row = [&](const std::vector<TableCell>& row, bool is_head) {
    std::vector<std::vector<std::string>> lines;
    size_t height = 1;
    for (size_t at = 0; at < made.shown.size(); ++at) {
      lines.push_back(lines_in(row[made.shown[at]].text, made.widths[at]));
      height = std::max(height, lines.back().size());
    }
    for (size_t line = 0; line < height; ++line) {
      size_t blanks = 0;  // not yet written: none stand at the end of a line
      for (size_t at = 0; at < made.shown.size(); ++at) {
        const TableCell& cell = row[made.shown[at]];
        const std::string part = line < lines[at].size() ? lines[at][line] : "";
        const size_t gap = made.widths[at] - std::min(made.widths[at], characters(part));
        const bool is_right = columns_[made.shown[at]].is_number;
        if (is_right) blanks += gap;
        if (!part.empty()) {
          text.append(blanks, ' ');
          blanks = 0;
          text += is_head      ? terminal.painted(part, Color::kBold)
                  : cell.color ? terminal.painted(part, *cell.color)
                               : part;
        }
        blanks += kGap + (is_right ? 0 : gap);
      }
      text += '\n';
    }
  };
  std::vector<TableCell> head;
  for (const TableColumn& column : columns_) head.emplace_back(column.title);
  const bool has_head = std::ranges::any_of(head, [](const auto& c) { return !c.text.empty(); });
  if (has_head) add_row(head, true);
  for (const std::vector<TableCell>& row : rows_) add_row(row, false);
  if (!made.left_out.empty() && !terminal.is_live() && made.shown.size() > 1) {
    text += "\n" + rest(made).text(terminal, more);
  } else if (!made.left_out.empty()) {
    const std::string note =
        fmt::format("too narrow for: {}{}{}", fmt::join(made.left_out.rbegin(), made.left_out.rend(), ", "),
                    more.empty() ? "" : "; ", more);
    text += terminal.painted(terminal.wrapped(note), Color::kDim) + "\n";
  }
  return text;
}

}  // namespace headroom
