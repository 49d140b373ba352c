// The demo: the same training on a simulated 2 GB GPU under three memory strategies, side by side. Started by
// tools/demo.sh.

#include <fmt/format.h>

#include <cstdio>
#include <iostream>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "examples/models/mnist/report.h"
#include "examples/models/mnist/train_options.h"
#include "runtime/app/run_main.h"
#include "runtime/app/runtime.h"

namespace headroom {
namespace {

struct Row {
  RuntimeOptions options;
  RunOutcome expected = RunOutcome::kOk;
  TrainResult result;
  std::string next = {};
};

// Returns the command with the smallest change that was tested to fit, if there is one.
std::string next_command(const TrainResult& result, const Runtime& runtime) {
  const TriedChange* change = result.report ? result.report->smallest() : nullptr;
  if (change == nullptr || change->kind == ChangeKind::kDevice) return advice(result, runtime);
  RuntimeOptions options;
  StepOptions step;
  OptionSet set({}, {});
  add_step_options(set, step);
  add_runtime_options(set, options);
  options = change->setup.options;
  options.record.clear();
  step.batch = change->setup.batch;
  return command_line("train_mnist", set.words(OptionSet::Words::kChanged));
}

void print_table(const std::vector<Row>& rows) {
  fmt::print("\nmemory in MiB\n{:<13} {:<16} {:>8} {:>9} {:>10} {:>9} {:>9}  {}\n", "strategy", "outcome",
             "device", "reserved", "allocated", "ms/step", "accuracy", "what to do next");
  for (const Row& row : rows) {
    const TrainResult& r = row.result;
    const bool ok = r.outcome == RunOutcome::kOk;
    fmt::print("{:<13} {:<16} {:>8} {:>9} {:>10} {:>9} {:>9}  {}\n", r.strategy, to_string(r.outcome),
               format_mib(r.peak_device_bytes), format_mib(r.peak_reserved_bytes),
               format_mib(r.peak_allocated_bytes), ok ? fmt::format("{:.2f}", 1e3 * r.seconds_per_step) : "-",
               ok ? fmt::format("{:.2f} %", 100 * r.test_accuracy) : "-", row.next);
  }
}

int run(int argc, char** argv) {
  std::string folder, json, record;
  int64_t epochs = 2, batch = 64, seed = 1;
  OptionSet set("headroom_demo",
                "Trains the conv net on a simulated 2 GB GPU under three memory strategies.");
  set.add_text("data", "Folder with the four IDX files of MNIST (default: generated digits)", &folder);
  set.add_text("json", "Write the rows of the table to this file", &json);
  set.add_text("recordings", "Write a recording of each run to this folder, for headroom report", &record);
  set.add_integer("epochs", "Passes over the data", &epochs, 1, 1000);
  set.add_integer("batch", "Images in one step", &batch, 1);
  set.add_integer("seed", "Random seed of digits, weights and data order", &seed, 0);
  if (!set.parse(argc, argv, std::cout)) return kExitDone;

  std::vector<Row> rows(3);
  rows[0].options = {.device = "sim", .strategy = "grab-all"};
  rows[0].expected = RunOutcome::kLibraryFailure;
  rows[1].options = {.device = "sim", .strategy = "allow-growth"};
  rows[2].options = {.device = "sim", .strategy = "hard-limit", .limit_bytes = 1 * kGiB};
  if (!json.empty()) require_writable(json);
  for (Row& row : rows) {
    if (!record.empty()) row.options.record = fmt::format("{}/{}.trace", record, row.options.strategy);
  }
  TrainSettings settings;
  settings.epochs = static_cast<int>(epochs);
  settings.batch = batch;
  settings.seed = static_cast<uint64_t>(seed);
  const TrainingData data = load_or_draw(folder, settings.seed);
  fmt::print(
      "A conv net of 93,322 parameters learns {} on a simulated GPU:\n2002 MiB, of which other processes "
      "hold 329. Only the memory strategy differs.\n",
      data.origin);

  bool as_expected = true;
  std::string lines;
  for (Row& row : rows) {
    fmt::print("\n== {}\n", row.options.strategy);
    std::fflush(stdout);
    Runtime runtime(row.options);
    row.result = train(settings, data.training, data.test, runtime, [&](const StepReport& report) {
      if (report.test_accuracy) {
        fmt::print("epoch {}/{}: test accuracy {:.2f} %, {:.1f} s\n", report.epoch, epochs,
                   100 * *report.test_accuracy, report.seconds);
        std::fflush(stdout);
      }
    });
    explain_failure(settings, data.training, data.test, runtime, row.result);
    row.next = next_command(row.result, runtime);
    if (row.result.outcome != RunOutcome::kOk)
      fmt::print("{}", report_text(row.result, false, Terminal(stdout)));
    as_expected = as_expected && row.result.outcome == row.expected;
    lines += (lines.empty() ? "" : ",\n") + to_json(row.result);
  }
  print_table(rows);
  const bool same = rows[1].result.weights_checksum == rows[2].result.weights_checksum;
  fmt::print(
      "\nThe two that trained ended with {} weights. One of them alone, with all its options:\n"
      "  build/release/examples/train_mnist --device sim --strategy allow-growth --plan packed\n",
      same ? "the same" : "DIFFERENT");
  if (!json.empty()) {
    const std::string text = fmt::format("{{\"rows\":[\n{}\n]}}\n", lines);
    const std::string_view parts[] = {text};
    write_file(json, parts);
  }
  return as_expected && same ? kExitDone : kExitCheckFailed;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  return headroom::run_main("headroom_demo", headroom::run, argc, argv);
}
