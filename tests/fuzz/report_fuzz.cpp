#include <cstdlib>

#include "allocators/strategies/strategy_text.h"
#include "base/errors.h"
#include "runtime/app/options.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "tools/report/checks.h"
#include "tools/report/diff.h"
#include "tools/report/exchange.h"
#include "tools/report/history.h"
#include "tools/report/views.h"
#include "tools/workload/recorded_failure.h"
#include "tools/workload/recorded_setup.h"
#include "trace/read_trace.h"

// Makes every view of every trace that is accepted. No name may end the <script> element of the data.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom::report;
  const headroom::MemoryFile file(data, size);
  try {
    for (const headroom::Trace& trace : headroom::read_traces(file.path(), {}, headroom::Moments::kTake)) {
      const History history(trace);
      if (history.peak_bytes != trace.peak_bytes || history.samples.empty()) std::abort();
      if (history.samples[history.peak_sample].live_bytes != trace.peak_bytes) std::abort();
      if (history.fragmentation && !(*history.fragmentation >= 0 && *history.fragmentation <= 1))
        std::abort();
      const Verdict verdict = judge_history(history, Steps(trace));
      if (verdict.sentence.empty()) std::abort();
      if (memory_viz(history).empty() || speedscope(history).empty()) std::abort();
      if (page_data(history, verdict).find('<') != std::string::npos) std::abort();
      if (chrome_trace(history).empty() || timeline(history).empty()) std::abort();
      if (!differences(history, history).empty()) std::abort();
      check(history, {.max_peak_bytes = 1, .no_leaks = true});
      const headroom::Trace played = headroom::with_failed_request(trace);
      if (played.peak_bytes < trace.peak_bytes && !headroom::ends_in_failure(played)) std::abort();
      const auto limit = headroom::recorded_limit(played);
      if (limit && (limit->at_least_bytes <= 0 || limit->below_bytes < limit->at_least_bytes)) std::abort();
      headroom::parse_strategy(headroom::recorded_strategy(played));
      if (!headroom::simulated_profile(headroom::with_recorded_device({}, played))) std::abort();
    }
  } catch (const headroom::InvalidArgument&) {
  }
  return 0;
}
