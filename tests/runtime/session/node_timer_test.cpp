#include "runtime/session/node_timer.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/runtime/session/harness.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

constexpr int64_t kEnoughBytes = std::numeric_limits<int64_t>::max();

TEST(NodeTimer, TimesEveryNodeButReshapesAndGivesItsMemoryBack) {
  SmallNet net;
  CpuHarness cpu;
  const Kernels kernels(net.graph, cpu.device, *cpu.allocator);
  NodeTimer timer(cpu.device);
  const int64_t before = cpu.device.memory().info().process;
  const auto times = timer.times_us(net.graph, kernels, kEnoughBytes);
  EXPECT_EQ(cpu.device.memory().info().process, before);
  ASSERT_TRUE(times);
  ASSERT_EQ(times->size(), net.graph.nodes().size());
  for (size_t id = 0; id < times->size(); ++id) {
    const bool is_reshape = std::holds_alternative<Reshape>(net.graph.nodes()[id].op);
    EXPECT_EQ((*times)[id] > 0, !is_reshape) << net.graph.nodes()[id].name;
  }
  EXPECT_EQ(timer.times_us(net.graph, kernels, kEnoughBytes), times) << "what is known is not measured again";
}

TEST(NodeTimer, TakesNoMoreThanTheProcessMay) {
  SmallNet net;
  CpuHarness cpu;
  const Kernels kernels(net.graph, cpu.device, *cpu.allocator);
  EXPECT_FALSE(NodeTimer(cpu.device).times_us(net.graph, kernels, 1));
}

}  // namespace
}  // namespace headroom
