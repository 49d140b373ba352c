#include "runtime/session/walk.h"

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "allocators/observer.h"
#include "answers/lower.h"
#include "answers/play.h"
#include "device/host/simulated_gpu.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

using Request = std::tuple<AllocatorEvent::Kind, int64_t, std::string, std::string, int64_t>;

// All requests to a strategy: kind, bytes, op, tensor and first step of each event.
struct ObservedGpu {
  explicit ObservedGpu(Backing backing) : device(find_profile("laptop-2gb"), 0, backing) {
    allocator->set_observer([this](const AllocatorEvent& event) {
      const int64_t bytes = event.memory != nullptr ? event.memory->process : event.requested_bytes;
      requests.emplace_back(event.kind, bytes, event.user.op, event.user.tensor, event.first);
    });
  }
  SimulatedGpu device;
  std::vector<Request> requests;
  std::unique_ptr<Allocator> allocator = make_allocator({.name = "allow-growth"}, device);
};

TEST(Walk, ThePredictionRequestsTheSameAsTheSessionInTheSameOrder) {
  for (const PlanMode mode : kPlanModes) {
    for (const bool doubled : {false, true}) {
      SmallNet net;
      Targets targets = net.training();
      targets.doubled_inputs = doubled;
      const Plan plan = make_plan(net.graph, targets, mode, workspaces(net.graph, 1000));

      ObservedGpu real(Backing::kHostMemory);
      Variables variables(net.graph, real.device, *real.allocator);
      const auto kernels = std::make_shared<const Kernels>(net.graph, real.device, *real.allocator);
      Session session(net.graph, plan, kernels, variables);
      net.feed(session);
      session.run(2);
      std::vector<Request> taken = real.requests;

      // A trace has no library starts' figures and no frees' names.
      const Program program{.graph = {std::shared_ptr<const Graph>(), &net.graph},
                            .targets = {},
                            .plans = std::make_shared<const std::vector<Plan>>(std::vector{plan})};
      const Traced lowered = lower(program, {parse_device_name("/GPU:0")});
      std::vector<Request> requests;
      for (const TraceEvent& event : lowered.front().events) {
        const auto name = [&](int32_t position) {
          return lowered.front().names[static_cast<size_t>(position)];
        };
        requests.emplace_back(
            event.allocates ? AllocatorEvent::Kind::kAllocate : AllocatorEvent::Kind::kDeallocate,
            event.bytes, name(event.op), name(event.tag), 0);
      }
      // It has one step, and players play it twice.
      const size_t turn = lowered.steps.front();
      const int64_t begin = turn == 0 ? 0 : lowered.turns[turn - 1].events;
      const std::vector<Request> step(requests.begin() + begin, requests.end());
      requests.insert(requests.end(), step.begin(), step.end());
      std::erase_if(taken, [](const Request& request) {
        return std::get<0>(request) != AllocatorEvent::Kind::kAllocate &&
               std::get<0>(request) != AllocatorEvent::Kind::kDeallocate;
      });
      EXPECT_TRUE(requests == taken) << to_string(mode);
      const RuntimeOptions options{.device = "sim:laptop-2gb", .strategy = "allow-growth"};
      const Prediction played = play(lowered, setup_of(options));
      EXPECT_EQ(played.front().statistics.allocated.peak, real.allocator->statistics().allocated.peak);
      EXPECT_EQ(played.front().process_bytes, real.device.memory().info().peak_process);
    }
  }
}

// Records its calls.
struct Log final : PlanWork {
  explicit Log(const PlanMemory& plan_memory) : memory(plan_memory) {}
  void copy_in(int value) override {
    EXPECT_NE(memory.address_of(value), nullptr);
    ++copies_in;
  }
  void copy_out(int value) override {
    EXPECT_NE(memory.address_of(value), nullptr);
    ++copies_out;
  }
  void run_group(int group) override { events.push_back(group); }
  void wait_before_updates() override { events.push_back(kWait); }
  int64_t replay(int64_t most) override {
    asked.push_back(most);
    return replayed;
  }
  void allocated(int) override { ++live; }
  void deallocated(int) override { --live; }

  static constexpr int kWait = -1;
  const PlanMemory& memory;
  int copies_in = 0, copies_out = 0, live = 0;
  int64_t replayed = 0;
  std::vector<int> events;  // groups, and waits
  std::vector<int64_t> asked;
};

TEST(Walk, OnlyTheLastStepCopiesOutAndWaitsBeforeItsFirstUpdate) {
  for (const PlanMode mode : kPlanModes) {
    SmallNet net;
    CpuHarness cpu;
    Variables variables(net.graph, cpu.device, *cpu.allocator);
    const Plan plan = make_plan(net.graph, net.training(), mode, workspaces(net.graph, 1000));
    PlanMemory memory(plan, variables);
    Walk walk(memory);
    const auto first_update = std::find_if(walk.groups().begin(), walk.groups().end(),
                                           [](const Walk::Group& group) { return group.is_update; });
    const auto updates = static_cast<int>(first_update - walk.groups().begin());
    const auto groups = static_cast<int>(walk.groups().size());
    ASSERT_LT(updates, groups);
    if (has_arena(mode)) {
      EXPECT_EQ(groups, 2);
    }

    Log log(memory);
    walk.run(3, true, {}, log);
    std::vector<int> expected;
    for (int step = 0; step < 3; ++step) {
      for (int group = 0; group < groups; ++group) {
        if (step == 2 && group == updates) expected.push_back(Log::kWait);
        expected.push_back(group);
      }
    }
    EXPECT_EQ(log.events, expected) << to_string(mode);
    EXPECT_EQ(log.copies_in, has_arena(mode) ? 3 : 9) << to_string(mode);
    EXPECT_EQ(log.copies_out, 2);
    EXPECT_EQ(log.live, 0);
    EXPECT_EQ(log.asked, has_arena(mode) ? (std::vector<int64_t>{2, 1}) : std::vector<int64_t>{});
  }
}

TEST(Walk, AReplayTakesThePlaceOfWholeStepsBeforeTheLast) {
  SmallNet net;
  CpuHarness cpu;
  Variables variables(net.graph, cpu.device, *cpu.allocator);
  const Plan plan = make_plan(net.graph, net.training(), PlanMode::kPacked, workspaces(net.graph, 0));
  PlanMemory memory(plan, variables);
  Walk walk(memory);
  Log log(memory);
  log.replayed = 4;
  walk.run(9, true, {}, log);
  EXPECT_EQ(log.asked, (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(log.events, (std::vector<int>{0, Log::kWait, 1}));
}

}  // namespace
}  // namespace headroom
