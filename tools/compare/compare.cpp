// headroom compare: runs nets and traces under strategies and settings, each in its own process, and marks
// the Pareto-optimal ones.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "allocators/strategies/strategy.h"
#include "allocators/strategies/strategy_text.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/process/temporary_folder.h"
#include "base/progress.h"
#include "base/text.h"
#include "sheet/writers.h"
#include "tools/compare/commands.h"
#include "tools/compare/comparison.h"
#include "tools/compare/formats.h"
#include "tools/subcommands.h"
#include "tools/trace/command.h"
#include "tools/trace/program.h"
#include "tools/workload/child.h"
#include "tools/workload/input.h"
#include "tools/workload/lower_bound.h"
#include "tools/workload/recorded_setup.h"
#include "tools/workload/workload.h"

namespace headroom::compare {
namespace {

constexpr int64_t kSteps = 10;  // of nets
constexpr std::string_view kTraceOption = "--trace";

struct Options {
  WorkloadOptions workload;
  std::vector<std::string> nets, traces, inputs, strategies, settings;
  int64_t runs = 3;
  int64_t passes = 1;  // over a recording, which has all steps of its program
  std::string csv, html;
  std::string command_strategies;  // of a program after --, which compare_command runs
  bool json = false;
};

// Strategies that need a limit are left out if there is none.
std::vector<std::string> usable_strategies(const Options& options) {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) {
    if (!strategy.needs_limit || options.workload.runtime.limit_bytes) names.emplace_back(strategy.name);
  }
  return names;
}

// "plan=packed,kernels=library" -> {"--plan=packed", "--kernels=library"}.
std::vector<std::string> words_of(const std::string& settings) {
  std::vector<std::string> words;
  std::istringstream list(settings);
  for (std::string word; std::getline(list, word, ',');) {
    if (word.find('=') == std::string::npos || word.front() == '=') {
      throw InvalidArgument(
          fmt::format("--settings {}: '{}' is not OPTION=VALUE, such as plan=packed", settings, word));
    }
    words.push_back("--" + word);
  }
  return words;
}

// Throws InvalidArgument for what a child process would refuse, before any of them runs. Returns its options.
WorkloadOptions checked(const std::vector<std::string>& words) {
  WorkloadOptions options;
  OptionSet set("headroom compare", {});
  add_workload_options(set, options);
  std::string trace;
  set.add_text("trace", {}, &trace);
  std::vector<const char*> arguments = {"headroom compare"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  std::ostringstream out;
  set.parse(static_cast<int>(arguments.size()), arguments.data(), out);
  options.runtime.strategy_settings();
  if (trace.empty()) {
    make_programs(options);
  } else {
    require_one_device(options);
  }
  return options;
}

// Programs that were traced, in files that go with this.
class TracedPrograms {
 public:
  // Traces it and returns its trace.
  Trace add(const std::string& program, const ProgramRequest& request) {
    if (!folder_) folder_.emplace();
    const std::string path = fmt::format("{}/{}.trace", folder_->path(), paths_.size());
    paths_[program] = path;
    return trace_program_to(request, path);
  }
  // The file of a traced program; any other text as it is.
  std::string path_of(const std::string& input) const {
    const auto found = paths_.find(input);
    return found == paths_.end() ? input : found->second;
  }

 private:
  std::optional<TemporaryFolder> folder_;
  std::map<std::string, std::string> paths_;
};

// The options of a run of a trace, which has no step to plan.
std::vector<std::string> words_of_trace(const WorkloadOptions& options, const std::string& path) {
  WorkloadOptions played;
  played.runtime = options.runtime;
  played.runtime.plan = RuntimeOptions{}.plan;
  std::vector<std::string> words = to_words(played, OptionSet::Words::kChanged);
  words.insert(words.end(), {"--device", played.runtime.device, "--strategy", played.runtime.strategy,
                             "--steps", std::to_string(options.step.steps), std::string(kTraceOption), path});
  return words;
}

std::vector<ComparedRow> rows_of(const Options& options, const TracedPrograms& programs) {
  const std::vector<std::string> base = to_words(options.workload, OptionSet::Words::kAll);
  std::vector<ComparedRow> rows;
  const auto add = [&](const std::string& workload, std::string_view option, const std::string& value,
                       int64_t passes = 1) {
    for (const std::string& strategy : options.strategies) {
      for (const std::string& settings : options.settings) {
        ComparedRow row{workload, strategy, settings, base};
        const bool is_trace = option == kTraceOption;
        row.words.insert(row.words.end(), {"--strategy", strategy, std::string(option), value});
        if (is_trace) row.words.insert(row.words.end(), {"--steps", std::to_string(passes)});
        for (std::string& word : words_of(settings)) {
          if (is_trace && options.nets.empty()) refuse_net_setting(word);
          row.words.push_back(std::move(word));
        }
        const WorkloadOptions run = checked(row.words);
        if (is_trace) row.words = words_of_trace(run, value);
        row.is_simulated = simulated_profile(run.runtime).has_value();
        row.is_lower_bound = row.is_simulated && is_lower_bound(run.runtime.strategy);
        rows.push_back(std::move(row));
      }
    }
  };
  for (const std::string& net : options.nets) {
    const int64_t replicas = options.workload.replicas.replicas;
    add(fmt::format("{}, batch {}{}", net, options.workload.step.batch,
                    replicas == 1 ? "" : fmt::format(", {} replicas", replicas)),
        "--net", net);
  }
  if (options.workload.model.is_given()) {
    const std::string name = program_name(options.workload);
    add(fmt::format("{}, batch {}", name, options.workload.step.batch), "--model",
        options.workload.model.path);
  }
  for (const std::string& input : options.inputs) {
    // --steps of a program is what was traced of it.
    add(input_title(input), kTraceOption, programs.path_of(input), is_program(input) ? 1 : options.passes);
  }
  return rows;
}

// Returns true if a strategy of the command line has a limit of its own.
bool has_limits(const Options& options) {
  return std::ranges::any_of(options.strategies, [](const std::string& strategy) {
    const StrategySettings settings = parse_strategy(strategy);
    return settings.limit_bytes || settings.memory_fraction;
  });
}

// Traces programs. Where the command line names no device, it is the one of the first input. Returns whether
// all of them are of PyTorch.
bool take_inputs(const OptionSet& set, Options& options, TracedPrograms& programs) {
  if (!options.inputs.empty() && options.nets.empty() && !options.workload.model.is_given()) {
    refuse_net_beside_input(set);
    check_tracing_options(set, options.inputs, {"batch"});
  }
  const int64_t batch = set.is_given("batch") ? options.workload.step.batch : 0;
  bool all_of_torch = !options.inputs.empty();
  for (const std::string& input : options.inputs) {
    WorkloadOptions traced = options.workload;
    if (!set.is_given("steps")) traced.step.steps = 0;
    Trace trace = is_program(input) ? programs.add(input, program_request(input, traced, batch))
                                    : read_input(input, traced, batch);
    trace.name = input_title(input);  // a program's trace is a file that nobody knows
    all_of_torch = all_of_torch && is_of_torch(trace);
    RuntimeOptions& runtime = options.workload.runtime;
    if (&input == &options.inputs.front() && !set.is_given("device") && !runtime.device_memory_bytes) {
      runtime = with_recorded_device(runtime, trace);
      if (!has_limits(options)) use_recorded_limit(set, trace, runtime);
    }
    print_traced_device_note(set, trace, runtime);
  }
  return all_of_torch;
}

// A strategy that plans the trace may refuse it: a row that failed.
Measurement measure_row(const ComparedRow& row) {
  try {
    return measure_in_child(row.words);
  } catch (const InvalidArgument& error) {
    if (!plans_ahead(parse_strategy(row.strategy))) throw;
    Measurement refused;
    refused.outcome = RunOutcome::kFailed;
    refused.error = error.what();
    return refused;
  }
}

void write(const std::string& path, const std::string& text) {
  const std::string_view parts[] = {text};
  if (!path.empty()) write_file(path, parts);
}

void add_options(OptionSet& set, Options& options) {
  set.add_arguments("INPUT", kInputHelp, &options.inputs, false);
  set.take_command();
  set.add_list("net", "Nets to train (mnist, mlp, lenet, residual, unet, attention)", &options.nets);
  set.add_list("trace", "Traces to replay", &options.traces);
  set.add_list("settings", "Options to try with each strategy, such as plan=packed,batch=32",
               &options.settings);
  set.add_integer("runs", "Runs of each row, each in its own process", &options.runs, 1, 1000);
  add_question_options(set, options.workload, &options.strategies);
  set.add_text("csv", "Also write the table to this file as CSV", &options.csv);
  set.add_text("html", "Also write the table to this file as HTML", &options.html);
  set.add_switch("json", "Print JSON, sizes in bytes", &options.json);
  add_command_options(set, &options.command_strategies);
  set.set_examples(
      "  headroom compare --device rtx-3090 -- python train.py          a PyTorch program\n"
      "  headroom compare --net mnist                                   every strategy on a 2 GB laptop\n"
      "  headroom compare --net unet mlp --batch 8 --strategy caching mapped --settings plan=dynamic "
      "plan=packed\n"
      "  headroom compare --trace run.csv.gz --device sim:h200 --html table.html\n"
      "  headroom compare --net lenet --json | jq -r '.rows[] | select(.is_pareto_optimal).strategy'\n");
}

}  // namespace

int run_compare(int argc, char** argv) {
  const auto own_end =
      std::find_if(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; });
  const bool runs_command = own_end != argv + argc && std::any_of(argv, own_end, [](std::string_view word) {
                              return word == "--strategies" || word.starts_with("--strategies=");
                            });
  if (runs_command) return compare_command(argc, argv);
  Options options;
  options.workload.step.steps = kSteps;
  OptionSet set("headroom compare", "Compares memory strategies and settings on nets and traces.");
  add_options(set, options);
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (set.is_on_command_line("strategies")) {
    throw InvalidArgument("--strategies is for a program after --; for nets and traces use --strategy");
  }
  prepare_inputs(set, options.inputs, options.workload);
  options.inputs.insert(options.inputs.end(), options.traces.begin(), options.traces.end());
  pack_for_memory(set, options.workload.runtime);
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);
  if (!options.workload.runtime.record.empty()) {
    throw InvalidArgument("--record: all runs would write to the same file; use headroom run to record one");
  }
  if (set.is_given("steps") && options.workload.step.steps > 0) options.passes = options.workload.step.steps;
  if (options.workload.step.steps == 0) options.workload.step.steps = kSteps;
  TracedPrograms programs;
  const bool is_torch = take_inputs(set, options, programs);
  const bool has_model = options.workload.model.is_given();
  if (has_model && !options.nets.empty()) throw InvalidArgument("--model and --net exclude each other");
  if (options.nets.empty() && options.inputs.empty() && !has_model) options.nets = {kMnist};
  if (options.strategies.empty()) {
    options.strategies = usable_strategies(options);
    if (is_torch) options.strategies.emplace_back("pytorch,expandable_segments:True");
  }
  if (options.settings.empty()) options.settings = {""};
  require_writable({options.csv, options.html});

  std::vector<ComparedRow> rows = rows_of(options, programs);
  Progress progress(static_cast<double>(options.runs) * static_cast<double>(rows.size()), "runs");
  compare(rows, options.runs, [&](const ComparedRow& row, int64_t run) {
    progress.start(fmt::format("{} under {} {}", row.workload, row.strategy, row.settings));
    Measurement measured = measure_row(row);
    // A row that failed is not run again.
    const bool is_last = measured.outcome != RunOutcome::kOk;
    progress.advance(is_last ? static_cast<double>(options.runs - run) : 1);
    return measured;
  });
  progress.finish();
  Sheet sheet = to_sheet(rows, fmt::format("Memory strategies on {}", options.workload.runtime.device));
  const bool none_keeps_budget =
      options.workload.runtime.memory_bytes && std::ranges::all_of(rows, [](const ComparedRow& row) {
        return row.worst.outcome == RunOutcome::kOutOfMemory;
      });
  const std::string html = to_html(sheet);  // without the command that writes it
  if (none_keeps_budget && options.inputs.empty() && options.nets.size() < 2) {
    WorkloadOptions solved = options.workload;
    if (!options.nets.empty()) solved.net = options.nets.front();
    sheet.next.push_back({command_to_solve(std::move(solved))});
  } else if (options.html.empty()) {
    std::vector<std::string> words(argv + 1, own_end);
    words.insert(words.end(), {"--html", "table.html"});
    words.insert(words.end(), own_end, argv + argc);
    sheet.next.push_back({command_line("headroom compare", words)});
  } else {
    sheet.next.push_back({"xdg-open " + shell_word(options.html)});
  }
  // Before the files, which a full disk may refuse.
  print(sheet, options.json, set.terminal());
  write(options.csv, to_csv(to_table(rows)));
  write(options.html, html);
  return none_keeps_budget ? kExitOutOfMemory : kExitDone;
}

}  // namespace headroom::compare
