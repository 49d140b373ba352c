// Several devices of one runtime.

#include "runtime/app/runtime.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>

#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RuntimeDevices, VirtualDevicesShareTheCardAndKeepTheirOwnLimits) {
  Runtime runtime({.device = "sim:h200", .strategy = "direct", .virtual_devices = "0:8MiB,4MiB"});
  Device& first = runtime.device("/GPU:0");
  EXPECT_EQ(&runtime.device("/GPU:1"), &first);
  Allocator& small = runtime.allocator("/device:GPU:1");
  Allocator& large = runtime.allocator("gpu:0");
  EXPECT_NE(&small, &large);
  const int64_t context = first.memory().info().process;
  void* block = small.allocate(4 * kMiB);
  EXPECT_EQ(first.memory().info().process, context + 4 * kMiB);
  EXPECT_THROW(small.allocate(2 * kMiB), OutOfMemory);
  void* other = large.allocate(8 * kMiB);  // does not include the first one's memory
  EXPECT_EQ(runtime.memory_info().process, context + 12 * kMiB);
  small.deallocate(block, 4 * kMiB);
  large.deallocate(other, 8 * kMiB);
}

TEST(RuntimeDevices, AreMadeAtFirstUse) {
  // GPUs 2 and 3 are full: no context fits there.
  Runtime runtime({.device = "sim:four-2080ti", .others_by_gpu = "2:11019MiB/3:11019MiB"});
  EXPECT_EQ(runtime.devices().logical.size(), 4u);
  EXPECT_FALSE(runtime.initialized());
  EXPECT_NO_THROW(runtime.device("/GPU:1"));
  try {
    runtime.device("/GPU:2");
    FAIL() << "a context without room";
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(),
                 "failed initializing StreamExecutor for CUDA device ordinal 2: Internal: failed call to "
                 "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: "
                 "11554717696");
  }
  EXPECT_EQ(runtime.device("/CPU:0").name(), "/device:CPU:0");
}

TEST(RuntimeDevices, OptionsCountGpusAsTheProgramDoes) {
  Runtime runtime({.device = "sim:four-2080ti:1", .visible_devices = "3,2"});
  EXPECT_EQ(runtime.device().name(), "/device:GPU:1");
  EXPECT_EQ(&runtime.device(), &runtime.device("/GPU:1"));
  EXPECT_EQ(runtime.devices().find({DeviceType::kGpu, 1}).physical, 2);
  EXPECT_NE(refusal_of([] {
              Runtime({.device = "sim:four-2080ti:2", .visible_devices = "3,2"});
            }).find("(visible-devices=3,2)"),
            std::string::npos);
}

TEST(RuntimeDevices, NothingCanChangeAfterInitialization) {
  Runtime runtime({.device = "sim:four-2080ti"});
  const int both[] = {1, 2};
  const int64_t limits[] = {kGiB, kGiB};
  runtime.set_visible_devices(both);
  runtime.set_virtual_devices(2, limits);
  EXPECT_EQ(count_line(runtime.devices()), "4 Physical GPU, 3 Logical GPUs");
  runtime.device("/GPU:2");
  for (const auto& change : std::vector<std::function<void()>>{
           [&] { runtime.set_visible_devices(both); }, [&] { runtime.set_virtual_devices(2, limits); },
           [&] { runtime.set_memory_growth(1, true); }}) {
    const std::string message = refusal_of(change);
    EXPECT_NE(message.find("must be set before"), std::string::npos) << message;
    EXPECT_NE(message.find("runtime_test.cpp:"), std::string::npos) << message;
  }
}

TEST(RuntimeDevices, ARefusedChangeChangesNothing) {
  Runtime runtime({.device = "sim:four-2080ti"});
  const int wrong[] = {1, 7};
  EXPECT_NE(refusal_of([&] { runtime.set_visible_devices(wrong); }), "accepted");
  const int64_t limits[] = {kGiB};
  EXPECT_NE(refusal_of([&] { runtime.set_virtual_devices(4, limits); }), "accepted");
  EXPECT_EQ(count_line(runtime.devices()), "4 Physical GPUs, 4 Logical GPUs");
  EXPECT_EQ(runtime.device("/GPU:3").name(), "/device:GPU:3");
}

TEST(RuntimeDevices, GrowthMustBeTheSameOnAllVisibleGpus) {
  Runtime runtime({.device = "sim:four-2080ti", .strategy = "grab-all"});
  runtime.set_memory_growth(0, true);
  EXPECT_TRUE(refusal_of([&] {
                runtime.device();
              }).starts_with("Memory growth cannot differ between GPU devices: it is true on GPU 0"));
  const int two[] = {0, 3};
  runtime.set_visible_devices(two);
  runtime.set_memory_growth(3, true);
  EXPECT_LT(runtime.allocator().statistics().reserved.current, kGiB);  // it grows
  EXPECT_NE(refusal_of([] {
              Runtime cut({.device = "sim", .virtual_devices = "0:64MiB"});
              cut.set_memory_growth(0, true);
            }).find("Cannot set memory growth on device when virtual devices configured"),
            std::string::npos);
}

TEST(RuntimeDevices, TheCurrentDeviceHidesNoOther) {
  Runtime runtime({.device = "sim:four-2080ti"});
  EXPECT_FALSE(runtime.initialized());
  runtime.set_current_device("/GPU:2");
  EXPECT_EQ(runtime.current_device(), (DeviceName{DeviceType::kGpu, 2}));
  EXPECT_EQ(runtime.devices().logical.size(), 4u);
  EXPECT_EQ(runtime.available_devices().size(), 5u);
  EXPECT_EQ(runtime.available_devices().front(), runtime.current_device());
  EXPECT_EQ(&runtime.device(), &runtime.device("/GPU:2"));
  EXPECT_TRUE(refusal_of([&] {
                runtime.set_current_device("/GPU:4");
              }).starts_with("CUDA error: invalid device ordinal: no device /device:GPU:4, but available"));
  EXPECT_EQ(runtime.current_device().ordinal, 2) << "what is refused changes nothing";
  runtime.set_current_device("cpu");
  EXPECT_EQ(runtime.device().name(), "/device:CPU:0");
}

// The host then has no file for the pages of its own memory or of a simulated GPU.
class FilesAreLimited {
 public:
  FilesAreLimited() {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limited{.rlim_cur = rlim_t{1} << 30, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FilesAreLimited() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

TEST(RuntimeDevices, WithoutVirtualMemoryTheDefaultStrategyGrowsAndSaysSo) {
  for (const char* device : {"cpu", "sim", "sim:four-2080ti:1"}) {
    EXPECT_EQ(Runtime({.device = device}).strategy().name, "mapped") << device;
    const FilesAreLimited limited;
    Runtime runtime({.device = device, .memory_fraction = 0.5});
    EXPECT_EQ(runtime.strategy().name, "allow-growth") << device;
    EXPECT_EQ(runtime.setup().options.strategy, "allow-growth") << device;
    EXPECT_EQ(runtime.allocator().name(), "allow-growth") << device;
    runtime.allocator().deallocate(runtime.allocator().allocate(kMiB), kMiB);
  }
}

TEST(RuntimeDevices, WithoutVirtualMemoryAGivenStrategyThatNeedsItIsRefused) {
  const FilesAreLimited limited;
  Runtime asked({.device = "sim", .strategy = "mapped", .strategy_is_given = true});
  EXPECT_NE(refusal_of([&] { asked.device(); }).find("needs virtual memory"), std::string::npos);
  Runtime set({.device = "sim"});
  set.set_strategy({.name = "mapped"});
  EXPECT_NE(refusal_of([&] { set.device(); }).find("needs virtual memory"), std::string::npos);
  Runtime direct({.device = "sim", .strategy = "direct"});
  EXPECT_EQ(direct.allocator().name(), "direct");
}

TEST(RuntimeDevices, TheCpuHasNoGpus) {
  EXPECT_NE(refusal_of([] { Runtime({.device = "cpu", .visible_devices = "0"}); }), "accepted");
  EXPECT_NE(refusal_of([] { Runtime({.device = "cpu", .gpus = 2}); }), "accepted");
  Runtime runtime({.device = "cpu"});
  EXPECT_EQ(runtime.device("/device:CPU:0").name(), "/device:CPU:0");
  EXPECT_NE(refusal_of([&] { runtime.device("/GPU:0"); }), "accepted");
}

}  // namespace
}  // namespace headroom
