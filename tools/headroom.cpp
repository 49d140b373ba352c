// The command: one subcommand for each question about GPU memory. Try: headroom devices

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/terminal.h"
#include "base/text.h"
#include "runtime/app/option_set.h"
#include "runtime/app/run_main.h"
#include "tools/subcommands.h"

namespace headroom {
namespace {

constexpr size_t kSummaryColumn = 13;
constexpr size_t kMaxWidth = 80;  // and the width in a pipe

std::string usage() {
  const size_t width = Terminal(stdout).width();
  const Terminal terminal(width == 0 ? kMaxWidth : std::min(width, kMaxWidth), false);
  std::string text = "usage: headroom SUBCOMMAND [OPTION...]\n\n";
  std::string_view group;
  for (const Subcommand& subcommand : kSubcommands) {
    if (subcommand.group.empty()) continue;
    if (subcommand.group != group)
      text += fmt::format("{}{}:\n", group.empty() ? "" : "\n", subcommand.group);
    group = subcommand.group;
    text += fmt::format("  {:<10} {}\n", subcommand.name,
                        terminal.wrapped(subcommand.summary, kSummaryColumn, kSummaryColumn));
  }
  return text + "\n" +
         terminal.wrapped(
             "headroom SUBCOMMAND -h shows the main options and examples; headroom help SUBCOMMAND "
             "explains all options; headroom --version shows the version.") +
         "\n";
}

const Subcommand& find_subcommand(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Subcommand& subcommand : kSubcommands) {
    if (subcommand.name == name) return subcommand;
    if (!subcommand.group.empty()) known.push_back(subcommand.name);
  }
  throw InvalidArgument(
      fmt::format("unknown subcommand '{}'; known: {}", name, list_with_suggestion(name, known)));
}

// `headroom help SUBCOMMAND`.
int run_help(int argc, char** argv) {
  if (argc < 3) {
    fmt::print("{}", usage());
    return kExitDone;
  }
  std::string name = argv[2], option = "--help";
  char* words[] = {name.data(), option.data(), nullptr};
  return find_subcommand(name).run(2, words);
}

int run(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "help") return run_help(argc, argv);
  if (name == "--help" || name == "-h") {
    fmt::print("{}", usage());
    return kExitDone;
  }
  if (name == "--version") {
    fmt::print("headroom {}\n", project_version());
    return kExitDone;
  }
  if (name.empty()) {
    fmt::print(stderr, "{}", usage());
    return kExitBadInput;
  }
  return find_subcommand(name).run(argc - 1, argv + 1);
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  return headroom::run_main("headroom", headroom::run, argc, argv);
}
