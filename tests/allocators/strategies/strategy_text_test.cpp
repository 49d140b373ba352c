#include "allocators/strategies/strategy_text.h"

#include <gtest/gtest.h>

#include "allocators/strategies/caching_rules.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "tests/allocators/devices.h"

namespace headroom {
namespace {

TEST(StrategyText, ANameAloneIsTheStrategyWithItsDefaults) {
  for (const Strategy& strategy : strategies()) {
    const StrategySettings settings = parse_strategy(strategy.name);
    EXPECT_EQ(settings.name, strategy.name);
    EXPECT_EQ(settings.limit_bytes, std::nullopt);
    EXPECT_FALSE(settings.allow_growth);
    EXPECT_TRUE(settings.options.empty());
  }
}

TEST(StrategyText, ElementsCompose) {
  const StrategySettings settings = parse_strategy("hard-limit=1GiB+allow-growth+reserve=100MiB");
  EXPECT_EQ(settings.name, "hard-limit");
  EXPECT_EQ(settings.limit_bytes, kGiB);
  EXPECT_EQ(settings.limit_scope, LimitScope::kPool);
  EXPECT_EQ(settings.reserve_bytes, 100 * kMiB);
  EXPECT_TRUE(settings.allow_growth);
  const StrategySettings process = parse_strategy("allow-growth+process-limit=96MiB");
  EXPECT_EQ(process.limit_bytes, 96 * kMiB);
  EXPECT_EQ(process.limit_scope, LimitScope::kProcess);
  EXPECT_EQ(parse_strategy("grab-all+fraction=0.25").memory_fraction, 0.25);
}

TEST(StrategyText, WhatComesOutMakesTheAllocatorThatItSays) {
  TestDevice device(TestDeviceKind::kSimulated);
  const auto allocator = make_allocator(parse_strategy("hard-limit=96MiB"), device.device());
  EXPECT_EQ(allocator->statistics().reserved.current, 96 * kMiB);
  const auto growing = make_allocator(parse_strategy("hard-limit=96MiB+allow-growth"), device.device());
  EXPECT_EQ(growing->statistics().reserved.current, 0);
  EXPECT_EQ(growing->limit_bytes(), 96 * kMiB);
}

TEST(StrategyText, FailNamesTheCallsThatFail) {
  using Calls = StrategySettings::FailingCalls;
  EXPECT_EQ(parse_strategy("caching").failing_calls, std::nullopt);
  EXPECT_EQ(parse_strategy("caching+fail=3").failing_calls, (Calls{3, 3}));
  EXPECT_EQ(parse_strategy("caching+fail=3..5").failing_calls, (Calls{3, 5}));
  EXPECT_EQ(parse_strategy("caching+fail=3..").failing_calls, (Calls{3, INT64_MAX}));
}

// The second segment always fails, regardless of the device's memory.
TEST(StrategyText, ACallThatFailsIsOutOfMemoryUnlessATrimMakesTheNextOneSucceed) {
  TestDevice device(TestDeviceKind::kSimulated);
  const auto for_ever = make_allocator(parse_strategy("caching+fail=2.."), device.device());
  void* first = for_ever->allocate(30 * kMiB);
  EXPECT_THROW(for_ever->allocate(30 * kMiB), OutOfMemory);
  for_ever->deallocate(first, 30 * kMiB);
  first = for_ever->allocate(20 * kMiB);  // from the segment that is there
  EXPECT_EQ(for_ever->statistics().driver_allocations, 1);
  for_ever->deallocate(first, 20 * kMiB);

  const auto once = make_allocator(parse_strategy("caching+fail=2"), device.device());
  first = once->allocate(30 * kMiB);
  once->deallocate(first, 30 * kMiB);
  void* second = once->allocate(40 * kMiB);
  EXPECT_EQ(once->statistics().retries, 1);
  once->deallocate(second, 40 * kMiB);

  EXPECT_THROW(make_allocator(parse_strategy("hard-limit=96MiB+fail=1.."), device.device()), OutOfMemory);
}

TEST(StrategyText, PyTorchsSettingsAreTakenAsPeopleWriteThem) {
  EXPECT_EQ(parse_strategy("pytorch").name, "caching");
  EXPECT_TRUE(parse_strategy("pytorch").options.empty());
  const StrategySettings settings = parse_strategy(
      "pytorch,expandable_segments:True, max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4],"
      "garbage_collection_threshold:0.8,pinned_use_background_threads:True+limit=4GiB");
  EXPECT_EQ(settings.name, "caching");
  EXPECT_EQ(settings.options.all(),
            "expandable_segments=true,max_split=128MiB,roundup_power2=[256:1,>:4],gc=0.8");
  EXPECT_EQ(settings.limit_bytes, 4 * kGiB);
  EXPECT_EQ(parse_strategy("pytorch,per_process_memory_fraction:0.5").memory_fraction, 0.5);
  const StrategySettings twice =
      parse_strategy("pytorch,max_split_size_mb:64,large_segment_size_mb:32,max_split_size_mb:128");
  EXPECT_EQ(caching_rules(twice.options).max_split_bytes, int64_t{128} << 20);  // the last, as in PyTorch
  EXPECT_EQ(caching_rules(twice.options).large_segment_bytes, int64_t{32} << 20);
  const StrategySettings async = parse_strategy("pytorch,backend:cudaMallocAsync,max_split_size_mb:128");
  EXPECT_EQ(async.name, "stream-ordered");
  EXPECT_TRUE(async.options.empty());
}

struct BadText {
  const char *text, *part;
};

class RefusedStrategy : public testing::TestWithParam<BadText> {};

TEST_P(RefusedStrategy, NamesWhatIsWrong) {
  try {
    parse_strategy(GetParam().text);
    FAIL() << GetParam().text;
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().part), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedStrategy,
    testing::Values(
        BadText{"grow-all", "did you mean 'grab-all'?"}, BadText{"", "has no name"},
        BadText{"+limit=1GiB", "has no name"}, BadText{"grab-all+", "has no name"},
        BadText{"grab-all++allow-growth", "has no name"},
        BadText{"grab-all+limt=1GiB", "did you mean 'limit'?"}, BadText{"grab-all+limit", "limit=SIZE"},
        BadText{"grab-all+limit=", "has no value"},
        BadText{"grab-all+limit=x", "does not start with a number"}, BadText{"grab-all+limit=-1", "negative"},
        BadText{"grab-all=1GiB+limit=2GiB", "limit is given twice"},
        BadText{"grab-all+fraction=2", "at most 1"}, BadText{"grab-all+fraction=0.5+fraction=0.5", "twice"},
        BadText{"grab-all+allow-growth=1", "takes no value"}, BadText{"caching+fail=0", "counted from 1"},
        BadText{"caching+fail=x", "counted from 1"},
        BadText{"caching+fail=5..3", "the last call is before the first"},
        BadText{"caching+fail=1+fail=2", "fail is given twice"},
        BadText{"grab-all+limit=1GiB:a=b", "unknown unit"}, BadText{"grab-all:", "not KEY=VALUE"},
        BadText{"grab-all:gc", "not KEY=VALUE"}, BadText{"grab-all:gc=0.8", "no options, so no 'gc'"},
        BadText{"grab-all:a=1,a=2", "given twice"},
        BadText{"pytorch,expandable_segment:True", "did you mean 'expandable_segments'?"},
        BadText{"pytorch,expandable_segments:true", "must be True or False"},
        BadText{"pytorch,expandable_segments", "expandable_segments:True|False"},
        BadText{"pytorch,max_split_size_mb:128MiB", "whole number of MiB"},
        BadText{"pytorch,max_split_size_mb:10",
                "max_split_size_mb is '10': it must be a whole number of MiB from 20"},
        BadText{"backend:cudaMallocAsync", "did you mean 'pytorch,backend:cudaMallocAsync'?"},
        BadText{"expandable_segments:True", "did you mean 'pytorch,expandable_segments:True'?"},
        BadText{"pytorch,backend:cuda", "native or cudaMallocAsync"},
        BadText{"pytorch,roundup_power2_divisions:3", "power of two"},
        BadText{"pytorch,roundup_power2_divisions:0", "powers of two"},
        BadText{"pytorch,garbage_collection_threshold:1.5", "it must be a number above 0 and below 1"},
        BadText{"pytorch,garbage_collection_threshold:1.0", "it must be a number above 0 and below 1"},
        BadText{"pytorch,large_segment_size_mb:8", "at least 10.00 MiB"},
        BadText{"pytorch:expandable_segments=True", "did you mean 'expandable_segments'?"}));

TEST(CachingRules, ARefusalNamesSizesInTheirUnits) {
  StrategyOptions options;
  options.add("max_split", "10MiB");
  try {
    caching_rules(options);
    FAIL() << "10 MiB are too little";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "max_split of 10.00 MiB: it must be at least 20.00 MiB");
  }
}

constexpr StrategyOption kSome[] = {{"max_split", "SIZE", "none", ""}, {"gc", "SHARE", "none", ""}};

TEST(StrategyOptions, AreReadAsWhatTheyAre) {
  StrategyOptions options;
  options.add("max_split", "128MiB");
  options.add("gc", "0.8");
  options.add("count", "7");
  EXPECT_EQ(options.bytes("max_split"), 128 * kMiB);
  EXPECT_EQ(options.share("gc"), 0.8);
  EXPECT_EQ(options.count("count", 0, 10), 7);
  EXPECT_EQ(options.bytes("other"), std::nullopt);
  EXPECT_THROW(options.share("count"), InvalidArgument);
  EXPECT_THROW(options.count("count", 0, 6), InvalidArgument);
  EXPECT_THROW(options.count("gc", 0, 6), InvalidArgument);
  EXPECT_THROW(options.require_known("some", kSome), InvalidArgument);
}

}  // namespace
}  // namespace headroom
