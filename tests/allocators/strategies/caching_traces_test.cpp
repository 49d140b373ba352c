// Equal rules give equal figures: the bytes that PyTorch 2.11 reserved for these traces on an H200, replayed
// through its allocator from C++, and the bytes that ours reserves on the simulated one.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "allocators/strategies/caching_allocator.h"
#include "base/bytes.h"
#include "tests/allocators/real_traces.h"

namespace headroom {
namespace {

// Peak reserved over the largest live set, as measured; no figure was taken of gnn with a split limit.
struct Measured {
  const char* trace;
  double standard;
  std::optional<double> split_128_mib;
};

class CachingTraces : public testing::TestWithParam<Measured> {
 protected:
  double reserved_ratio(const CachingRules& rules) {
    const Replay run = replay_allocator(events_, [&](Device& device) {
      return std::make_unique<CachingAllocator>(device, "caching", std::nullopt, rules);
    });
    return static_cast<double>(run.statistics.reserved.peak) / static_cast<double>(largest_live_set(events_));
  }

  void SetUp() override {
    events_ = read_trace(GetParam().trace);
    if (events_.empty()) GTEST_SKIP() << "no trace in " << traces_folder();
  }

  std::vector<TraceEvent> events_;
};

TEST_P(CachingTraces, ReserveWhatPyTorchReserves) {
  EXPECT_NEAR(reserved_ratio({}), GetParam().standard, 0.0006);
}

TEST_P(CachingTraces, ReserveWhatPyTorchReservesWithASplitLimit) {
  if (!GetParam().split_128_mib) GTEST_SKIP() << "not measured";
  EXPECT_NEAR(reserved_ratio({.max_split_bytes = 128 * kMiB}), *GetParam().split_128_mib, 0.01);
}

INSTANTIATE_TEST_SUITE_P(Traces, CachingTraces,
                         testing::Values(Measured{"resnet50", 1.175, 1.69},
                                         Measured{"gpt2_train", 1.594, 4.55},
                                         Measured{"deeplab", 1.229, 1.78},
                                         Measured{"gnn", 2.877, std::nullopt}),
                         [](const auto& row) { return row.param.trace; });

}  // namespace
}  // namespace headroom
