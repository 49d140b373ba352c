#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/datum.h"
#include "tools/report/address_map.h"
#include "tools/report/views.h"
#include "trace/stack.h"

namespace headroom::report {
namespace {

// A page of a million events stays below three megabytes.
constexpr size_t kMaxSegments = 4'000, kMaxMarks = 500, kMaxSteps = 4'000;
constexpr size_t kMaxNameBytes = 160;
// Nodes and frames of all stacks together.
constexpr size_t kMaxNodes = 60'000;
constexpr size_t kMaxFrames = 8'000;

// The names in use, numbered in the order of their first use.
class Names {
 public:
  explicit Names(const History& history) : history_(history) { list_.emplace_back(""); }

  size_t of(int32_t name, bool is_source = false) {
    if (name == 0) return 0;
    const auto [at, added] = numbers_.try_emplace(name, list_.size());
    if (added) {
      const std::string& text = history_.trace.names[static_cast<size_t>(name)];
      const std::string shown = is_source ? history_.short_source(text) : text;
      list_.emplace_back(shown.size() <= kMaxNameBytes ? shown : shown.substr(0, kMaxNameBytes) + "...");
    }
    return at->second;
  }
  List take() { return std::move(list_); }

 private:
  const History& history_;
  std::unordered_map<int32_t, size_t> numbers_;
  List list_;
};

// The stacks in use as one tree: a node is a frame below the node of its caller. Node 0 is the root.
class StackTree {
 public:
  explicit StackTree(const History& history) : history_(history) {
    parents_.push_back(0);
    frames_.push_back(0);
  }

  // The node of a stack's innermost frame.
  size_t of(int32_t stack) {
    if (stack == 0) return 0;
    const auto [at, added] = nodes_of_stacks_.try_emplace(stack, 0);
    if (!added) return at->second;
    const std::vector<StackFrame> frames = frames_of(history_.trace.names[static_cast<size_t>(stack)]);
    size_t node = 0;
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
      const size_t number = frame_number(*frame);
      const auto [child, is_new] = children_.try_emplace({node, number}, parents_.size());
      if (is_new) {
        if (parents_.size() == kMaxNodes) {  // the rest of the stack is left out
          children_.erase(child);
          break;
        }
        parents_.push_back(node);
        frames_.push_back(number);
      }
      node = child->second;
    }
    return nodes_of_stacks_[stack] = node;
  }
  bool empty() const { return parents_.size() == 1; }

  Record nodes() const { return {{"parent", parents_}, {"frame", frames_}}; }
  Record frames() const { return {{"text", texts_}, {"native", native_}}; }

 private:
  size_t frame_number(const StackFrame& frame) {
    std::string text =
        frame.is_python() ? history_.short_source(text_of(frame)) : std::string(frame.function);
    if (text.size() > kMaxNameBytes) text = text.substr(0, kMaxNameBytes) + "...";
    if (texts_.size() == kMaxFrames) text = "...";
    const auto [at, added] = numbers_.try_emplace(std::move(text), texts_.size());
    if (added) {
      texts_.push_back(at->first);
      native_.push_back(frame.is_python() ? 0 : 1);
    }
    return at->second;
  }

  const History& history_;
  std::unordered_map<int32_t, size_t> nodes_of_stacks_;
  std::map<std::pair<size_t, size_t>, size_t> children_;  // node, frame -> node
  std::unordered_map<std::string, size_t> numbers_;
  std::vector<size_t> parents_, frames_;
  std::vector<std::string> texts_;
  std::vector<int> native_;
};

List steps_of(const Trace& trace) {
  List list;
  // A long training keeps the begins of its steps, thinned out.
  const bool only_begins = trace.marks.size() > kMaxSteps;
  const size_t every = only_begins ? trace.marks.size() / kMaxSteps + 1 : 1;
  int32_t step = 0;
  size_t begins = 0;
  for (const TraceMark& mark : trace.marks) {
    if (only_begins) {
      if (mark.step == step) continue;
      step = mark.step;
      if (begins++ % every != 0) continue;
    }
    list.push_back(List{mark.position, mark.step, static_cast<int>(mark.phase)});
  }
  return list;
}

Record verdict_of(const Verdict& verdict, StackTree& tree) {
  List findings;
  for (const Finding& finding : verdict.findings) {
    findings.push_back(
        Record{{"title", finding.title}, {"sentence", finding.sentence}, {"advice", finding.advice}});
  }
  Record record = {{"sentence", verdict.sentence},
                   {"title", verdict.findings.empty() ? "" : verdict.findings.front().title},
                   {"findings", std::move(findings)},
                   {"failure", Datum()}};
  if (!verdict.failure) return record;
  const Failure& failure = *verdict.failure;
  record.back().value = Record{
      {"requested", failure.requested_bytes},
      {"place", failure.caller.empty() ? failure.source : failure.source + ", called from " + failure.caller},
      {"why", failure.judgment.cause == Cause::kUnknown
                  ? ""
                  : std::string(meaning_of(failure.judgment.cause)) + ": " + failure.judgment.reason},
      {"live", failure.live_bytes},
      {"free", failure.free_bytes},
      {"reserved", failure.reserved_bytes},
      {"idle", failure.idle_bytes},
      {"pieces", failure.idle_pieces},
      {"largest", failure.largest_idle_bytes},
      {"stack", tree.of(failure.stack_name)}};
  return record;
}

// The page draws the blocks that a leak keeps as a category of their own, after the others.
constexpr size_t kLeak = kCategories;

std::vector<bool> leaked_blocks(const History& history, const Verdict& verdict) {
  std::vector<bool> leaked(history.lifetimes.size());
  for (const Finding& finding : verdict.findings) {
    for (const size_t block : finding.kept_blocks) leaked[block] = true;
  }
  return leaked;
}

Record samples_of(const History& history, const std::vector<bool>& leaked) {
  const std::vector<MemorySample>& samples = history.samples;
  // By category and sample: the change of its leaked bytes since the sample before.
  std::vector<std::vector<int64_t>> changes(kCategories, std::vector<int64_t>(samples.size() + 1));
  const auto sample_at = [&](int64_t event) {
    const auto at = std::lower_bound(samples.begin(), samples.end(), event,
                                     [](const MemorySample& sample, int64_t e) { return sample.event < e; });
    return static_cast<size_t>(at - samples.begin());
  };
  for (size_t block = 0; block < leaked.size(); ++block) {
    if (!leaked[block]) continue;
    std::vector<int64_t>& change = changes[static_cast<size_t>(history.trace.block_facts[block].category)];
    change[sample_at(history.lifetimes[block].begin)] += history.bytes(block);
    change[sample_at(history.lifetimes[block].end)] -= history.bytes(block);
  }
  std::vector<int64_t> all_leaked(samples.size());
  List event, time, reserved, libraries, bytes;
  for (const MemorySample& sample : samples) {
    event.emplace_back(sample.event);
    time.emplace_back(sample.time_ns);
    reserved.emplace_back(sample.reserved_bytes);
    libraries.emplace_back(sample.library_bytes);
  }
  for (size_t category = 0; category < kCategories; ++category) {
    List of_category;
    int64_t leaked_bytes = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      leaked_bytes += changes[category][i];
      all_leaked[i] += leaked_bytes;
      of_category.emplace_back(samples[i].bytes[category] - leaked_bytes);
    }
    bytes.emplace_back(std::move(of_category));
  }
  bytes.emplace_back(all_leaked);
  bytes.emplace_back(std::move(libraries));
  return {{"event", event}, {"time", time}, {"reserved", reserved}, {"bytes", bytes}};
}

Record blocks_of(const History& history, const std::vector<bool>& leaked, const AddressMap& map, Names& names,
                 StackTree& tree) {
  constexpr const char* kColumns[] = {"at",     "bytes",  "taken",  "begin", "end",      "op",
                                      "tensor", "source", "module", "stack", "category", "rule"};
  std::array<List, std::size(kColumns)> columns;
  for (const size_t block : choose_blocks(history)) {
    const TraceEvent& allocation = history.allocation(block);
    const TraceBlock& facts = history.trace.block_facts[block];
    const int64_t row[] = {map.offset(block),
                           allocation.bytes,
                           history.block_bytes(block),
                           history.lifetimes[block].begin,
                           history.lifetimes[block].end,
                           static_cast<int64_t>(names.of(allocation.op)),
                           static_cast<int64_t>(names.of(allocation.tag)),
                           static_cast<int64_t>(names.of(facts.source, true)),
                           static_cast<int64_t>(names.of(facts.module)),
                           static_cast<int64_t>(tree.of(facts.stack)),
                           leaked[block] ? int64_t{kLeak} : static_cast<int64_t>(facts.category),
                           static_cast<int64_t>(facts.rule)};
    for (size_t i = 0; i < std::size(columns); ++i) columns[i].emplace_back(row[i]);
  }
  Record record;
  for (size_t i = 0; i < std::size(columns); ++i) record.push_back({kColumns[i], std::move(columns[i])});
  return record;
}

List segments_of(const History& history, const AddressMap& map) {
  std::vector<const Segment*> segments;
  for (const Segment& segment : history.segments) segments.push_back(&segment);
  std::ranges::stable_sort(segments, [](const Segment* a, const Segment* b) { return a->bytes > b->bytes; });
  segments.resize(std::min(segments.size(), kMaxSegments));
  List list;
  for (const Segment* segment : segments) {
    list.push_back(List{map.offset_of_address(segment->address), segment->bytes, segment->held.begin,
                        segment->held.end});
  }
  return list;
}

List marks_of(const History& history, Names& names) {
  List list;
  for (const DeviceEvent& event : history.trace.device_events) {
    const bool failed = event.kind == DeviceEvent::Kind::kOutOfMemory;
    if ((!failed && event.kind != DeviceEvent::Kind::kRetry) || list.size() == kMaxMarks) continue;
    list.push_back(Record{{"kind", failed ? "out of memory" : "retry"},
                          {"event", event.position},
                          {"bytes", event.bytes},
                          {"op", names.of(event.op)},
                          {"tensor", names.of(event.tag)},
                          {"source", names.of(event.source, true)}});
  }
  return list;
}

}  // namespace

std::string page_data(const History& history, const Verdict& verdict) {
  const Trace& trace = history.trace;
  const AddressMap map(history);
  Names names(history);
  StackTree tree(history);
  const std::vector<bool> leaked = leaked_blocks(history, verdict);
  List settings;
  for (const auto& [name, value] : trace.settings) {
    if (!value.empty()) settings.push_back(List{name, value});
  }
  List categories(kMemoryCategoryNames.begin(), kMemoryCategoryNames.end());
  categories.insert(categories.end(), {"leak", "context and libraries"});
  Datum idle;
  if (history.idle_at_peak)
    idle = Record{{"bytes", history.idle_at_peak->bytes}, {"largest", history.idle_at_peak->largest_bytes}};
  const bool has_modules =
      std::ranges::any_of(trace.block_facts, [](const TraceBlock& block) { return block.module != 0; });
  // In this order: each adds to the names and the stacks.
  Record shown_verdict = verdict_of(verdict, tree);
  Record blocks = blocks_of(history, leaked, map, names, tree);
  List marks = marks_of(history, names);
  const std::string text =
      to_json(Record{{"name", trace.name},
                     {"format", trace.format},
                     {"settings", std::move(settings)},
                     {"categories", std::move(categories)},
                     {"events", trace.events.size()},
                     {"recordedEvents", trace.recorded_events},
                     {"blockCount", trace.recorded_blocks},
                     {"cutOff", trace.cut_off},
                     {"unfolded", history.is_unfolded()},
                     {"peak", history.peak_bytes},
                     {"allocatedAtPeak", history.allocated_at_peak},
                     {"peakSample", history.peak_sample},
                     {"reservedPeak", history.peak_reserved_bytes},
                     {"idleAtPeak", std::move(idle)},
                     {"outOfMemory", history.out_of_memory},
                     {"retries", history.retries},
                     {"driverCalls", history.knows_driver ? Datum(history.driver_calls) : Datum()},
                     {"hasAddresses", trace.has_addresses},
                     {"samples", samples_of(history, leaked)},
                     {"verdict", std::move(shown_verdict)},
                     {"phases", kStepPhaseNames},
                     {"rules", kCategoryRuleTexts},
                     {"steps", steps_of(trace)},
                     {"blocks", std::move(blocks)},
                     {"hasModules", has_modules},
                     {"hasStacks", !tree.empty()},
                     {"nodes", tree.nodes()},
                     {"frames", tree.frames()},
                     {"segments", segments_of(history, map)},
                     {"marks", std::move(marks)},
                     {"names", names.take()}},
              -1);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {  // only strings contain '<'
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace headroom::report
