// Builds a trace event by event and refuses impossible ones. Knows no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/offset_table.h"
#include "trace/text_table.h"
#include "trace/trace.h"

namespace headroom {

// Numbers for texts, looked up without a copy.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using NameTable = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

// Positions in Trace::names; 0: unknown.
struct TraceNames {
  int32_t op = 0, tag = 0, source = 0, module = 0, stack = 0;
};

// Facts that a reader knows about an event besides its block.
struct TraceContext {
  uint64_t stream = 0;
  int64_t time_ns = 0;
  std::string_view op = {};
  std::string_view tag = {};
  std::string_view source = {};
  std::string_view module = {};
  std::string_view stack = {};  // see TraceBlock
  MemoryCategory category = MemoryCategory::kOther;
  int64_t block_bytes = 0;  // the size of the strategy's block
  TraceNames known = {};    // known numbers of those texts above that are empty
};

// Functions that add throw InvalidArgument without file and line, which the reader adds.
class TraceBuilder {
 public:
  // Maximum bytes of all names, each its text and its entry in a table. Beyond it names are refused, so that
  // a small file cannot fill the memory.
  static constexpr size_t kMaxNameBytes = size_t{1} << 29, kBytesBesideName = 128;

  TraceBuilder(std::string name, std::string format);

  // `id` names the block until it is freed; it may be used again then.
  void allocate(uint64_t id, int64_t bytes, const TraceContext& context = {});
  // `bytes`, unless 0, must be those of the block.
  void free(uint64_t id, int64_t bytes = 0, const TraceContext& context = {});

  // A part of the block allocated last.
  void add_part(uint64_t address, int64_t bytes, int64_t first, int64_t end, const TraceContext& context);

  // Any other event; its position, names and stream are filled in here.
  void add(DeviceEvent event, const TraceContext& context = {});
  // Later events belong to `step`, which is at least that of the previous mark.
  void mark(int64_t step, StepPhase phase, int64_t time_ns);
  void add_setting(std::string_view name, std::string_view value);
  // For a format whose ids are no addresses.
  void has_no_addresses() { trace_.has_addresses = false; }
  void is_cut_off() { trace_.cut_off = true; }

  // Marks the events added so far as live before the file's history.
  void begin_history() { trace_.live_before = static_cast<int64_t>(trace_.events.size()); }

  bool is_live(uint64_t id) const;
  // The position of a name in Trace::names; adds a new one.
  int32_t name(std::string_view name);
  Trace take() {
    trace_.recorded_events = std::ssize(trace_.events);
    trace_.recorded_blocks = trace_.blocks;
    return std::move(trace_);
  }

 private:
  struct Block {
    int32_t number = 0;
    bool live = false;
    int64_t bytes = 0;
    int64_t taken_bytes = 0;  // the larger of that and the strategy's block
  };

  void add(bool allocates, const Block& block, const TraceContext& context);
  int32_t name(std::string_view text, int32_t known) { return text.empty() ? known : name(text); }
  int32_t stream_index(uint64_t handle);

  Trace trace_;
  int64_t live_bytes_ = 0, taken_bytes_ = 0;
  // Freed ones stay, to distinguish a second free from a wrong id.
  std::vector<Block> blocks_;
  OffsetTable number_of_id_{1};  // positions in blocks_
  TextTable names_;              // Trace::names without the first
  size_t name_bytes_ = 0;
  std::unordered_map<uint64_t, int32_t> streams_;
};

}  // namespace headroom
