// The static plan as a strategy: a repeated run at planned places, and runs that go their own way.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "allocators/strategies/packed_allocator.h"
#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "device/host/cpu_device.h"
#include "tests/allocators/real_traces.h"
#include "tests/scratch_folder.h"
#include "trace/read_trace.h"

namespace headroom {
namespace {

// Three blocks of which two never live together: 3 MiB at once, 4 in all.
struct SmallRun {
  Trace trace;

  SmallRun() {
    const auto allocate = [&](int64_t bytes) {
      trace.events.push_back({true, static_cast<int32_t>(trace.blocks++), bytes});
    };
    const auto free = [&](int32_t block, int64_t bytes) { trace.events.push_back({false, block, bytes}); };
    allocate(kMiB);
    allocate(2 * kMiB);
    free(0, kMiB);
    allocate(kMiB - 100);
    free(1, 2 * kMiB);
    free(2, kMiB - 100);
    trace.name = "run";
  }
};

std::shared_ptr<const RequestPlan> plan_of(const Trace& trace) {
  return std::make_shared<const RequestPlan>(plan_requests(trace));
}

TEST(Packed, ARepeatedRunGetsTheSameAddressesInItsLargestLiveSet) {
  const SmallRun run;
  CpuDevice cpu(kGiB);
  PackedAllocator allocator(cpu, "packed", {}, plan_of(run.trace));
  EXPECT_EQ(allocator.statistics().reserved.current, 3 * kMiB);
  std::vector<void*> first;
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<void*> pointers;
    for (const TraceEvent& event : run.trace.events) {
      if (event.allocates) {
        pointers.push_back(allocator.allocate(event.bytes));
      } else {
        allocator.deallocate(pointers[static_cast<size_t>(event.block)], event.bytes);
      }
    }
    if (pass == 0) first = pointers;
    EXPECT_EQ(pointers, first);
  }
  EXPECT_EQ(allocator.statistics().reserved.peak, 3 * kMiB);
  EXPECT_EQ(allocator.statistics().driver_allocations, 1);
}

TEST(Packed, WhatThePlanDoesNotHaveComesFromBesideAndNothingOverlaps) {
  const SmallRun run;
  CpuDevice cpu(kGiB);
  PackedAllocator allocator(cpu, "packed", {}, plan_of(run.trace));
  void* kept = allocator.allocate(kMiB);  // as planned, but never freed
  void* large = allocator.allocate(2 * kMiB);
  void* other = allocator.allocate(5 * kMiB);    // not in the plan
  void* third = allocator.allocate(kMiB - 100);  // planned where the first one still lies
  const std::pair<void*, int64_t> live[] = {
      {kept, kMiB}, {large, 2 * kMiB}, {other, 5 * kMiB}, {third, kMiB - 100}};
  for (const auto& [a, a_bytes] : live) {
    for (const auto& [b, b_bytes] : live) {
      if (a == b) continue;
      EXPECT_TRUE(static_cast<char*>(a) + a_bytes <= b || static_cast<char*>(b) + b_bytes <= a);
    }
  }
  EXPECT_GT(allocator.statistics().reserved.current, 3 * kMiB);
  for (const auto& [pointer, bytes] : live) allocator.deallocate(pointer, bytes);
  EXPECT_EQ(allocator.statistics().allocated.current, 0);
  EXPECT_GT(allocator.trim(), 0);
  EXPECT_EQ(allocator.statistics().reserved.current, 0);
  EXPECT_NE(allocator.allocate(kMiB), nullptr);  // after the arena went back
}

TEST(Packed, AnArenaThatTheDeviceHasNoRoomForIsOutOfMemory) {
  const SmallRun run;
  CpuDevice cpu(2 * kMiB);
  EXPECT_THROW(PackedAllocator(cpu, "packed", {}, plan_of(run.trace)), OutOfMemory);
}

TEST(Packed, ATraceOfSeveralStreamsIsRefusedByName) {
  SmallRun run;
  run.trace.streams.push_back(7);
  run.trace.events.back().stream = 1;
  try {
    plan_requests(run.trace);
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("run: its requests come from several streams"),
              std::string::npos);
  }
}

TEST(Packed, ReadsItsTraceFromAFile) {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/run.trace";
  CpuDevice cpu(kGiB);
  {
    const auto recorded = make_allocator(parse_strategy("direct+record=" + path), cpu);
    for (int step = 0; step < 2; ++step) {
      void* a = recorded->allocate(kMiB);
      void* b = recorded->allocate(kMiB);
      recorded->deallocate(a, kMiB);
      recorded->deallocate(b, kMiB);
    }
  }
  const auto allocator = make_allocator(parse_strategy("packed:trace=" + path), cpu);
  EXPECT_EQ(allocator->statistics().reserved.current, 2 * kMiB);
  EXPECT_THROW(make_allocator(parse_strategy("packed:trace=" + path + ".none"), cpu), InvalidArgument);
}

TEST(PackedTraces, TrainingRunsFitIntoTheirLargestLiveSet) {
  constexpr std::pair<const char*, double> kRatios[] = {
      {"deeplab", 1.0002}, {"gnn", 1.0002}, {"gpt2_train", 1.0002}, {"resnet50", 1.0051}};
  for (const auto& [name, ratio] : kRatios) {
    const std::string path = (traces_folder() / (std::string(name) + ".csv.gz")).string();
    if (read_trace(name).empty()) GTEST_SKIP() << "no trace in " << traces_folder();
    const Trace trace = read_traces(path)[0];
    EXPECT_LE(static_cast<double>(plan_requests(trace).arena_bytes),
              ratio * static_cast<double>(trace.peak_bytes))
        << name;
  }
}

// More blocks at once than any search by pairs, or any list that is moved at each request, gets done with.
TEST(Packed, TensOfThousandsOfBlocksAtOnceComeAndGoInOrder) {
  constexpr int kBlocks = 70'000;
  Trace trace;
  for (int i = 0; i < kBlocks; ++i) trace.events.push_back({true, i, 512 + 256 * (i % 7)});
  for (int i = 0; i < kBlocks; ++i) trace.events.push_back({false, i, 512 + 256 * (i % 7)});
  trace.blocks = kBlocks;
  CpuDevice cpu(kGiB);
  PackedAllocator allocator(cpu, "packed", {}, plan_of(trace));
  const int64_t arena_bytes = allocator.statistics().reserved.current;
  std::vector<void*> pointers;
  for (const TraceEvent& event : trace.events) {
    if (event.allocates) {
      pointers.push_back(allocator.allocate(event.bytes));
    } else {
      allocator.deallocate(pointers[static_cast<size_t>(event.block)], event.bytes);
    }
  }
  EXPECT_EQ(allocator.statistics().allocated.peak, arena_bytes);
  EXPECT_EQ(allocator.statistics().reserved.peak, arena_bytes);
}

}  // namespace
}  // namespace headroom
