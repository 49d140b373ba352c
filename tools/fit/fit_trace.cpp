#include "tools/fit/fit_trace.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "answers/predict.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/text.h"
#include "runtime/app/setup.h"
#include "tools/trace/program.h"
#include "tools/workload/checkpoints.h"
#include "tools/workload/fitting.h"
#include "tools/workload/input.h"
#include "tools/workload/lower_bound.h"
#include "tools/workload/program_fitting.h"
#include "tools/workload/solve_torch.h"

namespace headroom {
namespace {

nlohmann::ordered_json json_of(const Prediction& prediction) {
  return {{"fits", prediction.fits},
          {"predicted_total_bytes", prediction.total_bytes},
          {"predicted_reserved_bytes", prediction.reserved_bytes},
          {"predicted_allocated_bytes", prediction.allocated_bytes}};
}

// The next command, and what makes the next batch fit.
std::vector<std::string> alternatives(const ProgramFit& result) {
  std::vector<std::string> found;
  for (const TorchChange& change : result.changes) {
    found.push_back(fmt::format("batch {} with {}", result.next_batch, change.text()));
  }
  return found;
}

void print_bound(const WorkloadOptions& options, const Terminal& terminal) {
  const std::string note = lower_bound_note(options.runtime.strategy);
  if (!note.empty()) fmt::print("{}\n", terminal.wrapped(note));
}

void print_next(const std::string& input, WorkloadOptions options, int64_t batch,
                const std::vector<std::string>& others = {}) {
  options.step.steps = WorkloadOptions{}.step.steps;  // fit has another default
  fmt::print("\nnext: {}\n", command_on_input("headroom predict", input, options, batch));
  for (const std::string& other : others) fmt::print("  or: {}\n", other);
}

}  // namespace

int fit_program_batch(const std::string& input, const WorkloadOptions& options, const TraceFitOptions& fit) {
  require_one_device(options);
  const RunSetup setup = setup_to_fit_budget(options.runtime);
  Progress progress(0, "batches traced");
  progress.start("loading " + printable(input));
  const auto tracer = std::make_shared<ProgramTracer>(program_request(input, options, 0));
  std::string model;
  const TraceBatch trace_batch = [&](int64_t batch) {
    progress.start(fmt::format("batch {}", batch));
    TracedProgram program = tracer->trace(batch);
    model = program.model;
    progress.advance(1);
    return std::move(program.trace);
  };
  const auto trace_again = [&](int64_t batch) {
    progress.start(fmt::format("batch {} with checkpoints", batch));
    return trace_checkpoints(tracer, batch, model);
  };
  const ProgramFit result = fit_program(trace_batch, setup, fit.margin_bytes, fit.max_batch, trace_again);
  progress.finish();
  const bool fits = result.batch > 0;
  if (fit.json) {
    nlohmann::ordered_json json = json_of(result.best().prediction);
    json["input"] = input;
    json["strategy"] = options.runtime.strategy;
    json["reserved_is_lower_bound"] = is_lower_bound(options.runtime.strategy);
    json["device"] = options.runtime.device;
    json["device_bytes"] = setup.device.total_bytes;
    json["margin_bytes"] = fit.margin_bytes;
    json["batch"] = result.batch;
    json["stopped_by"] = result.stopped_by;
    json["alternatives"] = alternatives(result);
    json["trials"] = nlohmann::ordered_json::array();
    for (const TracedBatch& trial : result.trials) {
      nlohmann::ordered_json row = json_of(trial.prediction);
      row["batch"] = trial.batch;
      row["lacks_margin"] = trial.lacks_margin;
      json["trials"].push_back(row);
    }
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return fits ? kExitDone : kExitOutOfMemory;
  }
  const std::string where =
      fmt::format("{} under {} on {}", printable(input), options.runtime.strategy, options.runtime.device);
  if (fits) {
    fmt::print("{}\n",
               fit.terminal.wrapped(fmt::format(
                   "{}: {}; traced {} batches",
                   fit.terminal.painted(fmt::format("largest batch {}", result.batch), Colour::kGreen), where,
                   result.trials.size())));
    fmt::print("{}\n", fit.terminal.wrapped(why_not_text(fit.margin_bytes, "more", result.stopped_by)));
  } else {
    fmt::print("{}\n{}\n",
               fit.terminal.wrapped(fmt::format("{}: {}, not even batch 1",
                                                fit.terminal.painted("nothing fits", Colour::kRed), where)),
               fit.terminal.wrapped(result.stopped_by));
  }
  Table table({{.title = "batch", .is_number = true},
               {"verdict"},
               {.title = "process", .is_number = true},
               {.title = "reserved", .is_number = true, .drop = 1},
               {.title = "allocated", .is_number = true, .drop = 2}});
  for (const TracedBatch& trial : result.trials) {
    const Prediction& prediction = trial.prediction;
    table.add({fmt::format("{}", trial.batch),
               {prediction.fits      ? "fits"
                : trial.lacks_margin ? "leaves too little"
                                     : "does not fit",
                prediction.fits ? Colour::kGreen : Colour::kRed},
               format_mib(prediction.total_bytes),
               format_mib(prediction.reserved_bytes),
               format_mib(prediction.allocated_bytes)});
  }
  fmt::print("\nin MiB\n{}", table.text(fit.terminal));
  print_bound(options, fit.terminal);
  print_next(input, options, result.batch, alternatives(result));
  return fits ? kExitDone : kExitOutOfMemory;
}

namespace {

int fit_least_memory(const Trace& trace, const std::string& input, const WorkloadOptions& options,
                     const TraceFitOptions& fit) {
  RunSetup setup = setup_to_fit(options.runtime);
  const std::optional<int64_t> least = least_total_bytes(traced_here(trace), setup);
  if (least) setup.device.total_bytes = *least;
  const Prediction there = outcome(traced_here(trace), setup);
  setup.device.total_bytes -= setup.device.granularity_bytes;
  const std::string page = format_bytes(setup.device.granularity_bytes);
  const std::string stopped_by =
      least && fit.margin_bytes > 0
          ? lacks_margin_text(page + " less", fit.margin_bytes)
          : fmt::format("with {} less: {}", page,
                        least ? outcome(traced_here(trace), setup).reason : there.reason);
  const int64_t device_bytes = least ? *least + fit.margin_bytes : 0;
  if (fit.json) {
    nlohmann::ordered_json json = json_of(there);
    json["input"] = input;
    json["strategy"] = options.runtime.strategy;
    json["reserved_is_lower_bound"] = is_lower_bound(options.runtime.strategy);
    json["device"] = options.runtime.device;
    json["device_bytes"] = device_bytes;
    json["margin_bytes"] = fit.margin_bytes;
    json["stopped_by"] = stopped_by;
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return least ? kExitDone : kExitOutOfMemory;
  }
  if (!least) {
    fmt::print("{}\n{}\n",
               fit.terminal.wrapped(fmt::format("{}: {} under {}",
                                                fit.terminal.painted("nothing fits", Colour::kRed),
                                                printable(input), options.runtime.strategy)),
               fit.terminal.wrapped(there.reason));
  } else {
    fmt::print("{}\n", fit.terminal.wrapped(fmt::format(
                           "{}: {} under {}, with the context and libraries of {}",
                           fit.terminal.painted("least memory " + format_bytes(device_bytes), Colour::kGreen),
                           printable(input), options.runtime.strategy, setup.options.device)));
    fmt::print("{}\n", fit.terminal.wrapped(why_not_text(fit.margin_bytes, "less", stopped_by)));
    Table table({{"process", true}, {"reserved", true}, {"allocated", true}});
    table.add(
        {format_mib(there.total_bytes), format_mib(there.reserved_bytes), format_mib(there.allocated_bytes)});
    fmt::print("\nin MiB\n{}", table.text(fit.terminal));
    print_bound(options, fit.terminal);
  }
  WorkloadOptions next = options;
  if (least) next.runtime = with_device_memory(next.runtime, device_bytes);
  print_next(input, next, 0);
  return least ? kExitDone : kExitOutOfMemory;
}

}  // namespace

int fit_trace(const Trace& trace, const std::string& input, const WorkloadOptions& options,
              const TraceFitOptions& fit) {
  require_one_device(options);
  if (fit.least_memory) return fit_least_memory(trace, input, options, fit);
  throw InvalidArgument(fmt::format(
      "{}: a recorded trace has one batch; pass --least-memory, or the program itself", printable(input)));
}

}  // namespace headroom
