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

struct Subcommand {
  std::string_view name;
  std::string_view summary;
  int (*run)(int argc, char** argv);
};

// In the order of use: a failure, the machine, a choice, a run, its recording. README.md has the same order.
constexpr Subcommand kSubcommands[] = {
    {"explain", "explain a GPU failure in a log and say what to do", explain::run_explain},
    {"repro", "reproduce reported GPU failures and their fixes", repro::run_repro},
    {"doctor", "check the driver and the libraries for version conflicts", doctor::run_doctor},
    {"who", "show which processes hold the memory of each GPU", who::run_who},
    {"devices", "list real and simulated GPUs and their free memory", run_devices},
    {"models", "list public nets and how to export nets to ONNX", run_models},
    {"show", "show the layers of an ONNX file and what uses memory in training", run_show},
    {"predict", "predict whether training fits and what uses the memory, without a GPU", run_predict},
    {"fit", "find the largest batch that fits, or the smallest device", run_fit},
    {"solve", "plan a training for a memory budget at the least cost in time", run_solve},
    {"compare", "compare strategies and settings on nets or traces", compare::run_compare},
    {"strategies", "list the memory strategies", run_strategies},
    {"run", "run a few steps of a net, or a trace, and measure memory and time", run_run},
    {"train", "train the model of an ONNX file", run_train},
    {"trace", "trace a PyTorch program's allocations, without a GPU", run_trace},
    {"replay", "replay a recorded trace under every strategy", run_replay},
    {"report", "show a recording as a timeline: terminal, HTML page, Perfetto", report::run_report},
    {"diff", "compare two recordings op by op", report::run_diff},
    {"assert", "check a recording against limits, for CI", report::run_assert},
};

constexpr size_t kSummaryColumn = 13;
constexpr size_t kMaxWidth = 80;  // and the width in a pipe

std::string usage() {
  const size_t width = Terminal(stdout).width();
  const Terminal terminal(width == 0 ? kMaxWidth : std::min(width, kMaxWidth), false);
  std::string text = "usage: headroom SUBCOMMAND [OPTION...]\n\n";
  for (const Subcommand& subcommand : kSubcommands) {
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
    known.push_back(subcommand.name);
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
