#include "tools/repro/texts.h"

#include <cstddef>

#include "base/text.h"

namespace headroom::repro {

void for_each_section(std::string_view text,
                      const std::function<void(std::string_view heading, std::string_view lines)>& take) {
  constexpr std::string_view kHead = "\n=== ";
  for (size_t head = text.find(kHead); head != text.npos; head = text.find(kHead)) {
    text.remove_prefix(head + kHead.size());
    const size_t end_of_line = text.find('\n');
    const std::string_view lines = text.substr(end_of_line + 1);
    const size_t end = lines.find(kHead);
    take(text.substr(0, end_of_line), end == lines.npos ? lines : lines.substr(0, end + 1));
  }
}

std::vector<std::string_view> rows_of(std::string_view lines) {
  std::vector<std::string_view> rows = split(lines, "\n");
  std::erase_if(rows, [](std::string_view row) { return row.empty() || row.starts_with('#'); });
  return rows;
}

}  // namespace headroom::repro
