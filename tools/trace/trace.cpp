// headroom trace: records the allocations that a PyTorch program would make on a GPU, without a GPU.

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "runtime/app/option_set.h"
#include "tools/trace/program.h"
#include "tools/trace/tracing_options.h"

namespace headroom {

int run_trace(int argc, char** argv);  // as tools/subcommands.h, which stands above, declares it

namespace {

// The place of the peak.
struct PeakPlace {
  std::string_view op, module, source, phase;
  int32_t step = 0;
};

PeakPlace find_peak(const Trace& trace) {
  PeakPlace place;
  if (trace.events.empty()) return place;
  const TraceEvent& event = trace.events[static_cast<size_t>(trace.peak_event)];
  const TraceBlock& block = trace.block_facts[static_cast<size_t>(event.block)];
  const auto name = [&](int32_t index) { return std::string_view(trace.names[static_cast<size_t>(index)]); };
  place.op = name(event.op);
  place.module = name(block.module);
  place.source = name(block.source);
  for (const TraceMark& mark : trace.marks) {
    if (mark.position > trace.peak_event) break;
    place.step = mark.step;
    place.phase = kStepPhaseNames[static_cast<size_t>(mark.phase)];
  }
  return place;
}

void print_summary(const Trace& trace, const ProgramRequest& request, const std::string& path,
                   const Terminal& terminal) {
  const PeakPlace peak = find_peak(trace);
  fmt::print("{}\n", terminal.wrapped(fmt::format(
                         "{}{}: {} allocations in {} step{}, at most {} live at once", trace.name,
                         request.batch ? fmt::format(", batch {}", *request.batch) : "", trace.blocks,
                         request.steps, request.steps == 1 ? "" : "s", format_bytes(trace.peak_bytes))));
  fmt::print("{}\n",
             terminal.wrapped(fmt::format("peak: step {}, {}, {}{}{}", peak.step, peak.phase, peak.op,
                                          peak.module.empty() ? "" : fmt::format(" of {}", peak.module),
                                          peak.source.empty() ? "" : fmt::format(" at {}", peak.source))));
  fmt::print("\nnext: {}\n",
             command_line("headroom predict", std::vector<std::string>{path, "--device", request.device}));
}

void print_json(const Trace& trace, const ProgramRequest& request, const std::string& path) {
  const PeakPlace peak = find_peak(trace);
  nlohmann::ordered_json json;
  json["program"] = trace.name;
  json["batch"] = request.batch ? nlohmann::ordered_json(*request.batch) : nlohmann::ordered_json(nullptr);
  json["steps"] = request.steps;
  json["device"] = request.device;
  json["trace"] = path;
  json["allocations"] = trace.blocks;
  json["peak_requested_bytes"] = trace.peak_bytes;
  json["peak"] = {{"step", peak.step},
                  {"phase", peak.phase},
                  {"op", peak.op},
                  {"module", peak.module},
                  {"source", peak.source}};
  std::cout << json_text(json, 2) << "\n";
}

}  // namespace

int run_trace(int argc, char** argv) {
  TracingOptions traced;
  std::vector<std::string> programs;
  std::string output = "run.trace";
  bool as_json = false;
  OptionSet options(
      "headroom trace",
      "Records the allocations that a PyTorch training program would make on a GPU, without a GPU. "
      "PROGRAM is the command that a person types, after --: the trace ends after --steps steps of its "
      "optimizer. Or it is a file and a function, train.py:make_step: make_step(batch) builds the model and "
      "returns a function that runs one training step.");
  options.add_arguments("PROGRAM", "The program as FILE.py:FUNCTION, or its command after --", &programs);
  options.take_command();
  add_tracing_options(options, traced);
  options.add_text("output", "Write the trace to this file; also -o", &output);
  options.add_switch("json", "Print JSON, sizes in bytes", &as_json);
  options.set_examples(
      "  headroom trace --device rtx-3090 -o run.trace -- python train.py --lr 1e-4\n"
      "  headroom trace --device a100-80gb -- torchrun --nproc-per-node 4 train.py\n"
      "  headroom trace train.py:make_step --batch 16 --device rtx-3090 -o run.trace\n"
      "  headroom predict run.trace --device rtx-3090      does it fit?\n");
  std::string long_name = "--output";
  std::vector<char*> words(argv, argv + argc);
  for (char*& word : words) {
    if (std::string_view(word) == "--") break;
    if (std::string_view(word) == "-o") word = long_name.data();
  }
  if (!options.parse(static_cast<int>(words.size()), words.data(), std::cout)) return kExitDone;
  if (programs.size() != 1)
    throw InvalidArgument("give one program, as -- python train.py, or train.py:make_step");
  const ProgramRequest request = program_request(programs.front(), traced);
  require_writable(output);
  const Trace trace = trace_program_to(request, output);
  as_json ? print_json(trace, request, output) : print_summary(trace, request, output, options.terminal());
  return kExitDone;
}

}  // namespace headroom
