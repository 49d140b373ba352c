#include "tools/report/exchange.h"

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "base/text.h"
#include "tools/report/views.h"
#include "trace/stack.h"

namespace headroom::report {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string speedscope(const History& history) {
  const Trace& trace = history.trace;
  Json frames = Json::array(), samples = Json::array(), weights = Json::array();
  std::unordered_map<std::string, size_t> numbers;
  const auto frame = [&](const std::string& name, const StackFrame& of) {
    const auto [at, added] = numbers.try_emplace(name, frames.size());
    if (added) {
      Json json = {{"name", name}};
      if (!of.file.empty()) json["file"] = of.file;
      if (of.line > 0) json["line"] = of.line;
      frames.push_back(std::move(json));
    }
    return at->second;
  };
  // Blocks of one stack, tensor and category are one sample.
  std::map<std::vector<size_t>, int64_t> bytes;
  int64_t total = 0;
  for (const size_t block : history.live_blocks(history.peak_event())) {
    const TraceBlock& facts = trace.block_facts[block];
    const std::vector<StackFrame> stack = frames_of(trace.names[static_cast<size_t>(facts.stack)]);
    std::vector<size_t> path;
    for (auto of = stack.rbegin(); of != stack.rend(); ++of) {
      path.push_back(
          frame(of->is_python() ? history.short_source(text_of(*of)) : std::string(of->function), *of));
    }
    if (stack.empty()) {
      const std::string source = history.source(block);
      path.push_back(frame(source.empty() ? "(no stack)" : source, {}));
      for (const std::string& name : {history.op(block), history.tensor(block)}) {
        if (!name.empty()) path.push_back(frame(name, {}));
      }
    }
    path.push_back(frame(std::string(kMemoryCategoryNames[static_cast<size_t>(facts.category)]), {}));
    bytes[path] += history.bytes(block);
    total += history.bytes(block);
  }
  for (const auto& [path, of] : bytes) {
    samples.push_back(path);
    weights.push_back(of);
  }
  const Json json = {{"$schema", "https://www.speedscope.app/file-format-schema.json"},
                     {"name", trace.name},
                     {"exporter", "headroom report"},
                     {"activeProfileIndex", 0},
                     {"shared", {{"frames", std::move(frames)}}},
                     {"profiles",
                      {{{"type", "sampled"},
                        {"name", "live at the peak"},
                        {"unit", "bytes"},
                        {"startValue", 0},
                        {"endValue", total},
                        {"samples", std::move(samples)},
                        {"weights", std::move(weights)}}}}};
  return json_text(json);
}

std::string exchange(const History& history, ExchangeFormat format) {
  switch (format) {
    case ExchangeFormat::kMemoryViz:
      return memory_viz(history);
    case ExchangeFormat::kSpeedscope:
      return speedscope(history);
    case ExchangeFormat::kPerfetto:
      break;
  }
  return chrome_trace(history);
}

}  // namespace headroom::report
