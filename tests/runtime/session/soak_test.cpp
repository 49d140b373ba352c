// Sessions that come and go leak nothing; bench/soak.cpp does the same for hours.
#include <malloc.h>

#include "tests/runtime/session/harness.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

// Returns the bytes that the C library has handed out; 0 under a sanitizer, which has an allocator of its
// own.
int64_t heap_bytes() {
  return static_cast<int64_t>(mallinfo2().uordblks);
}

TEST(Soak, SessionsLeaveNothingOnTheHostOrTheDevice) {
  CpuHarness cpu;
  const auto run = [&](int sessions) {
    for (int i = 0; i < sessions; ++i) {
      const SmallNet net;
      Variables variables(net.graph, cpu.device, *cpu.allocator);
      Session session(net.graph, net.training(), kPlanModes[static_cast<size_t>(i) % kPlanModes.size()],
                      variables);
      net.feed(session);
      session.run(3);
    }
  };
  run(12);
  const int64_t heap = heap_bytes(), device = cpu.device.memory().info().process;
  EXPECT_EQ(device, 0);
  run(60);
  EXPECT_EQ(cpu.device.memory().info().process, 0);
  EXPECT_LT(heap_bytes() - heap, 16 << 10) << "60 sessions of some 100 KiB each";
}

TEST(Soak, StepsLeaveNothingOnTheHostOrTheDevice) {
  for (const PlanMode mode : kPlanModes) {
    CpuHarness cpu;
    const SmallNet net;
    Variables variables(net.graph, cpu.device, *cpu.allocator);
    Session session(net.graph, net.training(), mode, variables);
    net.feed(session);
    session.run(20);
    const int64_t heap = heap_bytes(), device = cpu.device.memory().info().process;
    for (int i = 0; i < 20; ++i) session.run(20);
    EXPECT_EQ(cpu.device.memory().info().process, device);
    EXPECT_LT(heap_bytes() - heap, 4 << 10) << to_string(mode);
  }
}

}  // namespace
}  // namespace headroom
