// headroom report: shows a recording as a timeline in the terminal, as an HTML page, and in Perfetto.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "answers/predict.h"
#include "base/bytes.h"
#include "base/cause.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/text.h"
#include "runtime/app/option_set.h"
#include "runtime/app/setup.h"
#include "sheet/writers.h"
#include "tools/report/exchange.h"
#include "tools/report/history.h"
#include "tools/report/load_trace.h"
#include "tools/report/questions.h"
#include "tools/report/steps.h"
#include "tools/report/verdict.h"
#include "tools/report/views.h"
#include "tools/subcommands.h"
#include "tools/workload/input.h"
#include "tools/workload/recorded_failure.h"
#include "tools/workload/recorded_setup.h"
#include "tools/workload/torch_changes.h"
#include "trace/categorize.h"
#include "trace/read_trace.h"

namespace headroom::report {
namespace {

// Blocks at the peak with the same line, module and category; without modules, of the same tensor and op.
struct ReportRow {
  std::string op, tensor, source, module;
  std::string largest_tensor;  // that of the largest block, where they differ
  MemoryCategory category = MemoryCategory::kOther;
  CategoryRule rule = CategoryRule::kNone;
  int64_t bytes = 0, blocks = 0;

  // The rule that decided the category.
  std::string_view why() const {
    const bool recorded = rule == CategoryRule::kNone && category != MemoryCategory::kOther;
    return recorded ? "as recorded" : kCategoryRuleTexts[static_cast<size_t>(rule)];
  }
  // Returns the row's name as one text.
  std::string what() const {
    if (!tensor.empty() || !module.empty()) return !tensor.empty() ? tensor : module;
    return largest_tensor.empty() ? op : largest_tensor + " and others";
  }
};

std::vector<ReportRow> rows_at_peak(const History& history) {
  const Trace& trace = history.trace;
  const bool has_modules =
      std::ranges::any_of(trace.block_facts, [](const TraceBlock& block) { return block.module != 0; });
  std::map<std::tuple<int32_t, int32_t, int32_t, int32_t, MemoryCategory>, ReportRow> groups;
  for (const size_t block : history.live_blocks(history.peak_event())) {
    const TraceEvent& allocation = history.allocation(block);
    const TraceBlock& facts = trace.block_facts[block];
    ReportRow& row = groups[{has_modules ? 0 : allocation.op, has_modules ? 0 : allocation.tag, facts.source,
                             facts.module, facts.category}];
    if (row.blocks++ == 0) {
      row = {.op = history.op(block),
             .tensor = history.tensor(block),
             .source = history.source(block),
             .module = trace.names[static_cast<size_t>(facts.module)],
             .largest_tensor = {},
             .category = facts.category,
             .rule = facts.rule,
             .blocks = 1};
    } else {
      if (row.op != history.op(block)) row.op.clear();
      if (!row.tensor.empty() && row.tensor != history.tensor(block)) {
        row.largest_tensor = std::exchange(row.tensor, {});
      }
    }
    row.bytes += allocation.bytes;
  }
  std::vector<ReportRow> rows;
  for (auto& [names, row] : groups) rows.push_back(std::move(row));
  std::ranges::stable_sort(rows, [](const ReportRow& a, const ReportRow& b) { return a.bytes > b.bytes; });
  return rows;
}

std::string_view name_of(MemoryCategory category) {
  return kMemoryCategoryNames[static_cast<size_t>(category)];
}

std::string summary(const History& history) {
  const Trace& trace = history.trace;
  const bool moment = is_moment(trace);
  std::string text = fmt::format("{}{} live", moment ? "" : "peak ", format_bytes(history.peak_bytes));
  if (history.allocated_at_peak > history.peak_bytes) {
    text += fmt::format(", {} after rounding", format_bytes(history.allocated_at_peak));
  }
  if (history.peak_reserved_bytes)
    text += fmt::format(", {} reserved", format_bytes(*history.peak_reserved_bytes));
  if (moment && history.idle_at_peak) {
    text += fmt::format(", of which {} idle, the largest piece {}", format_bytes(history.idle_at_peak->bytes),
                        format_bytes(history.idle_at_peak->largest_bytes));
  }
  if (history.library_bytes > 0) {
    text += fmt::format(", {} context and libraries", format_bytes(history.library_bytes));
  }
  if (!trace.device_events.empty())
    text += fmt::format("; {} out of memory, {} retries", history.out_of_memory, history.retries);
  text += fmt::format("\n{}: {}, ", printable(trace.name), trace.format);
  if (!moment) text += fmt::format("{} events, ", trace.recorded_events);
  text += fmt::format("{} block{}, {} stream{}", trace.recorded_blocks, trace.recorded_blocks == 1 ? "" : "s",
                      trace.streams.size(), trace.streams.size() == 1 ? "" : "s");
  for (const auto& [name, value] : trace.settings) {
    if (!value.empty()) text += fmt::format(", {} {}", printable(name), printable(value));
  }
  if (moment) {
    text +=
        "\nnote: for causes and a peak, record a history: "
        "torch.cuda.memory._record_memory_history(enabled=\"all\") before the work";
  }
  if (history.is_unfolded())
    text += "\nnote: the tensors of a packed plan are shown for one step, at the allocation of its arena";
  return text;
}

void add_failure(Sheet& sheet, const Failure& failure) {
  const std::string taken = failure.driver_bytes == failure.requested_bytes
                                ? ""
                                : fmt::format(", rounded up to {}", format_bytes(failure.driver_bytes));
  SheetTable& table =
      sheet.table({.caption = "out of memory", .columns = {{"", "", kVersion}, {"", "", kWrappedText}}});
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty()) table.add({name, value});
  };
  line("requested", format_bytes(failure.requested_bytes) + taken);
  line("line", failure.source);
  line("called from", failure.caller);
  line("after", failure.last_line);
  line("live", format_bytes(failure.live_bytes));
  if (failure.free_bytes) line("free on the device", format_bytes(*failure.free_bytes));
  if (failure.reserved_bytes) {
    line("reserved", format_bytes(*failure.reserved_bytes));
    line("idle", fmt::format("{} in {} pieces, the largest of {}", format_bytes(*failure.idle_bytes),
                             failure.idle_pieces, format_bytes(*failure.largest_idle_bytes)));
  }
  if (failure.judgment.cause != Cause::kUnknown) {
    line("why it did not fit",
         fmt::format("{}: {}", meaning_of(failure.judgment.cause), failure.judgment.reason));
  }
}

constexpr size_t kLabels = 13;  // labels of the chart's axis

// Returns the width next to the labels of the axis.
int chart_width(const Terminal& terminal) {
  constexpr size_t kUsual = 72, kMost = 160;
  if (terminal.width() == 0) return kUsual;
  return static_cast<int>(
      std::clamp(terminal.width() - std::min(terminal.width(), kLabels), size_t{20}, kMost));
}

void add_peak(Sheet& sheet, const History& history) {
  constexpr size_t kShown = 15;
  const std::vector<ReportRow> rows = rows_at_peak(history);
  SheetTable& table =
      sheet.table({.key = "at_peak",
                   .caption = is_moment(history.trace) ? "live at this moment" : "live at the peak",
                   .columns = {{"size", "bytes", kSize},
                               {"share", "", kPercent, 3},
                               {{}, "blocks"},
                               {"category", "category", kText, 2},
                               {"line", "source", kWrappedText},
                               {"tensor, module or op", "", kWrappedText},
                               {"why this category", "rule", kWrappedText, 4},
                               {{}, "module"},
                               {{}, "tensor"},
                               {{}, "op"}},
                   .shown_rows = kShown});
  int64_t left = history.peak_bytes;
  for (const ReportRow& row : rows) {
    if (table.rows.size() < kShown) left -= row.bytes;
    const std::string what = (row.what().empty() ? "-" : row.what()) +
                             (row.blocks > 1 ? fmt::format(" ({} blocks)", row.blocks) : "");
    table.add({row.bytes,
               100 * static_cast<double>(row.bytes) / static_cast<double>(history.peak_bytes),
               row.blocks,
               name_of(row.category),
               {row.source, row.source.empty() ? "-" : row.source},
               what,
               row.why(),
               row.module,
               row.tensor,
               row.op});
  }
  if (left > 0) sheet.note(fmt::format("{} in {} more rows", format_bytes(left), rows.size() - kShown));
}

Record to_record(const Failure& failure) {
  return {{"event", failure.event},
          {"requested_bytes", failure.requested_bytes},
          {"driver_bytes", failure.driver_bytes},
          {"live_bytes", failure.live_bytes},
          {"workspace_bytes", failure.workspace_bytes},
          {"free_bytes", failure.free_bytes},
          {"reserved_bytes", failure.reserved_bytes},
          {"idle_bytes", failure.idle_bytes},
          {"idle_pieces", failure.idle_pieces},
          {"largest_idle_bytes", failure.largest_idle_bytes},
          {"source", failure.source},
          {"caller", failure.caller},
          {"last_line", failure.last_line},
          {"op", failure.op},
          {"module", failure.module},
          {"tensor", failure.tensor},
          {"stack", failure.stack},
          {"cause", name_of(failure.judgment.cause)},
          {"reason", failure.judgment.reason}};
}

Record to_record(const Verdict& verdict) {
  List findings;
  for (const Finding& finding : verdict.findings) {
    findings.push_back(Record{{"cause", name_of(finding.cause)},
                              {"bytes", finding.bytes},
                              {"title", finding.title},
                              {"sentence", finding.sentence},
                              {"advice", finding.advice}});
  }
  return {{"sentence", verdict.sentence},
          {"findings", std::move(findings)},
          {"failure", verdict.failure ? Datum(to_record(*verdict.failure)) : Datum()}};
}

// For programs, beside what people read.
void set_figures(Sheet& sheet, const History& history) {
  const Trace& trace = history.trace;
  Record settings, by_category;
  for (const auto& [name, value] : trace.settings) settings.push_back({name, value});
  for (size_t i = 0; i < kCategories; ++i) {
    std::string name(kMemoryCategoryNames[i]);
    std::ranges::replace(name, ' ', '_');
    by_category.push_back({name, history.samples[history.peak_sample].bytes[i]});
  }
  sheet.set("trace", trace.name);
  sheet.set("format", trace.format);
  sheet.set("settings", settings);
  sheet.set("events", trace.recorded_events);
  sheet.set("blocks", trace.recorded_blocks);
  sheet.set("cut_off", trace.cut_off);
  sheet.set("has_history", !is_moment(trace));
  sheet.set("peak_bytes", history.peak_bytes);
  sheet.set("peak_event", history.recorded_peak_event());
  sheet.set("allocated_at_peak_bytes", history.allocated_at_peak);
  sheet.set("peak_reserved_bytes", history.peak_reserved_bytes);
  sheet.set("library_bytes", history.library_bytes);
  sheet.set("live_at_end_bytes", history.live_at_end_bytes);
  sheet.set("fragmentation", history.fragmentation);
  sheet.set("out_of_memory", history.out_of_memory);
  sheet.set("retries", history.retries);
  sheet.set("driver_calls", history.knows_driver ? Datum(history.driver_calls) : Datum());
  sheet.set("by_category", by_category);
}

Sheet to_sheet(const History& history, const Verdict& verdict, const Terminal& terminal) {
  const bool is_bad = verdict.failure || !verdict.findings.empty();
  Sheet sheet;
  set_figures(sheet, history);
  sheet.set("verdict", to_record(verdict));
  sheet.verdict(verdict.sentence, is_bad ? Color::kRed : Color::kBold);
  if (!verdict.findings.empty()) sheet.fact("try: " + verdict.findings.front().advice);
  sheet.lines(summary(history));
  if (verdict.failure) add_failure(sheet, *verdict.failure);
  for (size_t i = 1; i < verdict.findings.size(); ++i) {
    const Finding& finding = verdict.findings[i];
    if (i == 1) sheet.heading({});
    sheet.fact(fmt::format("also: {}: {}; try: {}", finding.title, finding.sentence, finding.advice));
  }
  if (!is_moment(history.trace)) {
    sheet.heading({});
    sheet.lines(timeline(history, chart_width(terminal)), kLabels);
  }
  add_peak(sheet, history);
  return sheet;
}

// Returns true if the program keeps more and more, so that any memory fills up.
bool piles_up(const Verdict& verdict) {
  constexpr Cause kPilesUp[] = {Cause::kLeak, Cause::kGraphsKept, Cause::kLossesKept};
  return std::ranges::any_of(verdict.findings, [&](const Finding& finding) {
    return std::ranges::find(kPilesUp, finding.cause) != std::end(kPilesUp);
  });
}

// Returns changes, in PyTorch's terms, with which the failed request would have fitted; none if memory piles
// up, because that would only fail later.
std::vector<std::string> changes_for(const History& history, const Verdict& verdict) {
  if (!verdict.failure || !verdict.failure->reserved_bytes || piles_up(verdict)) return {};
  if (is_moment(history.trace)) return {};
  const Failure& failure = *verdict.failure;
  // If the device had room, a limit refused the request, and the limit is at least the most that was ever
  // reserved.
  const std::optional<RecordedLimit> limit = recorded_limit(history.trace);
  const int64_t free = failure.free_bytes.value_or(0);
  const int64_t capacity = free > failure.driver_bytes
                               ? std::max(*failure.reserved_bytes, limit ? limit->at_least_bytes : 0)
                               : *failure.reserved_bytes + free;
  return find_torch_changes(history.trace, failure.event, failure.requested_bytes, capacity);
}

// Returns the memory of the process on its device when a request failed, including context and libraries; 0
// if unknown.
int64_t process_memory(const Failure& failure, const RunSetup& setup, const Trace& trace) {
  const int64_t overhead = setup.device.overhead_bytes();
  int64_t memory =
      failure.reserved_bytes.value_or(failure.allocated_bytes) + failure.free_bytes.value_or(0) + overhead;
  if (const std::optional<RecordedLimit> limit = recorded_limit(trace)) {
    memory = limit->at_least_bytes + overhead;
  } else {
    for (const DeviceEvent& event : trace.device_events) {
      if (event.kind == DeviceEvent::Kind::kDevice && event.position <= failure.event) {
        memory = event.bytes - event.others_bytes;
      }
    }
  }
  return std::max<int64_t>(0, memory);
}

// Returns the command that fits the failed program into its memory with several changes; empty if its file is
// unknown, or memory piles up.
std::string solve_command(const History& history, const Verdict& verdict) {
  if (!verdict.failure || piles_up(verdict)) return {};
  if (history.trace.blocks == 0) return {};  // only the request is known, not what the device held
  const RunSetup setup = setup_to_fit(with_recorded_device(RuntimeOptions{}, history.trace));
  const int64_t memory = process_memory(*verdict.failure, setup, history.trace);
  if (memory == 0) return {};
  if (std::vector<std::string> program = recorded_program(history.trace); !program.empty()) {
    const int64_t page = setup.device.granularity_bytes;  // a device has whole ones free
    program.insert(program.end(), {"--memory", exact_size(memory / page * page)});
    return command_line("headroom solve", program);
  }
  const std::string& source = verdict.failure->source;
  const size_t end = source.rfind(".py:");
  if (!is_of_torch(history.trace) || end == std::string::npos) return {};
  std::vector<std::string> words = {"--memory", exact_size(memory)};
  constexpr std::string_view kSimulated = "sim:", kDefault = "sim:h200";
  const std::string& device = setup.options.device;
  if (device.starts_with(kSimulated) && device != kDefault) {
    words.insert(words.begin(), {"--device", device.substr(kSimulated.size())});
  }
  return command_line("headroom solve " + shell_word(source.substr(0, end) + ".py:make_step"), words) +
         "  # make_step: docs/trace.md";
}

}  // namespace

int run_report(int argc, char** argv) {
  std::vector<std::string> paths;
  std::string html, chrome, output, against;
  std::string format;
  bool as_json = false, asserts = false;
  Limits limits;
  std::optional<int64_t> device_bytes;
  TracingOptions traced;
  OptionSet set(
      "headroom report",
      "Shows memory over time and the tensors that are live at the peak; compares recordings, and checks "
      "them against limits.");
  set.add_arguments("TRACE",
                    "A recording, an op,id,bytes CSV, an RMM log or a PyTorch memory snapshot, gzipped or "
                    "not; or a PyTorch program: FILE.py:FUNCTION, or its command after --",
                    &paths, true, "net");
  set.take_command();
  add_net_option(set, traced);
  add_tracing_options(set, traced);
  set.add_text("html", "Write a self-contained HTML page to this file", &html);
  set.add_text("chrome", "Write JSON for ui.perfetto.dev or chrome://tracing to this file", &chrome);
  set.add_choice("format", "Write the trace in the format of another viewer instead", &format,
                 {enum_names<ExchangeFormat>().begin(), enum_names<ExchangeFormat>().end()});
  set.add_text("output", "With --format: the file to write (default: standard output)", &output);
  set.add_bytes("device-memory",
                "Memory of the GPU, to predict when a leak fills it (default: as in the trace)",
                &device_bytes);
  set.add_text("against", "Compare with this earlier recording, op by op", &against);
  set.add_switch("assert", "Check the limits below; exit with 5 if one does not hold", &asserts);
  set.add_switch("json", "Print JSON, sizes in bytes", &as_json);
  set.begin_group("With --assert");
  add_limits(set, limits);
  set.set_examples(
      "  headroom report run.trace                   a timeline and a table in the terminal\n"
      "  headroom report run.trace --html run.html   an interactive page\n"
      "  headroom report --device rtx-3090 -- python train.py --lr 1e-4\n"
      "  headroom report train.py:make_step --batch 16 --device rtx-3090\n"
      "  headroom report --net lenet --batch 64      the planned step of a net\n"
      "  headroom report after.trace --against before.trace\n"
      "  headroom report new.py:make_step --against old.py:make_step --batch 16\n"
      "  headroom report run.trace --assert --max-peak 2GiB --no-oom\n"
      "  headroom report run.trace --json | jq .by_category\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (paths.size() > 1) throw InvalidArgument(fmt::format("report shows one trace; {} given", paths.size()));
  std::vector<std::string> inputs = paths;
  if (!paths.empty() && !against.empty()) inputs.push_back(against);
  check_inputs(set, inputs, traced, {"batch", "steps", "device"});
  const std::string input = paths.empty() ? "" : paths.front();
  if (asserts || !against.empty()) {
    const std::string_view asked = asserts ? "--assert" : "--against";
    for (const std::string_view other : {"html", "chrome", "format", "output", "device-memory", "against"}) {
      if (set.is_on_command_line(other) && fmt::format("--{}", other) != asked)
        throw InvalidArgument(fmt::format("--{} does not go with {}", other, asked));
    }
    if (asserts) return assert_limits(input, traced, limits, as_json, set.terminal());
    print_difference(against, input, traced, as_json, set.terminal());
    return kExitDone;
  }
  for (const std::string_view limit : kLimitOptions) {
    if (set.is_on_command_line(limit)) throw InvalidArgument(fmt::format("--{} needs --assert", limit));
  }
  if (!output.empty() && format.empty()) throw InvalidArgument("--output needs --format");
  for (const std::string* path : {&html, &chrome, &output}) {
    if (!path->empty() && is_same_file(*path, input))
      throw InvalidArgument(fmt::format("{}: would overwrite the trace", *path));
  }
  require_writable({html, chrome, output});
  Progress progress(0, "");
  const Trace trace = load_trace(input, traced, progress);
  progress.begin(0, "", fmt::format("following {} events", trace.events.size()));
  const History history(trace);
  if (!format.empty()) {
    const std::string text = exchange(history, parse_enum<ExchangeFormat>(format, "--format"));
    const std::string_view parts[] = {text};
    if (output.empty()) {
      progress.finish();
      std::cout << text << std::flush;
    } else {
      write_file(output, parts);
    }
    if (html.empty() && chrome.empty()) return kExitDone;
  }
  if (!device_bytes) device_bytes = traced_card_bytes(trace);
  Verdict verdict = judge_history(history, Steps(trace), device_bytes);
  progress.start("trying what would have fitted");
  std::vector<std::string> next = changes_for(history, verdict);
  // Advice that a replay has tested comes before general advice.
  if (!next.empty() && !verdict.findings.empty() && verdict.findings.front().cause == Cause::kFragmentation) {
    verdict.findings.front().advice = next.front();
  }
  if (std::string solve = solve_command(history, verdict); !solve.empty()) next.push_back(std::move(solve));
  if (!html.empty()) {
    progress.start("writing " + printable(html));
    const std::string data = page_data(history, verdict);
    const std::string_view parts[] = {kPageBeforeData, data, kPageAfterData};
    write_file(html, parts);
  }
  if (!chrome.empty()) {
    progress.start("writing " + printable(chrome));
    const std::string text = chrome_trace(history);
    const std::string_view parts[] = {text};
    write_file(chrome, parts);
  }
  progress.finish();
  Sheet sheet = to_sheet(history, verdict, set.terminal());
  sheet.set("changes", next);
  if (!chrome.empty()) {
    sheet.heading({});
    sheet.fact("open in ui.perfetto.dev: " + chrome);
  }
  next.push_back(html.empty() ? command_on("headroom report", paths, traced, {"--html", "report.html"})
                              : "xdg-open " + shell_word(html));
  sheet.propose(next);
  print(sheet, as_json, set.terminal());
  return kExitDone;
}

}  // namespace headroom::report
