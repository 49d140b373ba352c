// headroom predict: says whether a training fits on a device, by how much, and what takes the memory: of a
// net, of a program of PyTorch, or of a recording. Needs no GPU and computes nothing.

#include "answers/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <optional>
#include <utility>

#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "base/cause.h"
#include "base/errors.h"
#include "base/progress.h"
#include "base/side_by_side.h"
#include "base/text.h"
#include "sheet/writers.h"
#include "tools/subcommands.h"
#include "tools/trace/command.h"
#include "tools/workload/checkpoints.h"
#include "tools/workload/device_table.h"
#include "tools/workload/input.h"
#include "tools/workload/lower_bound.h"
#include "tools/workload/recorded_setup.h"
#include "tools/workload/torch_changes.h"

namespace headroom {
namespace {

constexpr size_t kShares = 10;  // modules and lines for people; JSON has more
constexpr size_t kSharesInJson = 1000;

// The question: a net, or an input.
struct Question {
  WorkloadOptions options;
  std::string input = {};                  // empty: the net or model of the options
  int64_t batch = 0;                       // batch of a program, if it was given
  bool is_device_memory_recorded = false;  // else it is given, or that of the card
  Traced program = {};
  RunSetup setup = {};
  std::optional<RecordedLimit> limit = {};  // that a recorded program had

  bool is_net() const { return input.empty(); }
  std::string name() const { return is_net() ? program_name(options) : printable(input_title(input)); }
};

struct Row {
  std::string strategy;
  Prediction prediction;
};

// The chosen strategy first, then the others that can take the program.
std::vector<std::string> strategies_for(const Question& question) {
  const std::string& chosen = question.setup.options.strategy;
  const StrategySettings settings = question.setup.options.strategy_settings();
  const bool has_limit = question.is_net() && (settings.limit_bytes || question.setup.gpus.has_virtual());
  const bool is_torch = !question.is_net() && is_of_torch(question.program.front());
  if (question.program.refusal) return {chosen};
  std::vector<std::string> names;
  if (is_torch) names = {"pytorch", "pytorch,expandable_segments:True"};
  for (const Strategy& strategy : strategies()) {
    const bool is_known_as_torch = strategy.name == "caching" && is_torch;
    if ((!strategy.needs_limit || has_limit) && !is_known_as_torch) names.emplace_back(strategy.name);
  }
  std::erase(names, chosen);
  names.insert(names.begin(), chosen);
  return names;
}

// Under the same limit.
RunSetup with_strategy(RunSetup setup, const std::string& strategy) {
  const StrategySettings chosen = setup.options.strategy_settings();
  RuntimeOptions& options = setup.options;
  options.strategy = strategy;
  options.limit_bytes = chosen.limit_bytes;
  if (chosen.limit_scope == LimitScope::kProcess) options.limit_scope = LimitScope::kProcess;
  options.memory_fraction = chosen.memory_fraction;
  options.allow_growth = false;
  return setup;
}

// With the margin of every strategy for a net; a search takes too long for some traces.
std::vector<Row> predict_all(const Question& question) {
  constexpr size_t kMostThreads = 4;  // each plays the program, with memory for its live blocks
  const std::vector<std::string> names = strategies_for(question);
  std::vector<std::optional<Prediction>> predictions(names.size());
  Progress progress(static_cast<double>(names.size()), "strategies");
  // The search for the margin and what plans the whole trace take longest, so they begin first.
  std::vector<size_t> order(names.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin() + 1, order.end(),
                        [&](size_t at) { return plans_ahead(parse_strategy(names[at])); });
  side_by_side(order.size(), kMostThreads, [&](size_t i) {
    const size_t at = order[i];
    progress.start(names[at]);
    try {
      const RunSetup setup = at == 0 ? question.setup : with_strategy(question.setup, names[at]);
      predictions[at] =
          at == 0 || question.is_net() ? predict(question.program, setup) : outcome(question.program, setup);
    } catch (const InvalidArgument&) {  // cannot keep to such a limit, or not take the trace
      if (at == 0) throw;
    }
    progress.advance(1);
  });
  std::vector<Row> rows;
  for (size_t at = 0; at < names.size(); ++at) {
    if (predictions[at]) rows.push_back({names[at], std::move(*predictions[at])});
  }
  return rows;
}

std::string margin_text(const Prediction& prediction) {
  if (!prediction.margin_bytes) return "on no device size";
  return prediction.fits ? format_bytes(*prediction.margin_bytes) + " to spare"
                         : "lacks " + format_bytes(-*prediction.margin_bytes);
}

Cell verdict_of(const Prediction& prediction) {
  return {prediction.fits, prediction.fits ? "fits" : "does not fit",
          prediction.fits ? Color::kGreen : Color::kRed};
}

// Returns the error of a run. If no strategy has room for all requests, omits the cause of the first failed
// request: it would suggest that exact sizes or less fragmentation helped.
std::string ending(const std::vector<Row>& rows) {
  std::string reason = rows.front().prediction.reason;
  const Row* nearest = nullptr;
  for (const Row& row : rows) {
    if (row.prediction.fits) return "a run would end with: " + reason;
    if (row.prediction.total_bytes > 0 &&
        (nearest == nullptr || row.prediction.margin_bytes > nearest->prediction.margin_bytes))
      nearest = &row;
  }
  if (nearest == nullptr || rows.size() == 1) return "a run would end with: " + reason;
  for (const CauseInfo& cause : causes()) {
    const size_t at = reason.rfind(fmt::format("; {}: ", cause.name));
    if (at != std::string::npos) reason.resize(at);
  }
  return fmt::format("no strategy fits: {} lacks {} and is the nearest; a run would end with: {}",
                     nearest->strategy, format_bytes(-nearest->prediction.margin_bytes.value_or(0)), reason);
}

// Returns the reason why the verdict is not that of the whole device.
std::string limit_text(const RecordedLimit& limit, const RunSetup& setup) {
  std::string text;
  if (limit.free_bytes > 0) {
    text = fmt::format(
        "the recording has a limit: {} were refused while {} of the device were free. It is at least {} and "
        "below {}; torch.cuda.set_per_process_memory_fraction sets such a limit. --device {} predicts "
        "without it. ",
        format_bytes(limit.requested_bytes), format_bytes(limit.free_bytes),
        format_bytes(limit.at_least_bytes), format_bytes(limit.below_bytes), setup.device.name);
  }
  if (limit.replay_spare_bytes > 0) {
    text += fmt::format(
        "The last request failed; a replay needs {} less than the recorded process and gets so much less. ",
        format_bytes(limit.replay_spare_bytes));
  }
  text.pop_back();
  return text;
}

// Describes the device without the budget, which is the total of the device in an input's `question.setup`.
std::string device_text(const Question& question) {
  const RunSetup setup = setup_to_fit(question.options.runtime);
  const auto& limit = setup.options.limit_bytes;
  const auto& memory = setup.options.memory_bytes;
  const DeviceProfile& device = setup.device;
  const std::string_view given = question.is_device_memory_recorded ? "as recorded" : "as given";
  return fmt::format(
      "device of {} ({}), context of {} ({}), others hold {}{}{}", format_bytes(device.total_bytes),
      setup.options.device_memory_bytes ? given : to_string(device.total_origin),
      format_bytes(question.is_net() ? device.kept_context_bytes() : device.context_bytes),
      setup.options.context_bytes ? "as given" : to_string(device.context_origin),
      format_bytes(others_bytes(setup)), limit ? fmt::format(", limit of {}", format_bytes(*limit)) : "",
      memory ? fmt::format(", budget of {}", format_bytes(*memory)) : "");
}

std::string verdict_text(const Question& question, const Row& chosen) {
  const int64_t replicas = question.options.replicas.replicas;
  const size_t devices = question.program.devices.size();
  std::string what = question.name();
  if (question.is_net()) {
    what += fmt::format(", batch {}{},", question.options.step.batch,
                        replicas == 1 ? "" : fmt::format(" shared by {} replicas", replicas));
  }
  return fmt::format(": {} under {} on {}{}: {}", what, chosen.strategy,
                     devices == 1 ? "" : fmt::format("{} devices of ", devices),
                     question.setup.options.device, margin_text(chosen.prediction));
}

// The first of them, the others together, and what has no name: they add up to the same.
MemoryShares shortened(const MemoryShares& shares, size_t most) {
  size_t named = shares.size();
  while (named > 0 && (shares[named - 1].first == kNoModule || shares[named - 1].first == kNoLine)) --named;
  if (named <= most) return shares;
  MemoryShares result(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(most));
  result.emplace_back(fmt::format("{} more", named - most), 0);
  for (size_t i = most; i < named; ++i) result.back().second += shares[i].second;
  result.insert(result.end(), shares.begin() + static_cast<std::ptrdiff_t>(named), shares.end());
  return result;
}

void add_shares(const char* what, const char* key, const MemoryShares& shares, Sheet& sheet) {
  SheetTable& table = sheet.table({.columns = {{what, "", kWrappedText}, {"MiB", "", kMib}}});
  for (const auto& [name, bytes] : shortened(shares, kShares)) table.add({printable(name), bytes});
  List list;
  for (const auto& [name, bytes] : shortened(shares, kSharesInJson)) {
    list.push_back(Record{{"name", name}, {"bytes", bytes}});
  }
  sheet.set(key, list);
}

void add_parts(const Question& question, const Prediction& chosen, const LiveSet& live, Sheet& sheet) {
  if (!chosen.fits && chosen.total_bytes > 0) sheet.fact("with enough memory:");
  SheetTable table{
      .caption = live.where.empty() ? "" : "at " + live.where,
      .columns = {{question.program.devices.size() == 1 ? "" : "the fullest GPU"}, {"MiB", "", kMib}}};
  Record categories;
  for (const auto& [name, bytes] : parts_of(question.program, question.setup, chosen, live)) {
    std::string key = name;
    std::ranges::replace(key, ' ', '_');
    categories.push_back({key, bytes});
    table.add({name, bytes});
  }
  table.add({"total", chosen.total_bytes}, Mark::kTotal);
  if (chosen.total_bytes > 0) sheet.table(std::move(table));
  sheet.set("by_category", categories);
  sheet.set("peak_op", live.where);
}

// Figures that were not searched for are null.
Record figures_of(const Row& row) {
  const Prediction& prediction = row.prediction;
  const auto or_null = [&](int64_t bytes) { return prediction.total_bytes > 0 ? Datum(bytes) : Datum(); };
  return {{"strategy", row.strategy},
          {"fits", prediction.fits},
          {"margin_bytes", prediction.margin_bytes},
          {"total_bytes", or_null(prediction.total_bytes)},
          {"total_is_upper_bound", prediction.total_is_most},
          {"peak_reserved_bytes", or_null(prediction.reserved_bytes)},
          {"reserved_is_lower_bound", is_lower_bound(row.strategy)},
          {"peak_allocated_bytes", or_null(prediction.allocated_bytes)},
          {"peak_requested_bytes", or_null(prediction.requested_bytes)},
          {"reason", prediction.reason},
          {"failed_event", prediction.failed_event}};
}

void add_strategies(const std::vector<Row>& rows, Sheet& sheet) {
  SheetTable& table = sheet.table({.caption = "in MiB",
                                   .columns = {{"strategy"},
                                               {"verdict"},
                                               {"to spare", "", kMib},
                                               {"process", "", kMib, 1},
                                               {"reserved", "", kMib, 2},
                                               {"allocated", "", kMib, 3}}});
  List list;
  std::vector<std::string> names;
  for (const Row& row : rows) {
    const Prediction& prediction = row.prediction;
    // The memory that a strategy took before it failed is not the memory that it needs.
    const auto known = [&](int64_t bytes) { return prediction.total_bytes > 0 ? Datum(bytes) : Datum(); };
    table.add({row.strategy, verdict_of(prediction), prediction.margin_bytes, known(prediction.total_bytes),
               known(prediction.reserved_bytes), known(prediction.allocated_bytes)});
    list.push_back(figures_of(row));
    names.push_back(row.strategy);
  }
  sheet.set("strategies", list);
  if (const std::string note = lower_bound_note(names); !note.empty()) sheet.note(note);
}

void add_question(const Question& question, Sheet& sheet) {
  const RunSetup& setup = question.setup;
  const WorkloadOptions& options = question.options;
  if (question.is_net()) {
    sheet.set("net", program_name(options));
    sheet.set("batch", options.step.batch);
    sheet.set("replicas", options.replicas.replicas);
    sheet.set("plan", std::string(to_string(options.runtime.plan)));
  } else {
    sheet.set("input", input_title(question.input));
  }
  sheet.set("device", setup.options.device);
  sheet.set("device_total_bytes", setup.device.total_bytes);
  sheet.set("device_others_bytes", others_bytes(setup));
  Datum limit;
  if (question.limit) {
    limit = Record{{"at_least_bytes", question.limit->at_least_bytes},
                   {"below_bytes", question.limit->below_bytes},
                   {"refused_bytes", question.limit->requested_bytes},
                   {"free_bytes", question.limit->free_bytes},
                   {"replay_spare_bytes", question.limit->replay_spare_bytes}};
  }
  sheet.set("recorded_limit", limit);
  Datum range;
  if (const auto peaks = seed_peaks(question.program.front()); !question.is_net() && !peaks.empty())
    range =
        Record{{"seeds", std::ssize(peaks)}, {"least_bytes", peaks.front()}, {"most_bytes", peaks.back()}};
  sheet.set("requested_over_seeds", range);
  if (question.program.refusal) sheet.set("least_memory_bytes", question.program.refusal->least_bytes());
}

Sheet to_sheet(const Question& question, const std::vector<Row>& rows, const std::vector<std::string>& next) {
  const Prediction& chosen = rows.front().prediction;
  const Traced& program = question.program;
  Sheet sheet;
  for (Field& field : figures_of(rows.front())) sheet.set(std::move(field.key), std::move(field.value));
  add_question(question, sheet);
  const Cell verdict = verdict_of(chosen);
  sheet.verdict(*verdict.shown, verdict.color, verdict_text(question, rows.front()));
  sheet.fact(device_text(question));
  const WorkloadOptions& options = question.options;
  if (question.is_net() && !options.model.is_given() && options.net == kMnist && options.step.steps == 0) {
    sheet.fact("it counts whole epochs with their test; a run of --steps N may take less");
  }
  if (question.limit) sheet.fact(limit_text(*question.limit, question.setup));
  if (!question.is_net()) {
    const std::string assumed = assumed_values(program.front());
    if (!assumed.empty()) sheet.fact(assumed);
  }
  if (!chosen.reason.empty()) sheet.fact(question.is_net() ? ending(rows) : chosen.reason);
  if (!question.is_net() && chosen.failed_event.value_or(0) > 0) {
    const Trace& trace = program.front();
    const std::string what = place_text(trace, *chosen.failed_event - 1);
    sheet.fact(fmt::format("at event {} of {}{}", *chosen.failed_event,
                           std::max(*chosen.failed_event, trace.recorded_events),
                           what.empty() ? "" : ": " + what));
  }
  const LiveSet live = live_at_peak(program, question.setup, chosen);
  add_parts(question, chosen, live, sheet);
  add_shares("live at that time, by module", "by_module", live.by_module, sheet);
  add_shares("live at that time, by line", "by_line", live.by_line, sheet);
  add_devices("devices", program, chosen, sheet);
  sheet.set("copies", program.copies);
  sheet.set("copied_bytes", program.copied_bytes);
  add_strategies(rows, sheet);
  sheet.propose(next);
  sheet.set("next", next.front());
  sheet.set("alternatives", std::vector<std::string>(next.begin() + 1, next.end()));
  return sheet;
}

// Returns true if a smaller batch than that of a program that does not fit may fit.
bool may_fit_with_less(const Question& question) {
  if (question.is_net()) {
    WorkloadOptions smallest = question.options;
    smallest.step.batch = smallest.replicas.replicas;
    try {
      return smallest.step.batch < question.options.step.batch && fits(trace_of(smallest), question.setup);
    } catch (const InvalidArgument&) {  // a model of another batch
      return false;
    }
  }
  if (!is_program(question.input)) return false;
  int64_t bytes = 0;  // there with every batch
  const LiveSet live = largest_live_set(question.program.front());
  for (const MemoryCategory category : {MemoryCategory::kWeights, MemoryCategory::kOptimizerState})
    bytes += live.by_category[static_cast<size_t>(category)];
  return bytes <= capacity_bytes(with_libraries(question.program, question.setup));
}

// The smallest device for the batch. A limit or a budget binds on any device, so they are left out.
std::string least_memory_command(WorkloadOptions options, const std::string& input, int64_t batch) {
  RuntimeOptions& runtime = options.runtime;
  if (runtime.memory_bytes) runtime.plan = RuntimeOptions{}.plan;
  runtime.limit_bytes.reset();
  runtime.limit_scope = LimitScope::kPool;
  runtime.memory_bytes.reset();
  const StrategySettings strategy = parse_strategy(runtime.strategy);
  if (strategy.limit_bytes || (strategy.plugin_path.empty() && find_strategy(strategy.name).needs_limit))
    runtime.strategy = RuntimeOptions{}.strategy;
  return (input.empty() ? command_line("headroom fit", to_words(options, OptionSet::Words::kChanged))
                        : command_on_input("headroom fit", input, options, batch)) +
         " --least-memory";
}

// The first strategy that fits of those that an explained run tries as a fix.
std::string fitting_strategy(const std::vector<Row>& rows) {
  for (const Strategy* const cure : cures())
    for (const Row& row : rows)
      if (row.strategy == cure->name && row.prediction.fits) return row.strategy;
  return {};
}

std::string next_for_input(const Question& question, bool fits) {
  WorkloadOptions carried = question.options;
  if (!fits && !may_fit_with_less(question))
    return least_memory_command(carried, question.input, question.batch);
  const bool compares = fits && std::filesystem::exists(question.input);
  if (compares) carried.runtime.strategy = RuntimeOptions{}.strategy;  // it takes all of them
  // Neither takes a batch: fit finds the one of a program, and a file has its own.
  return command_on_input(compares ? "headroom compare" : "headroom fit", question.input, carried, 0);
}

// The changes that keep it within the device, together where one is not enough, for a budget of the process.
std::string solve_command(const Question& question) {
  WorkloadOptions options = question.options;
  RuntimeOptions& runtime = options.runtime;
  const int64_t overhead = with_libraries(question.program, question.setup).device.overhead_bytes();
  const bool is_of_pool = std::exchange(runtime.limit_scope, LimitScope::kPool) == LimitScope::kPool;
  if (const auto limit = std::exchange(runtime.limit_bytes, std::nullopt))
    runtime.memory_bytes = *limit + (is_of_pool ? overhead : 0);
  return command_on_input("headroom solve", question.input, options, question.batch);
}

std::vector<std::string> next_commands(const Question& question, const std::vector<Row>& rows) {
  const bool fits = rows.front().prediction.fits;
  if (question.is_net()) {
    // For a budget that is too small the next command shows what the least costs.
    const int64_t least = question.program.refusal ? question.program.refusal->least_bytes() : 0;
    WorkloadOptions options = question.options;
    if (least == 0 && !fits && !may_fit_with_less(question)) return {least_memory_command(options, {}, 0)};
    if (least > 0) options.runtime.memory_bytes = least;
    return {command_line(least > 0 ? "headroom solve" : "headroom fit",
                         to_words(options, OptionSet::Words::kChanged))};
  }
  std::vector<std::string> next;
  const Trace& trace = question.program.front();
  if (!fits && is_of_torch(trace)) {
    Progress progress(0, "");
    progress.start("trying changes");
    TraceCheckpoints trace_again;
    if (is_program(question.input))
      trace_again = trace_checkpoints(program_request(question.input, question.options, question.batch));
    next = find_torch_changes(trace, question.setup, trace_again);
    progress.finish();
    next.push_back(solve_command(question));
  } else if (const std::string strategy = fits ? "" : fitting_strategy(rows); !strategy.empty()) {
    WorkloadOptions options = question.options;
    options.runtime.strategy = RuntimeOptions{}.strategy;
    std::vector<std::string> words = to_words(options, OptionSet::Words::kChanged);
    words.insert(words.end(), {"--strategy", strategy});
    next.push_back(command_line("headroom run --trace " + shell_word(question.input), words));
  }
  next.push_back(next_for_input(question, fits));
  return next;
}

void ask_for_net(Question& question) {
  RuntimeOptions& runtime = question.options.runtime;
  if (const auto note = lower_memory_to_free(runtime)) fmt::print(stderr, "note: {}\n", *note);
  question.setup = setup_to_fit(runtime);
  question.program = trace_of(question.options);
}

void ask_for_input(const OptionSet& set, const std::vector<std::string>& inputs, Question& question) {
  WorkloadOptions& options = question.options;
  Trace trace = read_one_input(set, inputs, options);
  question.input = inputs.front();
  question.is_device_memory_recorded = options.runtime.device_memory_bytes && !set.is_given("device-memory");
  question.limit = use_recorded_limit(set, trace, options.runtime);
  if (set.is_given("batch") && is_program(question.input)) question.batch = options.step.batch;
  require_one_device(options);
  question.setup = with_budget(setup_to_fit(options.runtime));
  question.program = traced(std::move(trace));
}

}  // namespace

int run_predict(int argc, char** argv) {
  Question question;
  std::vector<std::string> inputs;
  bool json = false;
  OptionSet set("headroom predict",
                "Predicts whether a training fits on a device, the margin, and what uses the memory.");
  set.add_arguments("INPUT", kInputHelp, &inputs, false);
  set.take_command();
  add_question_options(set, question.options);
  set.add_switch("json", "Print JSON, sizes in bytes", &json);
  set.set_examples(
      "  headroom predict --device rtx-3090 -- python train.py --lr 1e-4   a PyTorch program, traced without "
      "a GPU\n"
      "  headroom predict train.py:make_step --batch 16 --device rtx-3090   a function that returns a step\n"
      "  headroom predict snapshot.pickle --device rtx-4090           a PyTorch memory snapshot\n"
      "  headroom predict --net unet --batch 256                      on a simulated 2 GB laptop\n"
      "  headroom predict --net unet --batch 256 --device sim:card-6gb --strategy caching --plan packed\n"
      "  headroom predict --device-memory 3GiB --others 1GiB          train_mnist's net on another machine\n"
      "  headroom predict --net mlp --device sim:four-2080ti --place dense2=/GPU:1 --device-policy silent\n"
      "  headroom predict --net residual --batch 4096 --json | jq .by_category\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  prepare_inputs(set, inputs, question.options);
  if (inputs.empty()) pack_for_memory(set, question.options.runtime);
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);
  if (!question.options.runtime.record.empty())
    fmt::print(stderr, "note: nothing runs, so nothing is recorded; `headroom run` records\n");
  inputs.empty() ? ask_for_net(question) : ask_for_input(set, inputs, question);
  const std::vector<Row> rows = predict_all(question);
  const bool fits = rows.front().prediction.fits;
  print(to_sheet(question, rows, next_commands(question, rows)), json, set.terminal());
  return fits ? kExitDone : kExitOutOfMemory;
}

}  // namespace headroom
