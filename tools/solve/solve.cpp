// headroom solve: plans a training step for a budget of memory, shows what that costs in time, and what other
// budgets would.

#include "answers/solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/progress.h"
#include "sheet/sheet.h"
#include "tools/solve/curve.h"
#include "tools/solve/solve_trace.h"
#include "tools/subcommands.h"
#include "tools/workload/input.h"

namespace headroom {
namespace {

struct SolveOptions {
  WorkloadOptions workload;
  std::vector<std::string> inputs;
  int64_t points = 8;
  std::string html;
  bool json = false;
};

// Returns the budget of the process: the option, or all free memory of the device.
int64_t memory_of(const SolveOptions& options, const RunSetup& setup) {
  if (options.workload.runtime.memory_bytes) return *options.workload.runtime.memory_bytes;
  if (setup.gpus.physical.empty()) {
    throw InvalidArgument("no budget given; pass --memory SIZE, or name a GPU with --device");
  }
  return free_bytes(setup);
}

// The cost of a budget with the same bits, and with others if that is cheaper: with parts of the loss or of
// the batch, or norms in 8 bits. At least one exists. A run uses the first that exists, unless the second is
// requested wherever it is cheaper.
struct CurvePoint {
  std::optional<MemorySolution> whole, split;

  const MemorySolution& of_run(const RuntimeOptions& options) const {
    const bool prefers_split = options.split_batch == SplitBatch::kCheaper || options.compress_norms;
    return whole && (!prefers_split || !split) ? *whole : *split;
  }
};

std::optional<CurvePoint> point_of(const Solver& solver, int64_t memory, const RuntimeOptions& options) {
  CurvePoint point;
  MemorySolution whole = solver.solve(memory, SplitBatch::kNever);
  if (whole.fits) point.whole = std::move(whole);
  const bool compresses_norms = options.compress_norms;
  if ((options.split_batch != SplitBatch::kNever || compresses_norms) &&
      (!point.whole || !point.whole->levers.empty())) {
    MemorySolution split =
        solver.solve(memory, compresses_norms ? options.split_batch : SplitBatch::kCheaper, compresses_norms);
    if (split.fits && !keeps_bits(split)) point.split = std::move(split);
  }
  if (!point.whole && !point.split) return {};
  return point;
}

// Budgets between the least and what the step takes without one, both included, in ascending order.
std::vector<CurvePoint> curve_of(const Solver& solver, const SolveOptions& options, int64_t page,
                                 Progress& progress) {
  std::vector<CurvePoint> curve;
  if (options.points == 0) return curve;
  const int64_t least = solver.solve_least().least_memory_bytes;
  if (least == 0) return curve;
  const int64_t most = std::max(least, round_up(solver.bytes_without(), page));
  int64_t before = 0;
  for (int64_t i = 0; i <= options.points; ++i) {
    const int64_t memory = least + (most - least) * i / options.points / page * page;
    progress.advance(1);
    if (memory == std::exchange(before, memory)) continue;
    if (std::optional<CurvePoint> point = point_of(solver, memory, options.workload.runtime))
      curve.push_back(std::move(*point));
  }
  return curve;
}

// "residual, batch 256, 4 replicas, in 600.00 MiB on sim"
std::string title_of(const WorkloadOptions& workload, const MemorySolution& solution) {
  const int replicas = workload.replicas.count();
  return fmt::format("{}, batch {}{}, in {} on {}", program_name(workload), workload.step.batch,
                     replicas > 1 ? fmt::format(", {} replicas", replicas) : "",
                     format_bytes(solution.memory_bytes), workload.runtime.device);
}

double more_time(const MemorySolution& solution) {
  return solution.us_without > 0 ? 100 * (solution.us / solution.us_without - 1) : 0;
}

std::string cost_text(const MemorySolution& solution) {
  return fmt::format("{:.3f} ms a step, {:+.1f} %", 1e-3 * solution.us, more_time(solution));
}

Record figures_of(const MemorySolution& solution) {
  return {{"memory_bytes", solution.memory_bytes},
          {"keeps", solution.fits},
          {"process_bytes", solution.process_bytes},
          {"ms_per_step", 1e-3 * solution.us},
          {"repeated_nodes", solution.schedule.repeats()},
          {"host_bytes", solution.host_bytes},
          {"host_states", amount_of(solution, kHostStateLever)},
          {"parts", std::max(1, amount_of(solution, kSplitBatchLever))},
          {"loss_parts", std::max(1, amount_of(solution, kSplitLossLever))},
          {"compresses_norms", amount_of(solution, kCompressNormsLever) > 0},
          {"same_bits", keeps_bits(solution)}};
}

// "4", or "loss 4", with norms in 8 bits "norms, 4" or "norms"
std::string parts_of(const MemorySolution& solution) {
  std::string text;
  for (const Lever& lever : solution.levers) {
    if (!lever.label.empty()) text += (text.empty() ? "" : ", ") + lever.label;
  }
  return text;
}

void add_curve(const std::vector<CurvePoint>& curve, const RuntimeOptions& options, int64_t budget,
               Sheet& sheet) {
  constexpr Unit kMsOfStep{Unit::Kind::kScaled, 1e-3, 3};
  SheetTable table{.heading = "Budgets",
                   .columns = {{"memory MiB", "", kMib},
                               {"of the peak", "", kPercent, 2},
                               {"ms, same bits", "", kMsOfStep},
                               {"more time", "", kPercent},
                               {"repeats", "", kNumber, 1},
                               {"ms, other bits", "", kMsOfStep},
                               {"more time", "", kPercent},
                               {"parts", "", kVersion, 3}}};
  const Cell none(Datum(), "");
  solve::CurvePoints same_bits, other_bits;
  List list;
  for (const CurvePoint& point : curve) {
    const auto& [whole, split] = point;
    const MemorySolution& any = whole ? *whole : *split;
    const auto ms = [&](const auto& solution) { return solution ? Cell(solution->us) : none; };
    const auto more = [&](const auto& solution) { return solution ? Cell(more_time(*solution)) : none; };
    table.add({any.memory_bytes,
               100 * static_cast<double>(any.memory_bytes) / static_cast<double>(any.process_bytes_without),
               ms(whole), more(whole), whole ? Cell(whole->schedule.repeats()) : none, ms(split), more(split),
               split ? Cell(parts_of(*split)) : none});
    if (whole) same_bits.push_back({any.memory_bytes, more_time(*whole)});
    if (split) other_bits.push_back({any.memory_bytes, more_time(*split)});
    Record row = figures_of(point.of_run(options));
    if (whole && split) row.push_back({"ms_per_step_with_split_batch", 1e-3 * split->us});
    list.emplace_back(std::move(row));
  }
  if (!curve.empty())
    sheet.parts.emplace_back(Picture{"Memory against time", solve::draw(same_bits, other_bits, budget)});
  sheet.table(std::move(table));
  sheet.set("curve", list);
}

void add_levers(const MemorySolution& solution, Sheet& sheet) {
  SheetTable& table = sheet.table({.key = "levers",
                                   .heading = "Levers",
                                   .columns = {{"lever", "name"},
                                               {"saves MiB", "saved_bytes", kMib},
                                               {"costs ms", "added_ms", kMs},
                                               {"", "", kWrappedText}}});
  for (const Lever& lever : solution.levers) {
    table.add({lever.name, lever.saved_bytes, 1e-3 * lever.added_us, lever.what});
  }
}

double added_us(const MemorySolution& solution, std::string_view name) {
  double us = 0;
  for (const Lever& lever : solution.levers) us += lever.name == name ? lever.added_us : 0;
  return us;
}

// "with 1.00 GiB more: 5.233 ms less per step (recompute costs 5.233 ms less)": the lever that it pays off
// most.
std::string next_memory_text(const MemorySolution& solution, const MemorySolution& with_more) {
  const auto saved_us = [&](const Lever& used) { return used.added_us - added_us(with_more, used.name); };
  const auto lever = std::ranges::max_element(
      solution.levers, [&](const Lever& a, const Lever& b) { return saved_us(a) < saved_us(b); });
  std::string text = fmt::format("with {} more: {:.3f} ms less per step",
                                 format_bytes(with_more.memory_bytes - solution.memory_bytes),
                                 1e-3 * (solution.us - with_more.us));
  if (lever != solution.levers.end())
    text += fmt::format(" ({} costs {:.3f} ms less)", lever->name, 1e-3 * saved_us(*lever));
  return text;
}

// Returns the solution with the optimizer sharded, if the options do not name it and it is of use: it fits
// where the plain one does not, or takes less time, or its least budget is smaller, or equal for less time.
std::optional<MemorySolution> sharded_of(WorkloadOptions options, const RunSetup& setup,
                                         const MemorySolution& plain) {
  const bool is_free = plain.fits && plain.levers.empty();
  if (options.replicas.count() == 1 || options.replicas.shard_optimizer || is_free) return {};
  options.replicas.shard_optimizer = true;
  MemorySolution sharded = Solver(make_programs(options), setup).solve(plain.memory_bytes);
  const auto least = [](const MemorySolution& solution) {
    return solution.least_memory_bytes > 0 ? solution.least_memory_bytes : INT64_MAX;
  };
  const bool is_better =
      sharded.fits ? !plain.fits || sharded.us < plain.us || (keeps_bits(sharded) && !keeps_bits(plain))
                   : !plain.fits && std::pair(least(sharded), sharded.us) < std::pair(least(plain), plain.us);
  return is_better ? std::optional(std::move(sharded)) : std::nullopt;
}

std::string sharded_text(const MemorySolution& sharded) {
  return fmt::format("with --shard-optimizer {} {}, {}", sharded.fits ? "it takes" : "the minimum:",
                     format_bytes(sharded.fits ? sharded.process_bytes : sharded.least_memory_bytes),
                     cost_text(sharded));
}

// "3 values and 2 states"
std::string what_lies_on_host(const MemorySolution& solution) {
  const int values = solution.schedule.stores();
  const int states = amount_of(solution, kHostStateLever);
  const std::string of_values = fmt::format("{} value{}", values, values == 1 ? "" : "s");
  const std::string of_states = fmt::format("{} state{} of the optimizer", states, states == 1 ? "" : "s");
  return states == 0 ? of_values : values == 0 ? of_states : of_values + " and " + of_states;
}

std::string repeats_text(const MemorySolution& solution) {
  const int repeats = solution.schedule.repeats();
  return repeats == 1 ? "1 node runs twice" : fmt::format("{} nodes run twice", repeats);
}

// All that was found for a budget.
struct Answer {
  MemorySolution solution, with_more;
  std::optional<MemorySolution> split, sharded;
  std::vector<CurvePoint> curve;
  int64_t larger_memory_bytes = 0;  // the minimum, where only a larger device has as much; 0: unknown
};

std::string next_command(WorkloadOptions next, const MemorySolution& solution,
                         const std::vector<std::string>& kept_words) {
  const int64_t memory = solution.fits ? solution.memory_bytes : solution.least_memory_bytes;
  next.runtime.memory_bytes = memory;
  if (memory == 0) {
    next.runtime.memory_bytes.reset();
    // Removes options that do nothing without a budget.
    next.runtime.host_memory_bytes.reset();
    next.runtime.compress_norms = false;
    next.runtime.split_batch = RuntimeOptions{}.split_batch;
    next.step.batch = StepOptions{}.batch;
  }
  std::vector<std::string> words = to_words(next, OptionSet::Words::kChanged);
  for (const std::string& word : kept_words) {
    const std::string name = word.substr(0, word.find('='));
    if (std::ranges::find(words, name) != words.end()) continue;
    words.insert(words.end(), {name, word.substr(name.size() + 1)});
  }
  return command_line(memory == 0 ? "headroom fit" : "headroom run", words);
}

void add_figures(const WorkloadOptions& workload, const Answer& answer, Sheet& sheet) {
  const auto& [solution, with_more, split, sharded, curve, larger] = answer;
  for (Field& field : figures_of(solution)) sheet.set(std::move(field.key), std::move(field.value));
  sheet.set("program", program_name(workload));
  sheet.set("batch", workload.step.batch);
  sheet.set("device", workload.runtime.device);
  if (workload.replicas.count() > 1) sheet.set("replicas", workload.replicas.count());
  sheet.set("least_memory_bytes", curve.empty() ? solution.least_memory_bytes
                                                : curve.front().of_run(workload.runtime).memory_bytes);
  sheet.set("process_bytes_without", solution.process_bytes_without);
  sheet.set("ms_per_step_without", 1e-3 * solution.us_without);
  sheet.set("ms_saved_by_next_gib", solution.fits ? 1e-3 * std::max(0.0, solution.us - with_more.us) : 0);
  if (split) sheet.set("ms_per_step_with_split_batch", 1e-3 * split->us);
  if (sharded) {
    Record record = figures_of(*sharded);
    record.push_back({"least_memory_bytes", sharded->least_memory_bytes});
    sheet.set("with_shard_optimizer", record);
  }
}

// `packed`: the options of a run that keeps a budget.
Sheet to_sheet(const WorkloadOptions& workload, const RuntimeOptions& packed, const Answer& answer) {
  const auto& [solution, with_more, split, sharded, curve, larger] = answer;
  Sheet sheet =
      solve::sheet_of(title_of(workload, solution), solution.fits,
                      fmt::format("takes {}, {}", format_bytes(solution.process_bytes), cost_text(solution)));
  add_figures(workload, answer, sheet);
  if (!solution.fits && solution.least_memory_bytes > 0) {
    sheet.fact(
        fmt::format("the minimum: {}, {}", format_bytes(solution.least_memory_bytes), cost_text(solution)));
  } else if (larger > 0) {
    sheet.fact(fmt::format("the minimum exceeds the free memory of the device: {}", format_bytes(larger)));
  }
  sheet.fact(fmt::format("without levers (--strategy {} --plan {}): {}, {:.3f} ms a step", packed.strategy,
                         to_string(packed.plan), format_bytes(solution.process_bytes_without),
                         1e-3 * solution.us_without));
  if (solution.fits && with_more.us < solution.us) sheet.fact(next_memory_text(solution, with_more));
  if (split) {
    sheet.fact(fmt::format("with --split-batch cheaper, {}: {}", describe_parts(*split), cost_text(*split)));
  }
  if (sharded) sheet.fact(sharded_text(*sharded));
  add_levers(solution, sheet);
  if (!solution.levers.empty()) {
    std::string text = fmt::format("{}; {}", describe_bits(solution), repeats_text(solution));
    if (solution.host_bytes > 0) {
      const auto count = solution.schedule.stores() + amount_of(solution, kHostStateLever);
      text += fmt::format("; {} {} in {} of host memory", what_lies_on_host(solution),
                          count == 1 ? "lies" : "lie", format_bytes(solution.host_bytes));
    }
    sheet.note(text);
  }
  add_curve(curve, workload.runtime, solution.memory_bytes, sheet);
  return sheet;
}

}  // namespace

int run_solve(int argc, char** argv) {
  SolveOptions options;
  WorkloadOptions& workload = options.workload;
  OptionSet set("headroom solve",
                "Plans a training step for a memory budget at the least cost in time. For a PyTorch program, "
                "prints code changes that fit the budget.");
  set.add_arguments("INPUT", kInputHelp, &options.inputs, false);
  set.take_command();
  add_question_options(set, workload);
  set.add_integer("points", "Budgets above the least in the table of memory against time; 0: no table",
                  &options.points, 0, 64);
  set.add_text("html", "Also write the answer to this file as an HTML page", &options.html);
  set.add_switch("json", "Print JSON, sizes in bytes", &options.json);
  set.set_examples(
      "  headroom solve --net unet --batch 16 --memory 800MiB       on a simulated 2 GB laptop\n"
      "  headroom solve resnet50.onnx --batch 256 --memory 20GiB --device sim:h200\n"
      "  headroom solve --net residual --batch 512 --device rtx-3090   with all free memory of the card\n"
      "  headroom solve --net residual --batch 256 --memory 600MiB --html solved.html\n"
      "  headroom solve --net residual --batch 512 --memory 500MiB --device sim:four-2080ti --replicas 4 "
      "--shard-optimizer\n"
      "  headroom solve --memory 6GiB --device rtx-3060 -- python train.py   the code to change\n"
      "  headroom solve train.py:make_step --batch 32 --memory 6GiB --device rtx-3060\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);
  if (!options.workload.runtime.record.empty())
    fmt::print(stderr, "note: nothing runs, so nothing is recorded; `headroom run` records\n");
  if (options.inputs.size() > 1) throw InvalidArgument("solve takes one input");
  if (!options.html.empty()) require_writable(options.html);
  prepare_inputs(set, options.inputs, workload);
  if (!options.inputs.empty())
    return solve_trace(set, options.inputs.front(), workload, options.html, options.json);

  if (const auto note = lower_memory_to_free(workload.runtime)) fmt::print(stderr, "note: {}\n", *note);
  const int64_t memory = memory_of(options, setup_of(workload.runtime));
  RuntimeOptions budget = workload.runtime;
  budget.memory_bytes = memory;
  budget.strategy_settings();  // refuses another limit, as a run does
  workload.runtime.memory_bytes = memory;
  const WorkloadOptions given = workload;
  // Options that are the usual ones, but not with a budget.
  std::vector<std::string> kept_words;
  if (set.is_given("plan")) kept_words.push_back(fmt::format("--plan={}", to_string(workload.runtime.plan)));
  if (set.is_given("strategy")) kept_words.push_back("--strategy=" + workload.runtime.strategy);
  pack_for_memory(set, workload.runtime);
  if (workload.step.steps == 0) workload.step.steps = kStepsOfRun;  // as in the next command
  const RunSetup setup = setup_of(workload.runtime);
  WorkloadOptions plain = workload;
  plain.runtime.memory_bytes.reset();
  const Solver solver(make_programs(plain), setup);
  Answer answer;
  Progress progress(static_cast<double>(options.points > 0 ? options.points + 3 : 2), "budgets");
  progress.start("budgets");
  answer.curve = curve_of(solver, options, setup.device.granularity_bytes, progress);
  progress.start("the budget");
  answer.solution = solver.solve(memory);
  const MemorySolution& solution = answer.solution;
  progress.advance(1);
  answer.with_more = solver.solve(memory + kGiB);
  if (solution.fits && keeps_bits(solution) && workload.runtime.split_batch == SplitBatch::kNeeded &&
      !workload.runtime.compress_norms) {
    if (std::optional<CurvePoint> point = point_of(solver, memory, workload.runtime))
      answer.split = std::move(point->split);
  }
  answer.sharded = sharded_of(plain, setup, solution);
  progress.advance(1);
  if (!solution.fits && solution.least_memory_bytes == 0)
    answer.larger_memory_bytes = solver.least_on_larger_device();
  progress.finish();

  Sheet sheet = to_sheet(given, workload.runtime, answer);
  sheet.propose({next_command(given, solution, kept_words)});
  solve::write(sheet, options.html, options.json, set.terminal());
  return solution.fits ? kExitDone : kExitOutOfMemory;
}

}  // namespace headroom
