// Strategies from outside: a shared library, and a function.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "allocators/strategies/direct_allocator.h"
#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "tests/allocators/devices.h"

namespace headroom {
namespace {

const std::string kPlugin = std::string("plugin=") + HEADROOM_STACK_STRATEGY;
const std::string kFaultyPlugin = std::string("plugin=") + HEADROOM_FAULTY_PLUGIN;

class PluginStrategy : public testing::Test {
 protected:
  PluginStrategy() { device_.device().initialize(); }
  std::string failure_of(const std::string& strategy) {
    try {
      make_allocator(parse_strategy(strategy), device_.device());
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  }
  TestDevice device_{TestDeviceKind::kSimulated};
};

TEST_F(PluginStrategy, KeepsBlocksApartAndGivesAllBack) {
  const int64_t before = device_.device().memory().info().process;
  {
    const auto allocator = make_allocator(parse_strategy(kPlugin + ":region=128"), device_.device());
    RandomLoad load(*allocator, device_.contents(), 1, kMiB, 30);
    for (int i = 0; i < 2000; ++i) ASSERT_TRUE(load.step());
    ASSERT_TRUE(load.finish());
    EXPECT_EQ(allocator->statistics().allocated.current, 0);
    EXPECT_EQ(allocator->statistics().reserved.current, 128 * kMiB);
    EXPECT_EQ(allocator->trim(), 128 * kMiB);
  }
  EXPECT_EQ(device_.device().memory().info().process, before);
}

TEST_F(PluginStrategy, HasNoRoomBeyondItsLimit) {
  const auto allocator =
      make_allocator(parse_strategy(kPlugin + ":region=128+limit=100MiB"), device_.device());
  EXPECT_THROW(allocator->allocate(1), OutOfMemory);
  const auto smaller = make_allocator(parse_strategy(kPlugin + ":region=32+limit=100MiB"), device_.device());
  void* block = smaller->allocate(30 * kMiB);
  EXPECT_THROW(smaller->allocate(3 * kMiB), OutOfMemory);
  smaller->deallocate(block, 30 * kMiB);
}

TEST_F(PluginStrategy, IsRefusedWithTheReason) {
  EXPECT_NE(failure_of("plugin").find("plugin=PATH"), std::string::npos);
  EXPECT_NE(failure_of("plugin=/no/such/library.so").find("/no/such/library.so"), std::string::npos);
  EXPECT_NE(failure_of("plugin=libm.so.6").find("headroom_strategy_v1"), std::string::npos);
  EXPECT_NE(failure_of(kPlugin + ":size=3").find("knows region=MIB, not 'size=3'"), std::string::npos);
}

TEST_F(PluginStrategy, WithoutAReasonOfItsOwnItIsRefusedInOneWholeSentence) {
  EXPECT_EQ(failure_of(kFaultyPlugin + ":fault=silent"),
            std::string("strategy plugin ") + HEADROOM_FAULTY_PLUGIN +
                ": its create() made no strategy and gave no reason");
}

// A fault of a plugin, and the words that say so; each is found by the time that statistics are asked
// for, or written when the strategy goes.
struct PluginFault {
  const char *name, *words;
};
void PrintTo(const PluginFault& fault, std::ostream* stream) {
  *stream << fault.name;
}

class FaultyPlugin : public testing::TestWithParam<PluginFault> {};

TEST_P(FaultyPlugin, IsReportedByNameAndNeverACrash) {
  TestDevice device(TestDeviceKind::kSimulated);
  device.device().initialize();
  const int64_t before = device.device().memory().info().process;
  std::string reported;
  testing::internal::CaptureStderr();
  try {
    const auto allocator =
        make_allocator(parse_strategy(kFaultyPlugin + ":fault=" + GetParam().name), device.device());
    std::vector<void*> blocks;
    try {
      for (int i = 0; i < 3; ++i) blocks.push_back(allocator->allocate(1024));
    } catch (const OutOfMemory&) {
    }
    for (void* block : blocks) allocator->deallocate(block, 1024);
    allocator->trim();
    allocator->statistics();
  } catch (const InvalidArgument& error) {
    reported = error.what();
  }
  reported += testing::internal::GetCapturedStderr();
  EXPECT_NE(reported.find(GetParam().words), std::string::npos) << reported;
  EXPECT_TRUE(reported.empty() || reported.find(HEADROOM_FAULTY_PLUGIN) != std::string::npos) << reported;
  EXPECT_EQ(device.device().memory().info().process, before) << "all goes back";
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultyPlugin,
    testing::Values(PluginFault{"none", ""}, PluginFault{"endless_message", "AAAA"},
                    PluginFault{"small", "it returned a block of 768 bytes for a request of 1024 bytes"},
                    PluginFault{"negative", "a block of -5 bytes for a request of 1024 bytes"},
                    PluginFault{"huge", "lies outside the memory that it reserved"},
                    PluginFault{"unaligned", "is not aligned to 256 bytes"},
                    PluginFault{"same", "overlaps a live one"},
                    PluginFault{"wild", "lies outside the memory that it reserved"},
                    PluginFault{"past_the_end", "lies outside the memory that it reserved"},
                    PluginFault{"reserve_negative", ""}, PluginFault{"reserve_huge", ""},
                    PluginFault{"release_wild", "it released 512 bytes at 0x1234, where it holds 0"},
                    PluginFault{"release_part", "it released 512 bytes at "},
                    PluginFault{"leak", "left 1048576 bytes reserved"},
                    PluginFault{"release_twice", "where it holds 0"},
                    PluginFault{"free_nothing", "deallocate() returned 0 for its block of 1024 bytes"},
                    PluginFault{"free_negative", "deallocate() returned -7 for its block of 1024 bytes"},
                    PluginFault{"free_more", "deallocate() returned 2048 for its block of 1024 bytes"},
                    PluginFault{"trim_negative", "trim() returned -5, and released 0 bytes"},
                    PluginFault{"trim_huge", "trim() returned 9223372036854775807, and released 0 bytes"},
                    PluginFault{"largest_negative", "largest_free_block() returned -1"},
                    PluginFault{"largest_huge", "largest_free_block() returned 9223372036854775807"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST_F(PluginStrategy, WithoutItsFunctionsItIsRefused) {
  EXPECT_EQ(failure_of(std::string("plugin=") + HEADROOM_EMPTY_PLUGIN),
            std::string("strategy plugin ") + HEADROOM_EMPTY_PLUGIN + ": it has no allocate()");
}

TEST_F(PluginStrategy, AFileOfThisFolderIsNamedWhereItsPathWasMeant) {
  const std::string name = "headroom_plugin_test_no_library.so";
  std::ofstream(name) << "no library";
  EXPECT_NE(failure_of("plugin=" + name).find("is ./" + name), std::string::npos);
  std::filesystem::remove(name);
  EXPECT_EQ(failure_of("plugin=" + name).find("is ./" + name), std::string::npos);
}

TEST(OwnStrategy, AFunctionMakesItAndTheLimitIsItsToKeep) {
  TestDevice device(TestDeviceKind::kSimulated);
  StrategySettings settings{.name = "mine", .limit_bytes = 10 * kMiB};
  settings.make = [](const StrategySettings& s, Device& d) {
    return std::make_unique<DirectAllocator>(d, s.name, Limit{*s.limit_bytes, s.limit_scope});
  };
  const auto allocator = make_allocator(settings, device.device());
  EXPECT_EQ(allocator->name(), "mine");
  EXPECT_THROW(allocator->allocate(11 * kMiB), OutOfMemory);
}

}  // namespace
}  // namespace headroom
