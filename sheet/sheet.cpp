#include "sheet/sheet.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "base/table.h"
#include "base/text.h"

namespace headroom {
namespace {

std::string text_of(const Datum& value) {
  if (const auto* text = std::get_if<std::string>(&value.data())) return printable(*text);
  if (const auto* truth = std::get_if<bool>(&value.data())) return *truth ? "yes" : "no";
  return to_json(value, -1);
}

}  // namespace

std::string shown_as(const Datum& value, const Unit& unit) {
  if (value.is_null()) return "-";
  if (!unit.is_number()) return text_of(value);
  const std::optional<double> number = value.number();
  if (!number) throw Error(fmt::format("a column of numbers got {}", to_json(value, -1)));
  const auto whole = static_cast<int64_t>(*number);
  const std::string sign = unit.has_sign && *number > 0 ? "+" : "";
  if (unit.kind == Unit::Kind::kSize) return sign + format_bytes(whole);
  if (unit.kind == Unit::Kind::kCount) return sign + thousands(whole);
  std::string text = fmt::format("{:.{}f}", unit.scale * *number, unit.decimals);
  // A number that rounds to nothing has no sign.
  if (text.starts_with('-') && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
  return fmt::format("{}{}{}", sign, text, unit.suffix);
}

void Sheet::lines(std::string_view text, size_t indent) {
  if (text.empty()) return;
  if (text.ends_with('\n')) text.remove_suffix(1);
  for (const std::string_view line : split(text, "\n")) fact(std::string(line), indent);
}

void SheetTable::add(std::vector<Cell> cells, Mark mark) {
  if (cells.size() != columns.size())
    throw Error(fmt::format("{} cells for {} columns", cells.size(), columns.size()));
  for (size_t i = 0; i < cells.size(); ++i) {
    if (!cells[i].shown && columns[i].unit.is_number()) shown_as(cells[i].value, columns[i].unit);
  }
  rows.push_back({std::move(cells), mark});
}

}  // namespace headroom
