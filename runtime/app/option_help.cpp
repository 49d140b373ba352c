// The help of an OptionSet: in short, and whole.
#include "runtime/app/option_help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "base/text.h"
#include "runtime/app/option_set.h"

namespace headroom {
namespace {

constexpr size_t kHelpColumn = 30;     // where the texts of the help begin
constexpr size_t kHelpIndent = 6;      // where they begin on a narrow terminal, below the name
constexpr size_t kHelpWidth = 80;      // in a pipe
constexpr size_t kMaxHelpWidth = 100;  // longer lines are hard to read

size_t help_width() {
  const size_t width = Terminal(stdout).width();
  return width == 0 ? kHelpWidth : std::min(width, kMaxHelpWidth);
}

// An option and its text; a long name has a line of its own.
std::string help_line(const std::string& name, std::string_view text, size_t width) {
  std::string line = "  " + name;
  const size_t column = width < kHelpWidth ? kHelpIndent : kHelpColumn;
  if (line.size() + 2 > column) {
    line += '\n';
    line.append(column, ' ');
  } else {
    line.append(column - line.size(), ' ');
  }
  return line + Terminal(width, false).wrapped(text, column, column) + "\n";
}

// Each line, which may begin with blanks, in lines of that width.
std::string wrapped_lines(std::string_view text, size_t width) {
  std::string made;
  if (text.empty()) return {};
  if (text.ends_with('\n')) text.remove_suffix(1);
  for (const std::string_view line : split(text, "\n")) made += Terminal(width, false).wrapped(line) + "\n";
  return made;
}

// Returns the help of an option with only the first of many choices.
std::string with_few_choices(const std::string& help) {
  constexpr std::ptrdiff_t kShown = 6;
  const size_t open = help.rfind(" (");
  if (!help.ends_with(')') || open == std::string::npos) return help;
  if (std::count(help.begin() + static_cast<std::ptrdiff_t>(open), help.end(), ',') <= kShown) return help;
  size_t end = open;
  for (std::ptrdiff_t i = 0; i < kShown; ++i) end = help.find(',', end + 1);
  return help.substr(0, end) + ", ...)";
}

// "--device NAME="cpu"": an option with its default.
std::string with_value(const auto& option) {
  std::string name = "--" + option.name;
  if (option.value_name.empty()) return name;
  const std::optional<std::string> shown = option.show();
  return name + " " + option.value_name + (shown ? "=" + *shown : "");
}

// A command in lines of that width, broken at blanks outside quotes, as a shell reads them.
std::string wrapped_command(std::string_view command, size_t width) {
  std::string made, word;
  size_t at = 0;
  bool quoted = false;
  const auto flush = [&] {
    if (at > 2 && at + 1 + word.size() + 2 > width) {
      made += " \\\n      ";
      at = 6;
    } else if (at > 2) {
      made += ' ';
      ++at;
    }
    made += word;
    at += word.size();
    word.clear();
  };
  made = "  ";
  at = 2;
  for (const char c : command) {
    if (c == '\'') quoted = !quoted;
    if (c == ' ' && !quoted) {
      flush();
    } else {
      word += c;
    }
  }
  flush();
  return made;
}

// Each example is a command and, after several blanks, a remark. The result can be pasted into a shell: a
// remark begins with '#'.
std::string wrapped_examples(const std::string& examples, size_t width) {
  std::string made;
  std::istringstream lines(examples);
  for (std::string line; std::getline(lines, line);) {
    const std::string_view text = trimmed(line);
    const size_t gap = text.find("  ");
    const std::string_view command = text.substr(0, gap);
    const std::string remark =
        gap == std::string_view::npos ? "" : fmt::format("# {}", trimmed(text.substr(gap)));
    const std::string whole = fmt::format("  {}{}{}", command, remark.empty() ? "" : "   ", remark);
    if (whole.size() <= width) {
      made += whole + "\n";
      continue;
    }
    made += wrapped_command(command, width) + "\n";
    if (!remark.empty()) made += "      " + Terminal(width, false).wrapped(remark, 8, 6) + "\n";
  }
  return made;
}

}  // namespace

std::string variable_of(std::string_view option) {
  std::string result = "HEADROOM_";
  for (const char c : option)
    result += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

std::string OptionSet::usage() const {
  std::string text = fmt::format("Usage: {} [OPTIONS]", program_);
  if (arguments_.target != nullptr) {
    text += " " + (arguments_.required ? arguments_.name : "[" + arguments_.name + "]");
  }
  if (takes_command_) text += " [-- COMMAND]";
  return text + "\n";
}

std::string OptionSet::help_of(std::string_view group, size_t width) const {
  std::string text;
  for (const Option& option : options_) {
    if (option.group == group) text += help_line(with_value(option), option.help, width);
  }
  return text;
}

// In the order of their first options, without the program's own and the common ones.
std::vector<std::string> OptionSet::group_titles() const {
  std::vector<std::string> titles;
  for (const Option& option : options_) {
    const bool is_known = std::ranges::find(titles, option.group) != titles.end();
    if (!is_known && !option.group.empty() && option.group != kCommonGroup) titles.push_back(option.group);
  }
  return titles;
}

// CLI11's own help differs from version to version; shell completion and the man pages read this one.
std::string OptionSet::help() const {
  const size_t width = help_width();
  std::string text = wrapped_lines(description_, width) + usage();
  if (arguments_.target != nullptr) {
    text += "\nArguments:\n" + help_line(arguments_.name, arguments_.help, width);
  }
  if (const std::string own = help_of("", width); !own.empty()) text += "\nOptions:\n" + own;
  for (const std::string& title : group_titles()) {
    text += fmt::format("\n{}:\n{}", title, help_of(title, width));
  }
  text += fmt::format("\n{}:\n", kCommonGroup) + help_of(kCommonGroup, width) +
          help_line("--config FILE", "TOML file with options as `name = value`; one file serves all programs",
                    width) +
          help_line("--print-config", "Show every option's value and where it came from, and stop", width) +
          help_line("-h", "Show a short help and stop", width) +
          help_line("--help", "Show this help and stop", width) +
          help_line("--version", "Show the version and stop", width);
  const std::string first = options_.size() > 1 ? options_[1].name : options_[0].name;
  text += "\n" + wrapped_lines(fmt::format("Each option is also read from the environment (--{} from {}) and "
                                           "from the file given with --config; the command line comes first, "
                                           "then the environment, then the file.",
                                           first, variable_of(first)),
                               width);
  if (!examples_.empty()) text += "\nExamples:\n" + wrapped_examples(examples_, width);
  return text;
}

std::string OptionSet::short_help_for(const std::string& argument) const {
  const auto kind = std::ranges::find_if(
      kinds_, [&](const KindOfArgument& k) { return !argument.empty() && k.includes(argument); });
  if (kind == kinds_.end()) return short_help();
  const size_t width = help_width();
  std::string text =
      wrapped_lines(description_, width) + usage() + fmt::format("\nOptions for {}:\n", kind->name);
  for (const auto& [name, other_text] : kind->options) {
    const auto option =
        std::ranges::find_if(options_, [&, n = name](const Option& o) { return o.name == n; });
    if (option == options_.end()) continue;
    text += other_text.empty()
                ? help_line(with_value(*option), with_few_choices(option->help), width)
                : help_line(fmt::format("--{}{}{}", name, option->value_name.empty() ? "" : " ",
                                        option->value_name),
                            other_text, width);
  }
  return text + help_of("", width) + fmt::format("\n{} --help explains all options.\n", program_);
}

std::string OptionSet::short_help() const {
  const size_t width = help_width();
  std::string text = wrapped_lines(description_, width) + usage();
  if (arguments_.target != nullptr) {
    text += "\nArguments:\n" + help_line(arguments_.name, arguments_.help, width);
  }
  bool has_own = false;
  for (const Option& option : options_) {
    if (!option.group.empty() && !option.explain_in_short) continue;
    if (!std::exchange(has_own, true)) text += "\nOptions:\n";
    text += help_line(with_value(option), with_few_choices(option.help), width);
  }
  const std::vector<std::string> titles = group_titles();
  if (!titles.empty()) text += "\nMore options:\n";
  for (const std::string& title : titles) {
    std::vector<std::string> names;
    for (const Option& option : options_) {
      if (option.group == title && !option.explain_in_short) names.push_back("--" + option.name);
    }
    if (!names.empty()) text += help_line(title, fmt::format("{}", fmt::join(names, " ")), width);
  }
  if (!examples_.empty()) text += "\nExamples:\n" + wrapped_examples(examples_, width);
  return text + fmt::format("\n{} --help explains all options.\n", program_);
}

}  // namespace headroom
