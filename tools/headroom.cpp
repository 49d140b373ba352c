// The command: one subcommand for each question about the memory of a GPU. Try: headroom devices

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/app/run_program.h"
#include "runtime/base/errors.h"
#include "runtime/base/suggest.h"
#include "tools/subcommands.h"

namespace headroom {
namespace {

struct Subcommand {
  std::string_view name;
  std::string_view summary;
  int (*run)(int argc, char** argv);
};

// In the order of their use: a failure, the machine, the choice, the run, what it left. As in README.md.
constexpr Subcommand kSubcommands[] = {
    {"explain", "why a log's failure on a GPU happened, and what to do", explain::run_explain},
    {"repro", "failures that people met on GPUs, made to happen again, and their cures", repro::run_repro},
    {"doctor", "which driver and libraries are found, and what of them does not fit together",
     doctor::run_doctor},
    {"who", "who holds the memory of each GPU, process by process", who::run_who},
    {"devices", "which GPUs there are, how full they are, and which can be simulated", run_devices},
    {"predict", "whether training a net fits, by how much, and what takes the memory; needs no GPU",
     run_predict},
    {"fit", "the largest batch, or the least memory, that a device and a strategy will do with", run_fit},
    {"compare", "nets or traces under strategies and settings, and which of them nobody beats",
     compare::run_compare},
    {"strategies", "which memory strategies there are", run_strategies},
    {"run", "a few steps of a net, or a trace, and what they took", run_run},
    {"replay", "how each memory strategy copes with a recorded trace: the verdict matrix", run_replay},
    {"report", "a recording as a timeline: in the terminal, as a page, for Perfetto", report::run_report},
    {"diff", "what grew, what is new between two recordings, op by op", report::run_diff},
    {"assert", "whether a recording keeps to limits: peak, fragmentation, retries; for CI",
     report::run_assert},
};

std::string usage() {
  std::string text = "usage: headroom SUBCOMMAND [OPTION...]\n\n";
  for (const Subcommand& subcommand : kSubcommands) {
    text += fmt::format("  {:<10} {}\n", subcommand.name, subcommand.summary);
  }
  return text +
         "\nheadroom SUBCOMMAND --help shows its options and examples, headroom --version the version.\n";
}

int run(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "help") {
    fmt::print("{}", usage());
    return kExitDone;
  }
  if (name == "--version") {
    fmt::print("headroom {}\n", HEADROOM_VERSION);
    return kExitDone;
  }
  if (name.empty()) {
    fmt::print(stderr, "{}", usage());
    return kExitBadInput;
  }
  std::vector<std::string_view> known;
  for (const Subcommand& subcommand : kSubcommands) {
    if (subcommand.name == name) return subcommand.run(argc - 1, argv + 1);
    known.push_back(subcommand.name);
  }
  throw InvalidArgument(
      fmt::format("unknown subcommand '{}'; known: {}", name, list_with_suggestion(name, known)));
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  return headroom::run_program("headroom", headroom::run, argc, argv);
}
