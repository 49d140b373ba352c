#include "tools/report/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <unordered_set>
#include <vector>

#include "allocators/strategies/caching_rules.h"
#include "base/bytes.h"
#include "tools/report/steps.h"
#include "tools/workload/recorded_failure.h"
#include "trace/categorize.h"
#include "trace/stack.h"

namespace headroom::report {
namespace {

// PyTorch gives cuBLAS a workspace for each thread and stream (CublasHandlePool.cpp): on capability 9 and 10,
// and on others.
constexpr int64_t kWorkspaces[] = {int64_t{32} << 20, (4096 * 2 + 16 * 8) << 10};

// Returns the driver's last report about the device before the failure.
const DeviceEvent* device_before(const Trace& trace, const DeviceEvent& failed) {
  const DeviceEvent* last = nullptr;
  for (const DeviceEvent& event : trace.device_events) {
    if (&event == &failed) break;
    if (event.kind == DeviceEvent::Kind::kDevice) last = &event;
  }
  return last;
}

Judgment judge(const Trace& trace, const DeviceEvent& failed, const Failure& failure) {
  MemoryNumbers numbers;
  numbers.request = MemoryNumbers::Request::kTensor;
  numbers.is_exact = true;
  numbers.requested = failure.requested_bytes;
  numbers.in_use = failure.live_bytes;
  numbers.allocated = failure.allocated_bytes;
  numbers.free = failure.free_bytes;
  numbers.reserved = failure.reserved_bytes;
  numbers.idle = failure.idle_bytes;
  numbers.largest = failure.largest_idle_bytes;
  if (const DeviceEvent* device = device_before(trace, failed)) {
    numbers.total = device->bytes;
    numbers.process = device->process_bytes;
    numbers.others = device->others_bytes;
    if (!numbers.free) numbers.free = device->free_bytes;
  }
  // The device had room, so a limit refused. It is at least what was ever reserved.
  if (failure.free_bytes && *failure.free_bytes > failure.requested_bytes && failure.reserved_bytes) {
    const std::optional<RecordedLimit> limit = recorded_limit(trace);
    numbers.limit = std::max(*failure.reserved_bytes, limit ? limit->at_least_bytes : 0);
    numbers.limit_below = *failure.reserved_bytes + failure.driver_bytes;
    if (limit) numbers.limit_below = std::min(*numbers.limit_below, limit->below_bytes);
    numbers.limit_below = std::max(*numbers.limit_below, *numbers.limit);
  }
  return headroom::judge(numbers).value_or(Judgment{});
}

// The stack of the last allocation before an event whose stack is known.
std::string stack_before(const Trace& trace, int64_t event) {
  for (int64_t i = event - 1; i >= trace.live_before; --i) {
    const TraceEvent& of = trace.events[static_cast<size_t>(i)];
    const int32_t stack = trace.block_facts[static_cast<size_t>(of.block)].stack;
    if (of.allocates && stack != 0) return trace.names[static_cast<size_t>(stack)];
  }
  return "";
}

// The frames that run Python, the outermost first.
std::vector<StackFrame> python_frames(const std::string& stack) {
  std::vector<StackFrame> frames = frames_of(stack);
  std::erase_if(frames, [](const StackFrame& frame) { return !frame.is_python(); });
  std::ranges::reverse(frames);
  return frames;
}

// The line of the innermost user's function that all allocations of the steps share: the loop's.
std::string loop_line(const Trace& trace, const std::string& stack) {
  const std::vector<StackFrame> failed = python_frames(stack);
  size_t shared = failed.size();
  std::unordered_set<int32_t> seen = {0};
  const Steps steps(trace);
  for (int64_t i = 0; i < std::ssize(trace.events) && shared > 0; ++i) {
    const TraceEvent& event = trace.events[static_cast<size_t>(i)];
    const int32_t other = trace.block_facts[static_cast<size_t>(event.block)].stack;
    if (!event.allocates || seen.contains(other)) continue;
    const Moment moment = steps.at(i);
    if (moment.step == 0 || moment.phase == StepPhase::kBackward) continue;
    seen.insert(other);
    const std::vector<StackFrame> frames = python_frames(trace.names[static_cast<size_t>(other)]);
    if (frames.empty()) continue;
    size_t same = 0;
    while (same < std::min(shared, frames.size()) && frames[same].file == failed[same].file &&
           frames[same].function == failed[same].function) {
      ++same;
    }
    shared = same;
  }
  while (shared > 0 && !failed[shared - 1].is_users()) --shared;
  return shared == 0 ? "" : fmt::format("{}:{}", failed[shared - 1].file, failed[shared - 1].line);
}

}  // namespace

std::optional<Failure> find_failure(const History& history) {
  const Trace& trace = history.trace;
  const DeviceEvent* const failed = fatal_failure(trace);
  if (failed == nullptr) return std::nullopt;
  const auto name = [&](int32_t number) { return trace.names[static_cast<size_t>(number)]; };
  Failure failure;
  failure.event = failed->position;
  failure.requested_bytes = failed->bytes;
  if (failed->free_bytes > 0) failure.free_bytes = failed->free_bytes;
  for (size_t block = 0; block < history.lifetimes.size(); ++block) {
    if (!history.is_live(block, failure.event)) continue;
    failure.live_bytes += history.bytes(block);
    if (std::ranges::count(kWorkspaces, history.bytes(block)) > 0)
      failure.workspace_bytes += history.bytes(block);
    if (!trace.block_facts[block].is_part) failure.allocated_bytes += history.block_bytes(block);
  }
  const auto at = static_cast<size_t>(failed - trace.device_events.data());
  std::vector<Segment> held;
  std::copy_if(history.segments.begin(), history.segments.end(), std::back_inserter(held),
               [at](const Segment& segment) { return segment.reserved < at && at < segment.returned; });
  if (const auto idle = history.find_idle(held, failure.event)) {
    failure.reserved_bytes = idle->reserved_bytes;
    failure.idle_bytes = idle->bytes;
    failure.largest_idle_bytes = idle->largest_bytes;
    failure.idle_pieces = idle->pieces;
  }
  failure.source = history.short_source(name(failed->source));
  failure.stack = name(failed->stack);
  failure.stack_name = failed->stack;
  const bool is_snapshot = trace.format == "PyTorch memory snapshot";
  failure.driver_bytes =
      is_snapshot ? CachingRules{}.segment_bytes(CachingRules{}.block_bytes(failed->bytes)) : failed->bytes;
  const bool has_line = !failure.source.empty();
  const std::string loop =
      history.short_source(loop_line(trace, has_line ? failure.stack : stack_before(trace, failure.event)));
  if (!has_line) failure.last_line = loop;
  if (has_line && loop != failure.source) failure.caller = loop;
  failure.op = name(failed->op);
  failure.tensor = name(failed->tag);
  failure.module = name(failed->module);
  failure.judgment = judge(trace, *failed, failure);
  return failure;
}

}  // namespace headroom::report
