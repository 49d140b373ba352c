#include <algorithm>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tools/report/address_map.h"
#include "tools/report/views.h"
#include "trace/stack.h"

namespace headroom::report {
namespace {

using Json = nlohmann::ordered_json;

// A page of a million events stays below three megabytes.
constexpr size_t kMaxSegments = 4'000, kMaxMarks = 500, kMaxSteps = 4'000;
constexpr size_t kMaxNameBytes = 160;
// Nodes and frames of all stacks together.
constexpr size_t kMaxNodes = 60'000;
constexpr size_t kMaxFrames = 8'000;

// The names in use, numbered in the order of their first use.
class Names {
 public:
  explicit Names(const History& history) : history_(history) { list_.push_back(""); }

  size_t of(int32_t name, bool is_source = false) {
    if (name == 0) return 0;
    const auto [at, added] = numbers_.try_emplace(name, list_.size());
    if (added) {
      const std::string& text = history_.trace.names[static_cast<size_t>(name)];
      const std::string shown = is_source ? history_.short_source(text) : text;
      list_.push_back(shown.size() <= kMaxNameBytes ? shown : shown.substr(0, kMaxNameBytes) + "...");
    }
    return at->second;
  }
  Json take() { return std::move(list_); }

 private:
  const History& history_;
  std::unordered_map<int32_t, size_t> numbers_;
  Json list_ = Json::array();
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

  Json nodes() const { return {{"parent", parents_}, {"frame", frames_}}; }
  Json frames() const { return {{"text", texts_}, {"native", native_}}; }

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

Json steps_of(const Trace& trace) {
  Json list = Json::array();
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
    list.push_back({mark.position, mark.step, static_cast<int>(mark.phase)});
  }
  return list;
}

Json verdict_of(const Verdict& verdict, StackTree& tree) {
  Json findings = Json::array();
  for (const Finding& finding : verdict.findings) {
    findings.push_back(
        {{"title", finding.title}, {"sentence", finding.sentence}, {"advice", finding.advice}});
  }
  Json json = {{"sentence", verdict.sentence},
               {"title", verdict.findings.empty() ? "" : verdict.findings.front().title},
               {"findings", std::move(findings)},
               {"failure", nullptr}};
  if (!verdict.failure) return json;
  const Failure& failure = *verdict.failure;
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  json["failure"] = {
      {"requested", failure.requested_bytes},
      {"place", failure.caller.empty() ? failure.source : failure.source + ", called from " + failure.caller},
      {"why", failure.judgment.cause == Cause::kUnknown
                  ? ""
                  : std::string(meaning_of(failure.judgment.cause)) + ": " + failure.judgment.reason},
      {"live", failure.live_bytes},
      {"free", or_null(failure.free_bytes)},
      {"reserved", or_null(failure.reserved_bytes)},
      {"idle", or_null(failure.idle_bytes)},
      {"pieces", failure.idle_pieces},
      {"largest", or_null(failure.largest_idle_bytes)},
      {"stack", tree.of(failure.stack_name)}};
  return json;
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

Json samples_of(const History& history, const std::vector<bool>& leaked) {
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
  Json event = Json::array(), time = Json::array(), reserved = Json::array(), bytes = Json::array();
  for (const MemorySample& sample : samples) {
    event.push_back(sample.event);
    time.push_back(sample.time_ns);
    reserved.push_back(sample.reserved_bytes);
  }
  for (size_t category = 0; category < kCategories; ++category) {
    Json of_category = Json::array();
    int64_t leaked_bytes = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      leaked_bytes += changes[category][i];
      all_leaked[i] += leaked_bytes;
      of_category.push_back(samples[i].bytes[category] - leaked_bytes);
    }
    bytes.push_back(std::move(of_category));
  }
  bytes.push_back(all_leaked);
  Json libraries = Json::array();
  for (const MemorySample& sample : samples) libraries.push_back(sample.library_bytes);
  bytes.push_back(std::move(libraries));
  return {{"event", event}, {"time", time}, {"reserved", reserved}, {"bytes", bytes}};
}

Json blocks_of(const History& history, const std::vector<bool>& leaked, const AddressMap& map, Names& names,
               StackTree& tree) {
  Json columns;
  for (const char* key : {"at", "bytes", "taken", "begin", "end", "op", "tensor", "source", "module", "stack",
                          "category", "rule"}) {
    columns[key] = Json::array();
  }
  for (const size_t block : choose_blocks(history)) {
    const TraceEvent& allocation = history.allocation(block);
    const TraceBlock& facts = history.trace.block_facts[block];
    columns["at"].push_back(map.offset(block));
    columns["bytes"].push_back(allocation.bytes);
    columns["taken"].push_back(history.block_bytes(block));
    columns["begin"].push_back(history.lifetimes[block].begin);
    columns["end"].push_back(history.lifetimes[block].end);
    columns["op"].push_back(names.of(allocation.op));
    columns["tensor"].push_back(names.of(allocation.tag));
    columns["source"].push_back(names.of(facts.source, true));
    columns["module"].push_back(names.of(facts.module));
    columns["stack"].push_back(tree.of(facts.stack));
    columns["category"].push_back(leaked[block] ? kLeak : static_cast<size_t>(facts.category));
    columns["rule"].push_back(static_cast<int>(facts.rule));
  }
  return columns;
}

Json segments_of(const History& history, const AddressMap& map) {
  std::vector<const Segment*> segments;
  for (const Segment& segment : history.segments) segments.push_back(&segment);
  std::ranges::stable_sort(segments, [](const Segment* a, const Segment* b) { return a->bytes > b->bytes; });
  segments.resize(std::min(segments.size(), kMaxSegments));
  Json list = Json::array();
  for (const Segment* segment : segments) {
    list.push_back(
        {map.offset_of_address(segment->address), segment->bytes, segment->held.begin, segment->held.end});
  }
  return list;
}

Json marks_of(const History& history, Names& names) {
  Json list = Json::array();
  for (const DeviceEvent& event : history.trace.device_events) {
    const bool failed = event.kind == DeviceEvent::Kind::kOutOfMemory;
    if ((!failed && event.kind != DeviceEvent::Kind::kRetry) || list.size() == kMaxMarks) continue;
    list.push_back({{"kind", failed ? "out of memory" : "retry"},
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
  Json json;
  json["name"] = trace.name;
  json["format"] = trace.format;
  json["settings"] = Json::array();
  for (const auto& [name, value] : trace.settings) {
    if (!value.empty()) json["settings"].push_back({name, value});
  }
  json["categories"] = kMemoryCategoryNames;
  json["categories"].push_back("leak");
  json["categories"].push_back("context and libraries");
  json["events"] = trace.events.size();
  json["recordedEvents"] = trace.recorded_events;
  json["blockCount"] = trace.recorded_blocks;
  json["cutOff"] = trace.cut_off;
  json["unfolded"] = history.is_unfolded();
  json["peak"] = history.peak_bytes;
  json["allocatedAtPeak"] = history.allocated_at_peak;
  json["peakSample"] = history.peak_sample;
  json["reservedPeak"] = history.peak_reserved_bytes ? Json(*history.peak_reserved_bytes) : Json();
  json["idleAtPeak"] = Json();
  if (history.idle_at_peak) {
    json["idleAtPeak"] = {{"bytes", history.idle_at_peak->bytes},
                          {"largest", history.idle_at_peak->largest_bytes}};
  }
  json["outOfMemory"] = history.out_of_memory;
  json["retries"] = history.retries;
  json["driverCalls"] = history.knows_driver ? Json(history.driver_calls) : Json();
  json["hasAddresses"] = trace.has_addresses;
  json["samples"] = samples_of(history, leaked);
  json["verdict"] = verdict_of(verdict, tree);
  json["phases"] = kStepPhaseNames;
  json["rules"] = kCategoryRuleTexts;
  json["steps"] = steps_of(trace);
  json["blocks"] = blocks_of(history, leaked, map, names, tree);
  json["hasModules"] =
      std::ranges::any_of(trace.block_facts, [](const TraceBlock& block) { return block.module != 0; });
  json["hasStacks"] = !tree.empty();
  json["nodes"] = tree.nodes();
  json["frames"] = tree.frames();
  json["segments"] = segments_of(history, map);
  json["marks"] = marks_of(history, names);
  json["names"] = names.take();
  const std::string text = json_text(json);
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
