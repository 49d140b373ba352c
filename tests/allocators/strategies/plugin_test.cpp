// Strategies from outside: a shared library, and a function.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

TEST_F(PluginStrategy, ABlockThatIsTooSmallIsRefusedAndGoesBack) {
  const auto allocator = make_allocator(parse_strategy(kFaultyPlugin), device_.device());
  for (int i = 0; i < 2; ++i) {
    try {
      allocator->allocate(1024);
      FAIL() << "it was taken";
    } catch (const InvalidArgument& error) {
      const std::string message = error.what();
      EXPECT_TRUE(message.ends_with("it returned a block of 768 bytes for a request of 1024 bytes"))
          << message;
    }
    EXPECT_EQ(allocator->statistics().allocated.current, 0);
    EXPECT_EQ(allocator->statistics().reserved.current, 0);
  }
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
