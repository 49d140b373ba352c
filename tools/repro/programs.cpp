#include "tools/repro/programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/errors.h"
#include "base/terminal.h"
#include "base/text.h"
#include "tools/repro/texts.h"

namespace headroom::repro {
namespace {

// True if the section with these names is of that framework, or of parts, and has that name.
bool is_for(const std::vector<std::string_view>& names, std::string_view name, std::string_view framework) {
  const bool is_part = names.front() == framework;
  if (!is_part && names.back() != framework) return false;
  return std::ranges::find(names, name) != names.end();
}

std::optional<std::string_view> find_lines(std::string_view name, std::string_view framework) {
  std::optional<std::string_view> found;
  // "A10 D8 tensorflow"
  for_each_section(programs_text(), [&](std::string_view heading, std::string_view lines) {
    if (is_for(split(heading, " "), name, framework)) found = lines;
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
