// headroom repro: reproduces failures that people reported on GPUs, and compares the figures with theirs.

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdio>
#include <iostream>

#include "base/errors.h"
#include "base/process/process.h"
#include "base/progress.h"
#include "base/text.h"
#include "runtime/app/option_set.h"
#include "sheet/writers.h"
#include "tools/gpu_program.h"
#include "tools/repro/card.h"
#include "tools/repro/programs.h"
#include "tools/repro/result.h"
#include "tools/repro/solution.h"
#include "tools/repro/statements.h"
#include "tools/subcommands.h"

namespace headroom::repro {
namespace {

struct ReproOptions {
  std::vector<std::string> ids;
  bool list = false, markdown = false, all = false, json = false, force = false, verbose = false,
       solve = false, statements = false;
  std::string code;  // framework
  Stage stage;
};

std::vector<const Scenario*> choose_scenarios(const ReproOptions& options) {
  const Stage& stage = options.stage;
  std::vector<const Scenario*> chosen;
  if (options.all == !options.ids.empty()) {
    throw InvalidArgument(
        options.all
            ? "--all or ids of scenarios, not both"
            : "no scenario given; name one, as in headroom repro A1, or pass --all; --list shows them");
  }
  for (const Scenario& scenario : scenarios()) {
    const bool runs = stage.is_sim() || scenario.on == CheckedOn::kEveryDevice;
    if (options.all && runs && !(stage.fixed && scenario.fix.empty())) chosen.push_back(&scenario);
  }
  for (const std::string& id : options.ids) {
    const Scenario& scenario = find_scenario(id);
    if (stage.fixed && scenario.fix.empty()) {
      throw InvalidArgument(fmt::format("{} needs no fix", scenario.id));
    }
    if (!stage.is_sim() && scenario.on == CheckedOn::kSimulated) {
      throw InvalidArgument(fmt::format("{} runs on the simulated GPU only", scenario.id));
    }
    chosen.push_back(&scenario);
  }
  return chosen;
}

// Any other error becomes a figure that differs.
Measured run_here(const Scenario& scenario, const Stage& stage) {
  try {
    return scenario.run(stage);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const Error& error) {
    Measured measured;
    measured.add("failure", error.what());
    measured.lines.emplace_back(error.what());
    return measured;
  }
}

// On a real GPU each runs in its own process and leaves nothing for the next.
Measured run_elsewhere(const Scenario& scenario, const ReproOptions& options) {
  std::vector<std::string> words = {"repro", std::string(scenario.id), "--device", options.stage.device,
                                    "--json"};
  if (options.stage.fixed) words.emplace_back("--fix");
  if (options.force) words.emplace_back("--force");
  const ChildResult child = run_child(own_path(), words);
  const int code = WIFEXITED(child.status) ? WEXITSTATUS(child.status) : -1;
  if (code == kExitDone || code == kExitCheckFailed) return parse_measured(child.out);
  Measured measured;
  measured.add("failure",
               code < 0 ? fmt::format("ended by signal {}", WTERMSIG(child.status)) : error_of(child));
  return measured;
}

// Returns the options that the next command repeats: all except those that choose the scenarios and the way
// to run them.
std::string repeated_options(const OptionSet& set, ReproOptions& options) {
  options.ids.clear();
  options.all = options.stage.fixed = options.verbose = false;
  std::string text;
  for (const std::string& word : set.words(OptionSet::Words::kChanged)) text += " " + shell_word(word);
  return text;
}

// Runs what the statements name.
MeasuredById measure_statements() {
  MeasuredById measured = needed_scenarios();
  Progress progress(static_cast<double>(measured.size()), "scenarios");
  for (auto& [id, figures] : measured) {
    progress.start(id);
    const bool fixed = id.back() == '!';
    figures = run_here(find_scenario(std::string_view(id).substr(0, id.size() - (fixed ? 1 : 0))),
                       {.fixed = fixed});
    progress.advance(1);
  }
  progress.finish();
  return measured;
}

int solve_all(const ReproOptions& options, const std::vector<const Scenario*>& chosen,
              const Terminal& terminal) {
  if (!options.stage.is_sim() || options.stage.fixed) {
    throw InvalidArgument("--solve finds a fix on simulated cards; omit --fix and --device");
  }
  std::vector<Solved> solved;
  for (const Scenario* scenario : chosen) solved.push_back(solve(*scenario));
  print(to_sheet(solved), options.json, terminal);
  const bool is_refused = solved.size() == 1 && solved.front().outcome == SolveOutcome::kRefused;
  return is_refused ? kExitOutOfMemory : kExitDone;
}

}  // namespace

int run_repro(int argc, char** argv) {
  ReproOptions options;
  Stage& stage = options.stage;
  OptionSet set("headroom repro",
                "Reproduces GPU failures that people reported, and compares the figures with theirs. "
                "Needs no GPU.");
  set.add_arguments("ID...", "Scenarios to run: A1, C5, ...", &options.ids, false);
  set.add_switch("list", "List the scenarios without running them", &options.list);
  set.add_switch(
      "statements",
      "Run the experiments for what four well-known documents say, and show each statement with its figure: "
      "true, true then, or false",
      &options.statements);
  set.add_switch("markdown", "With --list or --statements: print the sections of their pages",
                 &options.markdown);
  set.add_switch("all", "Run all scenarios", &options.all);
  set.add_switch("fix", "Run the scenarios with their fixes", &stage.fixed);
  set.add_switch(
      "solve",
      "Search for settings with which the scenario trains on the same card; exit with 3 if a scenario "
      "has none",
      &options.solve);
  set.add_choice("code",
                 "Print a program in this framework that shows the scenario on a real card, and run nothing",
                 &options.code,
                 {kProgramFrameworks[0].data(), kProgramFrameworks[1].data(), kProgramFrameworks[2].data()});
  set.add_choice("device", "Simulated GPU like the one in the report, or a real one with a ballast",
                 &stage.device, {"sim", "cuda"},
                 [](const std::string& name) { return cuda_ordinal(name).has_value(); });
  set.add_switch("force", "Run on a real GPU even if other processes use it; they may run out of memory",
                 &options.force);
  set.add_switch("verbose", "Print the figures of every scenario, even if they agree", &options.verbose);
  set.add_switch("json", "Print JSON, sizes in bytes", &options.json);
  set.set_examples(
      "  headroom repro --list                all scenarios\n"
      "  headroom repro A1                    TensorFlow's default on a laptop of 2 GB\n"
      "  headroom repro A1 --fix              with its fix\n"
      "  headroom repro --all --json          every scenario; exit code 5 if a figure differs\n"
      "  headroom repro C5 --device cuda      on a real GPU with a ballast that leaves 6 GB\n"
      "  headroom repro C5 --code pytorch > c5.py\n"
      "  headroom repro --statements          what four documents say, and what is true of it\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);
  if (options.list) {
    if (options.markdown && !options.json) {
      fmt::print("{}", scenarios_markdown());
    } else {
      print(scenario_list(), options.json, set.terminal());
    }
    return kExitDone;
  }
  if (options.statements) {
    const MeasuredById measured = measure_statements();
    if (options.markdown && !options.json) {
      fmt::print("{}", statements_markdown(measured));
    } else {
      print(statements_sheet(measured), options.json, set.terminal());
    }
    return kExitDone;
  }
  const std::vector<const Scenario*> chosen = choose_scenarios(options);
  if (!options.code.empty()) {
    if (chosen.size() > 1) throw InvalidArgument("--code prints one program: name one scenario");
    fmt::print("{}", program_of(*chosen.front(), options.code));
    return kExitDone;
  }
  if (options.solve) return solve_all(options, chosen, set.terminal());
  if (!stage.is_sim()) continue_in_gpu_program(argv);
  if (!stage.is_sim() && !options.force) require_unused_card(*cuda_ordinal(stage.device));

  std::vector<ScenarioResult> results;
  bool ok = true;
  Progress progress(static_cast<double>(chosen.size()), "scenarios");
  for (const Scenario* scenario : chosen) {
    progress.start(fmt::format("{} {}", scenario->id, scenario->title));
    const bool here = stage.is_sim() || chosen.size() == 1;
    results.push_back(
        compare(*scenario, stage, here ? run_here(*scenario, stage) : run_elsewhere(*scenario, options)));
    ok = ok && results.back().ok;
    progress.advance(1);
  }
  progress.finish();
  const bool verbose = options.verbose, json = options.json;
  const std::string repeated = repeated_options(set, options);
  print(results.size() == 1 ? to_sheet(results.front(), repeated) : to_sheet(results, verbose, repeated),
        json, set.terminal());
  return ok ? kExitDone : kExitCheckFailed;
}

}  // namespace headroom::repro
