// Recordings that end with a request that found no room: the machine that they say, and the request itself.
#include "tools/workload/recorded_failure.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "device/host/profiles.h"
#include "tools/workload/recorded_setup.h"
#include "trace/read_trace.h"
#include "trace/trace_builder.h"

namespace headroom {
namespace {

using Kind = DeviceEvent::Kind;

// Takes `reserved` from the driver and asks for 64 MiB, while `free` of the device are free.
Trace failed_training(int64_t reserved, int64_t free) {
  TraceBuilder builder("run.pickle", "PyTorch memory snapshot");
  builder.add({.kind = Kind::kReserve, .address = 0x1000, .bytes = reserved});
  builder.allocate(0x1000, reserved);
  builder.add({.kind = Kind::kOutOfMemory, .bytes = 64 * kMiB, .free_bytes = free},
              {.op = "aten::mm", .source = "train.py:7", .module = "fc"});
  builder.free(0x1000);
  return builder.take();
}

TEST(RecordedFailure, TheRequestIsTheLastEventAndHasItsLine) {
  const Trace recorded = failed_training(kGiB, kMiB);
  const Trace played = with_failed_request(recorded);
  ASSERT_EQ(played.events.size(), 2u);  // without the free after it
  EXPECT_TRUE(ends_in_failure(played));
  EXPECT_FALSE(ends_in_failure(recorded));
  EXPECT_EQ(played.peak_bytes, kGiB + 64 * kMiB);
  EXPECT_EQ(played.peak_event, 1);
  const TraceEvent& request = played.events.back();
  EXPECT_EQ(request.bytes, 64 * kMiB);
  EXPECT_EQ(played.names[static_cast<size_t>(request.op)], "aten::mm");
  const TraceBlock& block = played.block_facts[static_cast<size_t>(request.block)];
  EXPECT_EQ(played.names[static_cast<size_t>(block.source)], "train.py:7");
  EXPECT_EQ(played.names[static_cast<size_t>(block.module)], "fc");
}

TEST(RecordedFailure, WhatTheProgramSurvivesIsNotPlayed) {
  TraceBuilder builder("run.pickle", "PyTorch memory snapshot");
  builder.allocate(1, kMiB);
  builder.add({.kind = Kind::kOutOfMemory, .bytes = 64 * kMiB});
  builder.allocate(2, kMiB);
  const Trace recorded = builder.take();
  EXPECT_EQ(with_failed_request(recorded).events.size(), 2u);
  EXPECT_FALSE(ends_in_failure(with_failed_request(recorded)));
}

TEST(RecordedFailure, AFullDeviceIsTheSmallestCardWithSoMuchMemory) {
  const DeviceProfile& card = find_profile("a100-40gb");
  const int64_t free = 10 * kMiB, reserved = card.total_bytes - 700 * kMiB;
  const Trace trace = failed_training(reserved, free);
  EXPECT_FALSE(recorded_limit(trace).has_value());
  EXPECT_EQ(recorded_room_bytes(trace), reserved + free);
  const RuntimeOptions options = with_recorded_device({}, trace);
  EXPECT_EQ(options.device, "sim:a100-40gb");
  EXPECT_EQ(*options.others_bytes + card.overhead_bytes(), 690 * kMiB);
}

TEST(RecordedFailure, ADeviceLargerThanAllCardsKeepsItsSize) {
  const RuntimeOptions options = with_recorded_device({}, failed_training(kGiB, 500 * kGiB));
  EXPECT_GE(*options.device_memory_bytes, 501 * kGiB);
  EXPECT_TRUE(options.device.starts_with("sim:")) << options.device;
}

TEST(RecordedFailure, ARefusalBesideFreeMemoryIsALimit) {
  const Trace trace = failed_training(3 * kGiB, 20 * kGiB);
  const std::optional<RecordedLimit> limit = recorded_limit(trace);
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ(limit->at_least_bytes, 3 * kGiB);
  EXPECT_EQ(limit->below_bytes, 3 * kGiB + 64 * kMiB);
  EXPECT_EQ(limit->free_bytes, 20 * kGiB);
  // The failed request is part of the facts.
  EXPECT_TRUE(recorded_limit(with_failed_request(trace)).has_value());
}

TEST(RecordedFailure, SizesThatNoDeviceHasAreNoLimit) {
  EXPECT_FALSE(recorded_limit(failed_training(kGiB, 0)).has_value());
  EXPECT_FALSE(recorded_room_bytes(failed_training(kGiB, 0)).has_value());
  Trace trace = failed_training(kGiB, 2 * kGiB);
  for (DeviceEvent& event : trace.device_events) event.free_bytes = INT64_MAX;
  EXPECT_FALSE(recorded_limit(trace).has_value());
  EXPECT_FALSE(recorded_room_bytes(trace).has_value());
}

TEST(RecordedSetup, TakesTheCardThatAProgramWasTracedFor) {
  Trace trace;
  trace.settings = {{"framework", "PyTorch 2.11.0"}, {"device", "rtx-3090"}};
  EXPECT_EQ(with_recorded_device({}, trace).device, "sim:rtx-3090");
  trace.settings = {{"device", "some other card"}};
  EXPECT_EQ(with_recorded_device({}, trace).device, "sim:h200");
}

TEST(RecordedSetup, TakesNoStrategyThatLoadsOrWritesAFile) {
  for (const char* recorded : {"plugin=/tmp/library.so", "caching+record=/tmp/written"}) {
    Trace trace;
    trace.format = "Headroom trace";
    trace.settings = {{"strategy", recorded}};
    EXPECT_TRUE(recorded_strategy(trace).starts_with("pytorch")) << recorded_strategy(trace);
  }
}

TEST(RecordedSetup, TakesTheSettingsOfASnapshot) {
  const auto strategy_of = [](const std::string& text) {
    Trace trace;
    trace.format = "PyTorch memory snapshot";
    trace.settings = {{"PYTORCH_CUDA_ALLOC_CONF", text}};
    return recorded_strategy(trace);
  };
  EXPECT_EQ(strategy_of(""), "pytorch");
  EXPECT_EQ(strategy_of("max_split_size_mb:128"), "pytorch,max_split_size_mb:128");
  EXPECT_EQ(strategy_of("a_setting_of_next_year:1"), "pytorch");
  // A file names no other file.
  EXPECT_EQ(strategy_of("pinned_num_register_threads:1+record=/tmp/written"), "pytorch");
  const std::vector<Trace> traces = read_traces(HEADROOM_SOURCE_DIR "/tests/fuzz/seeds/snapshot2.pickle");
  EXPECT_EQ(recorded_strategy(traces.front()), "pytorch,max_split_size_mb:128");
}

}  // namespace
}  // namespace headroom
