// Promises of a loader: the bits of as many runs, failures where they belong, and copies that overlap with
// the work.
#include "runtime/session/loader.h"

#include <algorithm>
#include <atomic>

#include "base/errors.h"
#include "device/faulty/faulty_device.h"
#include "device/gpus.h"
#include "device/host/simulated_gpu.h"
#include "tests/require_cuda.h"
#include "tests/runtime/session/harness.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

// A net, and a session of it whose inputs may be doubled.
struct Fed {
  Device& device;
  std::unique_ptr<Allocator> allocator = make_allocator({.name = "direct"}, device);
  SmallNet net = {};
  Variables variables{net.graph, device, *allocator};
  std::optional<Session> session = {};

  Fed(Device& on, PlanMode mode, bool doubled) : device(on) {
    Targets targets = net.training();
    targets.doubled_inputs = doubled;
    session.emplace(net.graph, targets, mode, variables);
  }

  // Another batch for each number.
  void fill(int64_t number, std::span<float> x, std::span<int32_t> labels, std::span<float> rate) const {
    const std::vector<float> values =
        random_floats(static_cast<int64_t>(x.size()), 7 + static_cast<uint64_t>(number));
    std::copy(values.begin(), values.end(), x.begin());
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i);
    rate[0] = 1e-2f / static_cast<float>(number + 1);
  }
  Loader::Fill fill() const {
    return [this](int64_t number, const Loader::Batch& batch) {
      fill(number, batch.input<float>(net.x), batch.input<int32_t>(net.labels), batch.input<float>(net.rate));
    };
  }
  void run_by_hand(int64_t number) {
    fill(number, session->input<float>(net.x), session->input<int32_t>(net.labels),
         session->input<float>(net.rate));
    session->run();
  }
  float loss() { return session->output<float>(net.loss)[0]; }
  uint64_t checksum() const { return variables.checksum(net.parameters); }
};

TEST(Loader, GivesTheBitsOfAsManyRunsByHand) {
  CpuDevice cpu;
  Fed by_hand(cpu, PlanMode::kDynamic, false);
  std::vector<float> losses;
  for (int64_t i = 0; i < 12; ++i) {
    by_hand.run_by_hand(i);
    losses.push_back(by_hand.loss());
  }
  for (const PlanMode mode : kPlanModes) {
    for (const int64_t depth : {2, 5}) {
      SimulatedGpu gpu(find_profile("h200"));
      gpu.streams().check_waits();
      Fed fed(gpu, mode, true);
      Loader loader(*fed.session, fed.fill(), depth);
      for (const auto& [first, end] : {std::pair<int64_t, int64_t>{0, 5}, {5, 12}}) {
        loader.begin(first, end);
        for (int64_t i = first; i < end; ++i) {
          loader.run();
          EXPECT_EQ(fed.loss(), losses[static_cast<size_t>(i)]) << to_string(mode) << " " << i;
        }
      }
      EXPECT_EQ(fed.checksum(), by_hand.checksum()) << to_string(mode);
      EXPECT_THROW(loader.run(), InvalidArgument);
    }
  }
}

TEST(Loader, ManyBatchesInOneRunGiveTheSameBits) {
  CpuDevice cpu;
  Fed by_hand(cpu, PlanMode::kDynamic, false);
  for (int64_t i = 0; i < 12; ++i) by_hand.run_by_hand(i);
  for (const PlanMode mode : kPlanModes) {
    DeviceProfile slow = find_profile("h200");
    slow.kernel_us = 10;
    slow.copy_bytes_per_us = 20;
    SimulatedGpu gpu(slow);
    gpu.streams().check_waits();
    Fed fed(gpu, mode, true);
    Loader loader(*fed.session, fed.fill(), 3);
    loader.begin(0, 12);
    for (int64_t steps : {1, 4, 7}) loader.run(steps);
    EXPECT_EQ(fed.loss(), by_hand.loss()) << to_string(mode);
    EXPECT_EQ(fed.checksum(), by_hand.checksum()) << to_string(mode);
    EXPECT_THROW(loader.run(), InvalidArgument);
  }
}

TEST(Loader, AFailureInTheMiddleOfARunLeavesTheBatchesBeforeItDone) {
  SimulatedGpu gpu(find_profile("h200"));
  Fed fed(gpu, PlanMode::kPacked, true);
  const Loader::Fill fill = fed.fill();
  Loader loader(
      *fed.session,
      [&](int64_t number, const Loader::Batch& batch) {
        if (number == 3) throw InvalidArgument("file of batch 3 is broken");
        fill(number, batch);
      },
      2);
  loader.begin(0, 10);
  EXPECT_THROW(loader.run(11), InvalidArgument);
  EXPECT_THROW(loader.run(6), InvalidArgument);
  EXPECT_EQ(read<int32_t>(fed.variables, fed.net.step)[0], 3);
  loader.begin(4, 6);
  loader.run(2);
  EXPECT_EQ(read<int32_t>(fed.variables, fed.net.step)[0], 5);
}

TEST(Loader, ASessionWithDoubledInputsRunsByHandToo) {
  CpuDevice cpu;
  Fed plain(cpu, PlanMode::kPacked, false), doubled(cpu, PlanMode::kPacked, true);
  for (int64_t i = 0; i < 3; ++i) {
    plain.run_by_hand(i);
    doubled.run_by_hand(i);
  }
  doubled.session->run(40);
  plain.session->run(40);
  EXPECT_EQ(doubled.checksum(), plain.checksum());
}

TEST(Loader, AFailureToFillComesOutAtTheStepThatNeedsTheBatch) {
  CpuDevice cpu;
  Fed fed(cpu, PlanMode::kPacked, true);
  const Loader::Fill fill = fed.fill();
  Loader loader(
      *fed.session,
      [&](int64_t number, const Loader::Batch& batch) {
        if (number == 3) throw InvalidArgument("file of batch 3 is broken");
        fill(number, batch);
      },
      4);
  loader.begin(0, 10);
  for (int i = 0; i < 3; ++i) loader.run();
  for (int i = 0; i < 2; ++i) {
    try {
      loader.run();
      ADD_FAILURE() << "the failure is lost";
    } catch (const InvalidArgument& error) {
      EXPECT_STREQ(error.what(), "file of batch 3 is broken");
    }
  }
  EXPECT_EQ(read<int32_t>(fed.variables, fed.net.step)[0], 3);
  loader.begin(4, 6);
  loader.run();
  loader.run();
  EXPECT_EQ(read<int32_t>(fed.variables, fed.net.step)[0], 5);
}

TEST(Loader, ABatchWhoseRunFailsComesAgain) {
  CpuDevice cpu;
  Fed by_hand(cpu, PlanMode::kDynamic, false);
  for (int64_t i = 0; i < 4; ++i) by_hand.run_by_hand(i);
  FaultyDevice faulty(cpu);
  Fed fed(faulty, PlanMode::kDynamic, true);
  Loader loader(*fed.session, fed.fill(), 2);
  loader.begin(0, 4);
  int failures = 0;
  for (int64_t done = 0; done < 4;) {
    // Half of the driver's calls are the loader's; whichever fails, nothing is lost but time.
    if (failures < 20) faulty.faults().arm({.failing_call = 1 + failures});
    try {
      loader.run();
      ++done;
    } catch (const Error&) {
      ++failures;
      faulty.faults().arm({});
      if (read<int32_t>(fed.variables, fed.net.step)[0] != done) ADD_FAILURE() << "half a step";
      loader.begin(done, 4);
    }
  }
  EXPECT_GT(failures, 0);
  EXPECT_EQ(fed.checksum(), by_hand.checksum());
}

TEST(Loader, HoldsNoMoreThanItsDepthAndEndsInTheMiddle) {
  CpuDevice cpu;
  Fed fed(cpu, PlanMode::kPacked, true);
  const Loader::Fill fill = fed.fill();
  std::atomic<int64_t> done = 0, furthest = 0;
  {
    Loader loader(
        *fed.session,
        [&](int64_t number, const Loader::Batch& batch) {
          furthest = std::max<int64_t>(furthest, number - done);
          fill(number, batch);
        },
        3);
    loader.begin(0, 1000000);
    for (int i = 0; i < 10; ++i) {
      loader.run();
      ++done;
    }
  }
  // `done` is counted after the loader knows.
  EXPECT_LE(furthest, 3);
  EXPECT_EQ(read<int32_t>(fed.variables, fed.net.step)[0], 10);
}

TEST(Loader, RefusesWhatCannotBeFed) {
  CpuDevice cpu;
  Fed plain(cpu, PlanMode::kPacked, false), doubled(cpu, PlanMode::kPacked, true);
  EXPECT_THROW(Loader(*plain.session, plain.fill(), 2), InvalidArgument);
  EXPECT_THROW(Loader(*doubled.session, doubled.fill(), 1), InvalidArgument);
  Loader loader(*doubled.session, doubled.fill(), 2);
  EXPECT_THROW(loader.begin(3, 2), InvalidArgument);
  EXPECT_THROW(loader.run(), InvalidArgument);
}

TEST_F(CudaTest, ALoaderGivesTheBitsOfAsManyRunsByHand) {
  const std::unique_ptr<Device> gpu = make_cuda_device({});
  gpu->initialize();
  for (const PlanMode mode : kPlanModes) {
    Fed by_hand(*gpu, mode, false), fed(*gpu, mode, true);
    Loader loader(*fed.session, fed.fill(), 3);
    loader.begin(0, 200);
    for (int64_t i = 0; i < 200;) {
      const int64_t steps = i < 10 ? 1 : 38;
      loader.run(steps);
      for (const int64_t end = i + steps; i < end; ++i) by_hand.run_by_hand(i);
      EXPECT_EQ(fed.loss(), by_hand.loss()) << to_string(mode) << " " << i;
    }
    EXPECT_EQ(fed.checksum(), by_hand.checksum()) << to_string(mode);
  }
}

// Runs by hand on one thread, so that the clock shows it: the copy of each batch is queued before the work of
// the one before.
TEST(DoubledInputs, OverlapCopiesWithWork) {
  DeviceProfile profile = find_profile("h200");
  profile.kernel_us = 10;
  profile.copy_bytes_per_us = 20;
  SimulatedGpu gpu(profile);
  Fed fed(gpu, PlanMode::kPacked, true);
  HostBuffer host(gpu.memory(), fed.session->plan().input_set_bytes);
  const double copy_us = static_cast<double>(host.size()) / profile.copy_bytes_per_us;
  const Stream copies = gpu.streams().new_stream();
  const auto copy = [&](int number) {
    gpu.memory().copy_to_device(fed.session->input_set(number % 2), host.data(),
                                static_cast<int64_t>(host.size()), copies);
    return gpu.streams().record_event(copies);
  };
  fed.session->run_on_set(0, *copy(0));
  const double begin_us = gpu.streams().now_us();
  fed.session->run_on_set(0, *gpu.streams().record_event(copies));
  const double step_us = gpu.streams().now_us() - begin_us;
  ASSERT_GT(step_us, copy_us);
  const double start_us = gpu.streams().now_us();
  std::unique_ptr<Event> arrival = copy(0);
  for (int i = 0; i < 10; ++i) {
    std::unique_ptr<Event> next = i < 9 ? copy(i + 1) : nullptr;
    fed.session->run_on_set(i % 2, *arrival);
    arrival = std::move(next);
  }
  EXPECT_NEAR(gpu.streams().now_us() - start_us, copy_us + 10 * step_us, 1e-6);
}

}  // namespace
}  // namespace headroom
