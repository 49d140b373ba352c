#include "tools/run/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/mapped_file.h"
#include "guard/recording.h"
#include "trace/trace_writer.h"

namespace headroom {
namespace {

// Null if the file is none.
const guard::Recording* recording_in(const MappedFile& file) {
  if (file.bytes().size() != sizeof(guard::Recording)) return nullptr;
  const auto* recording = reinterpret_cast<const guard::Recording*>(file.bytes().data());
  return recording->magic == guard::Recording::kMagic ? recording : nullptr;
}

// Calls see(record) for the complete ones that are left, in their order.
template <typename See>
void for_each_record(const guard::Recording& recording, See see) {
  const uint64_t count = recording.count;
  for (uint64_t n = count > guard::Recording::kRecords ? count - guard::Recording::kRecords + 1 : 1;
       n <= count; ++n) {
    const guard::Record& record = recording.records[(n - 1) % guard::Recording::kRecords];
    if (record.number == n) see(record);
  }
}

std::string_view recorded_text(const guard::Recording& recording, uint32_t number) {
  if (number == 0 || number >= guard::Recording::kTextBytes) return {};
  const char* at = recording.texts + number;
  return {at, strnlen(at, guard::Recording::kTextBytes - number)};
}

// "train.py:31" of the first frame, if a program's source is known.
std::string source_of(std::string_view stack) {
  const std::string_view first = stack.substr(0, stack.find('\n'));
  const size_t colon = first.rfind(':', first.find(' '));
  if (colon == std::string_view::npos || first.substr(colon, 3) == ":0 ") return {};
  const std::string_view place = first.substr(0, first.find(' '));
  const size_t folder = place.rfind('/');
  return std::string(folder == std::string_view::npos ? place : place.substr(folder + 1));
}

int64_t peak_of(const guard::Recording& recording) {
  int64_t live = 0, peak = 0;
  for_each_record(recording, [&](const guard::Record& record) {
    if (record.call == guard::Call::kAllocate) live += record.bytes;
    if (record.call == guard::Call::kFree) live -= record.bytes;
    peak = std::max(peak, live);
  });
  return peak;
}

void write_trace(const guard::Recording& recording, const std::string& path, const guard::Account& account) {
  TraceWriter writer(path);
  writer.setting("program", recording.command);
  writer.setting("strategy", "direct");
  std::unordered_map<uint64_t, int64_t> live;
  int card = -1;
  int64_t last_ns = 0, contexts = 0;
  for_each_record(recording, [&](const guard::Record& record) {
    const std::string_view what = recorded_text(recording, record.what),
                           stack = recorded_text(recording, record.stack);
    const bool is_context = what == "cuCtxCreate";  // no request of the program
    if (is_context && record.call == guard::Call::kAllocate) contexts += record.bytes;
    if (is_context || (card >= 0 && record.card != card)) return;  // a trace is of one device
    card = record.card;
    last_ns = record.time_ns;
    const std::string source = source_of(stack);
    TraceContext context;
    context.stream = record.stream;
    context.time_ns = record.time_ns;
    context.op = what;
    context.source = source;
    context.stack = stack;
    if (record.call == guard::Call::kRefused) {
      DeviceEvent event;
      event.kind = DeviceEvent::Kind::kOutOfMemory;
      event.bytes = record.bytes;
      writer.add(event, context);
    } else if (record.call == guard::Call::kAllocate) {
      if (live.contains(record.address)) writer.free(record.address, context);
      live[record.address] = record.bytes;
      writer.allocate(record.address, record.bytes, context);
    } else if (live.erase(record.address) > 0) {
      TraceContext freed;
      freed.stream = record.stream;
      freed.time_ns = record.time_ns;
      writer.free(record.address, freed);
    }
  });
  if (card >= 0) {
    const guard::Card& facts = account.cards[card];
    DeviceEvent event;
    event.kind = DeviceEvent::Kind::kDevice;
    event.bytes = facts.limit_bytes != guard::kNoLimit ? facts.limit_bytes.load() : facts.total_bytes.load();
    event.process_bytes = contexts;
    for (const auto& [address, bytes] : live) event.process_bytes += bytes;
    event.free_bytes = std::max<int64_t>(0, event.bytes - event.process_bytes);
    TraceContext context;
    context.time_ns = last_ns;
    if (event.bytes > 0) writer.add(event, context);
  }
  writer.close();
}

}  // namespace

std::vector<std::string> write_recordings(const std::string& folder, const std::string& path,
                                          const guard::Account& account) {
  std::deque<MappedFile> mapped;
  std::vector<std::pair<int64_t, const guard::Recording*>> recordings;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    if (const auto* recording = recording_in(mapped.emplace_back(entry.path())))
      recordings.emplace_back(peak_of(*recording), recording);
  }
  std::stable_sort(recordings.begin(), recordings.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> files;
  for (const auto& [peak, recording] : recordings) {
    files.push_back(files.empty() ? path : fmt::format("{}.{}", path, recording->process));
    write_trace(*recording, files.back(), account);
  }
  return files;
}

}  // namespace headroom
