// headroom run: a few real steps of a net's training, or a trace, in a process of its own, and what they
// took. A program beside the command, which calls it: kernels for GPUs, and the libraries behind them, are
// here alone.

#include <fmt/format.h>

#include <iostream>

#include "allocators/trace/read_trace.h"
#include "runtime/core/bytes.h"
#include "runtime/core/errors.h"
#include "runtime/program.h"
#include "tools/workload/measure.h"

namespace headroom {
namespace {

constexpr int64_t kSteps = 10;

void print_report(const Measurement& m, const std::string& workload, const WorkloadOptions& options) {
  const RuntimeOptions& runtime = options.runtime;
  fmt::print("{}: {} under {} on {}, {} steps\n", m.outcome, workload, runtime.strategy, runtime.device,
             m.steps);
  if (!m.error.empty()) fmt::print("{}\n", m.error);
  fmt::print("\npeaks in MiB\n{:>10} {:>10} {:>10} {:>10} {:>10} {:>13} {:>10}\n", "device", "process",
             "reserved", "allocated", "overhead", "fragmentation", "ms/step");
  fmt::print("{:>10} {:>10} {:>10} {:>10} {:>10} {:>13.3f} {:>10.3f}\n", format_mib(m.peak_device_bytes),
             format_mib(m.peak_process_bytes), format_mib(m.peak_reserved_bytes),
             format_mib(m.peak_allocated_bytes), format_mib(m.overhead_bytes), m.fragmentation,
             1e3 * m.seconds_per_step);
}

int run(int argc, char** argv) {
  WorkloadOptions options;
  options.step.steps = kSteps;
  std::string path;
  bool json = false;
  OptionSet set("headroom run", "Trains a net for some steps, or plays a trace, and says what that took.");
  add_workload_options(set, options);
  set.add_text("trace", "Play the trace in this file in place of a net's training, as often as --steps says",
               &path);
  set.add_switch("json", "Print one line of JSON, sizes in bytes", &json);
  set.set_examples(
      "  headroom run --net unet --batch 16                      on a simulated 2 GB laptop\n"
      "  headroom run --net attention --device cuda --steps 100  on a GPU\n"
      "  headroom run --trace run.csv.gz --device sim:h200 --strategy mapped\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);
  if (options.step.steps == 0) options.step.steps = kSteps;

  Measurement result;
  if (path.empty()) {
    result = measure(options);
  } else {
    const std::vector<Trace> traces = read_traces(path);
    if (traces.size() != 1) {
      throw InvalidArgument(fmt::format("{}: has traces of {} devices, one can be run", path, traces.size()));
    }
    result = measure(traces.front(), options.runtime, options.step.steps);
  }
  if (json) {
    fmt::print("{}\n", to_json(result));
  } else {
    print_report(result, path.empty() ? fmt::format("{}, batch {}", options.net, options.step.batch) : path,
                 options);
    fmt::print("\nnext: headroom compare {}\n",
               path.empty() ? fmt::format("--net {} --batch {}", options.net, options.step.batch)
                            : "--trace " + path);
  }
  if (result.outcome == "ok") return kExitDone;
  return result.outcome == "out_of_memory" ? kExitOutOfMemory : kExitLibraryFailure;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  return headroom::run_program("headroom run", headroom::run, argc, argv);
}
