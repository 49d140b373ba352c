#include <cstdlib>
#include <vector>

#include "base/errors.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "trace/read_trace.h"

namespace {

template <typename List>
void require_element(const List& list, int64_t index) {
  if (index < 0 || index >= std::ssize(list)) std::abort();
}

}  // namespace

// Reads every format; the seeds' content selects it. An accepted trace must be a possible history.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const headroom::MemoryFile file(data, size);
  try {
    for (const headroom::Trace& trace : headroom::read_traces(file.path())) {
      std::vector<int64_t> live(static_cast<size_t>(trace.blocks));  // bytes by block
      int64_t bytes = 0, peak = 0, next = 0;
      for (const headroom::TraceEvent& event : trace.events) {
        int64_t& block = live.at(static_cast<size_t>(event.block));
        if (event.bytes <= 0 || (event.allocates ? event.block != next++ : block != event.bytes))
          std::abort();
        block = event.allocates ? event.bytes : 0;
        bytes += event.allocates ? event.bytes : -event.bytes;
        if (bytes > peak) peak = bytes;
        require_element(trace.names, event.op);
        require_element(trace.names, event.tag);
        require_element(trace.streams, event.stream);
      }
      for (const headroom::TraceBlock& block : trace.block_facts) {
        require_element(trace.names, block.source);
        require_element(trace.names, block.module);
        require_element(trace.names, block.stack);
        require_element(headroom::kMemoryCategoryNames, static_cast<int64_t>(block.category));
      }
      for (const headroom::DeviceEvent& event : trace.device_events) {
        if (event.position < 0 || event.position > static_cast<int64_t>(trace.events.size()) ||
            event.bytes < 0)
          std::abort();
        require_element(trace.names, event.op);
        require_element(trace.streams, event.stream);
      }
      const headroom::TraceMark* before = nullptr;
      for (const headroom::TraceMark& mark : trace.marks) {
        require_element(headroom::kStepPhaseNames, static_cast<int64_t>(mark.phase));
        if (mark.position < (before ? before->position : 0) || mark.step < (before ? before->step : 0) ||
            mark.position > static_cast<int64_t>(trace.events.size()))
          std::abort();
        before = &mark;
      }
      if (bytes < 0 || trace.block_facts.size() != live.size() || peak != trace.peak_bytes ||
          next != trace.blocks)
        std::abort();
    }
  } catch (const headroom::InvalidArgument&) {
  }
  return 0;
}
