// Promises of sessions on a simulated GPU whose work takes time and whose streams are checked.
#include "base/errors.h"
#include "device/host/simulated_gpu.h"
#include "tests/runtime/session/harness.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

struct TrainedNet {
  uint64_t checksum = 0;
  std::vector<float> losses;
};

// Ten steps, on a stream of its own or on the default one.
TrainedNet train_small_net(SimulatedGpu& gpu, const std::string& strategy, PlanMode mode, bool own_stream) {
  const std::unique_ptr<Allocator> allocator = make_allocator({.name = strategy}, gpu);
  SmallNet net;
  Variables variables(net.graph, gpu, *allocator);
  const Stream stream = own_stream ? gpu.streams().new_stream() : Stream{};
  TrainedNet result;
  {
    Session session(net.graph, net.training(), mode, variables);
    session.use_stream(stream);
    net.feed(session);
    for (const int64_t steps : {1, 1, 8}) {
      session.run(steps);
      result.losses.push_back(session.output<float>(net.loss)[0]);
    }
  }
  result.checksum = variables.checksum(net.parameters);
  return result;
}

TEST(SessionStreams, WorkThatTakesTimeGivesTheSameBitsAndMissesNoWait) {
  DeviceProfile slow = find_profile("h200");
  slow.kernel_us = 10;
  slow.copy_bytes_per_us = 1000;
  SimulatedGpu plain(find_profile("h200"));
  const TrainedNet expected = train_small_net(plain, "direct", PlanMode::kDynamic, false);
  for (const char* strategy : {"direct", "caching", "mapped", "stream-ordered"}) {
    for (PlanMode mode : kPlanModes) {
      for (const bool own_stream : {false, true}) {
        SimulatedGpu gpu(slow);
        gpu.streams().check_waits();
        const TrainedNet trained = train_small_net(gpu, strategy, mode, own_stream);
        EXPECT_EQ(trained.checksum, expected.checksum) << strategy << " " << to_string(mode);
        EXPECT_EQ(trained.losses, expected.losses) << strategy << " " << to_string(mode);
        EXPECT_GT(gpu.streams().now_us(), 10 * 10);
      }
    }
  }
}

TEST(SessionStreams, AVariableThatAnotherStreamStillWritesIsFound) {
  for (PlanMode mode : kPlanModes) {
    SimulatedGpu gpu(find_profile("h200"));
    gpu.streams().check_waits();
    const std::unique_ptr<Allocator> allocator = make_allocator({.name = "caching"}, gpu);
    SmallNet net;
    Variables variables(net.graph, gpu, *allocator);
    Session session(net.graph, net.training(), mode, variables);
    net.feed(session);
    session.run();
    const uint64_t before = variables.checksum(net.parameters);
    const Stream other = gpu.streams().new_stream();
    const Value filter = net.parameters[0];
    const MemoryUse use{variables.data(filter.id), filter.spec().bytes(), true, "filter"};
    gpu.streams().queue(other, {[](Stream) {}, "load_weights", "load.cpp:7", {use}});
    try {
      session.run();
      ADD_FAILURE() << to_string(mode) << ": the missing wait was not found";
    } catch (const StreamHazard& hazard) {
      EXPECT_EQ(hazard.value(), "filter");
      EXPECT_EQ(hazard.before().work, "load_weights");
      EXPECT_EQ(hazard.before().place, "load.cpp:7");
      EXPECT_EQ(hazard.now().work, "conv2d");
      EXPECT_NE(hazard.now().place.find("small_net.h:"), std::string::npos) << hazard.what();
    }
    gpu.streams().wait({}, other);
    EXPECT_EQ(variables.checksum(net.parameters), before);
    session.run();
    EXPECT_NE(variables.checksum(net.parameters), before);
  }
}

}  // namespace
}  // namespace headroom
