#include "tools/repro/programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "base/errors.h"
#include "base/terminal.h"

namespace headroom::repro {
namespace {

struct Section {
  std::vector<std::string_view> names;  // "A10", "D8", "tensorflow"
  std::string_view lines;
};

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

void for_each_section(const std::function<void(const Section&)>& take) {
  constexpr std::string_view kHead = "\n=== ";
  std::string_view rest = programs_text();
  for (size_t head = rest.find(kHead); head != std::string_view::npos; head = rest.find(kHead)) {
    rest.remove_prefix(head + kHead.size());
    const size_t end_of_line = rest.find('\n');
    const std::string_view lines = rest.substr(end_of_line + 1);
    const size_t end = lines.find(kHead);
    take({words_of(rest.substr(0, end_of_line)), end == lines.npos ? lines : lines.substr(0, end + 1)});
  }
}

// True if the section is of that framework, or of parts, and has that name.
bool is_for(const Section& section, std::string_view name, std::string_view framework) {
  const auto& names = section.names;
  const bool is_part = names.front() == framework;
  if (!is_part && names.back() != framework) return false;
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::optional<std::string_view> find_lines(std::string_view name, std::string_view framework) {
  std::optional<std::string_view> found;
  for_each_section([&](const Section& section) {
    if (is_for(section, name, framework)) found = section.lines;
  });
  return found;
}

std::string with_parts(std::string_view lines) {
  std::string text;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end);
    if (!line.starts_with('@')) {
      text += line;
      continue;
    }
    text += fmt::format("{}\n\n", find_lines(line.substr(1, line.size() - 2), "part").value_or(""));
  }
  return text;
}

}  // namespace

std::string program_of(const Scenario& scenario, std::string_view framework) {
  const std::optional<std::string_view> lines = find_lines(scenario.id, framework);
  if (!lines) {
    std::vector<std::string_view> others;
    for (const std::string_view other : kProgramFrameworks) {
      if (find_lines(scenario.id, other)) others.push_back(other);
    }
    throw InvalidArgument(fmt::format("{} has no program in {}; pass --code {}", scenario.id, framework,
                                      fmt::join(others, " or ")));
  }
  const Terminal page(100, false);
  const auto comment = [&](std::string text) { return page.wrapped("# " + std::move(text)); };
  std::string head = fmt::format("{}: {}. {}", scenario.id, scenario.title, scenario.story);
  if (!scenario.fix.empty()) head += fmt::format(" Fix: {}.", scenario.fix);
  std::string text = comment(head);
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3) text.replace(at, 1, "\n# ");
  return fmt::format("{}\n{}", text, with_parts(*lines));
}

}  // namespace headroom::repro
