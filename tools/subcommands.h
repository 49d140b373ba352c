// The subcommands of `headroom`: one row for each, from which the help, the man pages and the completion of
// shells are made. They know nothing of each other. A command of several files is a library with a namespace
// of its own, named after its folder.
#pragma once

#include <string_view>

namespace headroom {

// Each runs with the arguments after `headroom`, its own name first, and returns the exit code. Throws as
// run_main expects.
int run_devices(int argc, char** argv);
int run_fit(int argc, char** argv);
int run_models(int argc, char** argv);
int run_predict(int argc, char** argv);
int run_replay(int argc, char** argv);
int run_run(int argc, char** argv);
int run_show(int argc, char** argv);
int run_solve(int argc, char** argv);
int run_strategies(int argc, char** argv);
int run_trace(int argc, char** argv);
int run_train(int argc, char** argv);

namespace compare {
int run_compare(int argc, char** argv);
}
namespace doctor {
int run_doctor(int argc, char** argv);
}
namespace explain {
int run_explain(int argc, char** argv);
}
namespace report {
int run_report(int argc, char** argv);
int run_diff(int argc, char** argv);
int run_assert(int argc, char** argv);
}  // namespace report
namespace repro {
int run_repro(int argc, char** argv);
}
namespace who {
int run_who(int argc, char** argv);
}

struct Subcommand {
  std::string_view group;  // in which the help lists it; empty: an earlier name, which it does not list
  std::string_view name, summary;
  int (*run)(int argc, char** argv);
};

// As a user asks; the rows of a group stand together. docs/commands.md has the same order.
inline constexpr Subcommand kSubcommands[] = {
    {"Understand", "explain", "explain a GPU failure in a log and say what to do", explain::run_explain},
    {"Understand", "report", "show, compare or check a recording: terminal, HTML page, Perfetto",
     report::run_report},
    {"Understand", "who", "show which processes hold the memory of each GPU", who::run_who},
    {"Understand", "doctor", "check the driver and the libraries for version conflicts", doctor::run_doctor},
    {"Predict", "predict", "predict whether training fits and what uses the memory, without a GPU",
     run_predict},
    {"Predict", "fit", "find the largest batch that fits, or the smallest device", run_fit},
    {"Predict", "trace", "trace a PyTorch program's allocations, without a GPU", run_trace},
    {"Predict", "models", "show an ONNX file's layers and memory; list public nets", run_models},
    {"Fix", "solve", "plan a training for a memory budget at the least cost in time", run_solve},
    {"Fix", "compare", "compare strategies and settings on nets or traces", compare::run_compare},
    {"Fix", "replay", "replay a recorded trace under every strategy", run_replay},
    {"Run", "run", "run a few steps of a net, a trace or any program, and measure it", run_run},
    {"Run", "train", "train the model of an ONNX file", run_train},
    {"Develop", "repro", "reproduce reported GPU failures and their fixes", repro::run_repro},
    {"Develop", "strategies", "list the memory strategies", run_strategies},
    {"Develop", "devices", "list real and simulated GPUs and their free memory", run_devices},
    {"", "diff", "report --against", report::run_diff},
    {"", "assert", "report --assert", report::run_assert},
    {"", "show", "models FILE", run_show},
};

}  // namespace headroom
