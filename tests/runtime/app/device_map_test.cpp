#include "runtime/app/device_map.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

std::vector<PhysicalGpu> four(const char* cuda_visible_devices = nullptr,
                              const std::vector<GpuSizes>& others = {}) {
  return simulated_gpus(find_profile("four-2080ti"), others, cuda_visible_devices);
}

// Positions of the GPUs named /GPU:0, /GPU:1, ...
std::vector<int> order(const DeviceMap& map) {
  std::vector<int> positions;
  for (const LogicalGpu& gpu : map.logical) positions.push_back(gpu.physical);
  return positions;
}

TEST(DeviceMap, VisibleGpusAreRenumberedInTheGivenOrder) {
  EXPECT_EQ(order(make_device_map(four(), std::nullopt, {})), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(order(make_device_map(four(), std::vector{1, 2}, {})), (std::vector<int>{1, 2}));
  EXPECT_EQ(order(make_device_map(four(), std::vector{3, 0}, {})), (std::vector<int>{3, 0}));
  EXPECT_TRUE(order(make_device_map(four(), std::vector<int>{}, {})).empty());
}

TEST(DeviceMap, TheMappingIsPrintedAsTensorFlowDoes) {
  const std::vector<std::string> expected = {
      "/device:GPU:0 -> device: 1, name: GeForce RTX 2080 Ti, pci bus id: 0000:02:00.0, compute capability: "
      "7.5",
      "/device:GPU:1 -> device: 2, name: GeForce RTX 2080 Ti, pci bus id: 0000:03:00.0, compute capability: "
      "7.5"};
  EXPECT_EQ(mapping_lines(make_device_map(four(), std::vector{1, 2}, {})), expected);
  EXPECT_EQ(mapping_lines(make_device_map(four("1,2"), std::nullopt, {})), expected);
  PhysicalGpu real;
  real.ordinal = 0;
  real.name = "NVIDIA H200";
  real.pci_bus_id = "00000000:AB:00.0";
  real.compute_capability = 90;
  EXPECT_EQ(
      mapping_lines(make_device_map({real}, std::nullopt, {})).at(0),
      "/device:GPU:0 -> device: 0, name: NVIDIA H200, pci bus id: 0000:ab:00.0, compute capability: 9.0");
}

TEST(DeviceMap, CudaVisibleDevicesHidesGpusAsTheDriverDoes) {
  const auto with = [](const char* variable) {
    return order(make_device_map(four(variable), std::nullopt, {}));
  };
  EXPECT_EQ(with("2,1"), (std::vector<int>{2, 1}));
  EXPECT_EQ(with("1,9,2"), (std::vector<int>{1}));  // GPUs after a wrong number are hidden
  EXPECT_TRUE(with("").empty());
  EXPECT_TRUE(with("-1").empty());
  EXPECT_TRUE(with("1,1").empty());
  EXPECT_TRUE(with("NoDevFiles").empty());
  EXPECT_TRUE(with("99999999999999999999").empty());
  // The cases of PyTorch's test of the same rule, which reads elements as strtol does.
  EXPECT_EQ(with("1gpu2,2ampere"), (std::vector<int>{1, 2}));
  EXPECT_EQ(with("0, 1, 2, -1, 3"), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(with("0, 1, 2, 1").empty());
  EXPECT_EQ(with("2, +3, -0, 1"), (std::vector<int>{2, 3, 0, 1}));
  EXPECT_TRUE(with("one,two,3").empty());
  EXPECT_EQ(with("3,two,one"), (std::vector<int>{3}));
  EXPECT_TRUE(with("+-1").empty());
  // Numbers are then CUDA's: the first that it shows is 0.
  EXPECT_EQ(order(make_device_map(four("2,3"), std::vector{1}, {})), (std::vector<int>{3}));
  EXPECT_EQ(simulated_gpus(find_profile("laptop-2gb"), {}, "3").at(0).ordinal, 0);  // there is no choice
}

TEST(DeviceMap, VirtualDevicesReplaceTheirGpuAndAreCounted) {
  const std::vector<GpuSizes> split = {{0, {kGiB, 2 * kGiB}}};
  const DeviceMap map = make_device_map(four("0,1"), std::nullopt, split);
  EXPECT_EQ(order(map), (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(map.logical[0].limit_bytes, kGiB);
  EXPECT_EQ(map.logical[1].limit_bytes, 2 * kGiB);
  EXPECT_EQ(map.logical[2].limit_bytes, std::nullopt);
  EXPECT_EQ(count_line(map), "2 Physical GPU, 3 Logical GPUs");
  EXPECT_EQ(count_line(make_device_map(four(), std::vector{0}, {})), "4 Physical GPUs, 1 Logical GPU");
  const std::vector<GpuSizes> two = {{0, {kGiB, kGiB}}};
  EXPECT_EQ(count_line(make_device_map(four("0"), std::nullopt, two)), "1 Physical GPU, 2 Logical GPUs");
}

TEST(DeviceMap, AnUnknownDeviceListsTheVisibleOnes) {
  const DeviceMap map = make_device_map(four(), std::vector{1, 2}, {});
  EXPECT_EQ(map.find({DeviceType::kGpu, 1}).physical, 2);
  EXPECT_EQ(
      refusal([&] {
        map.find({DeviceType::kGpu, 2});
      }),
      "no device /device:GPU:2, but available devices are [ /job:localhost/replica:0/task:0/device:CPU:0, "
      "/job:localhost/replica:0/task:0/device:GPU:0, /job:localhost/replica:0/task:0/device:GPU:1 ]: 2 of "
      "the "
      "machine's 4 GPUs are visible (visible-devices=1,2)");
  EXPECT_NE(refusal([&] {
              map.find({DeviceType::kCpu, 1});
            }).find("no device /device:CPU:1"),
            std::string::npos);
}

TEST(DeviceMap, RefusesOptionsThatContradictTheMachine) {
  EXPECT_EQ(refusal([] { make_device_map(four(), std::vector{4}, {}); }),
            "'visible_device_list' listed an invalid GPU id '4' but visible device count is 4");
  EXPECT_EQ(refusal([] { make_device_map(four("1"), std::vector{1}, {}); }),
            "'visible_device_list' listed an invalid GPU id '1' but visible device count is 1");
  EXPECT_NE(refusal([] { make_device_map(four(), std::vector{1, 1}, {}); }).find("twice"), std::string::npos);
  const auto cut = [](std::vector<GpuSizes> limits) {
    return refusal([&] { make_device_map(four(), std::vector{0, 1}, limits); });
  };
  EXPECT_NE(cut({{2, {kGiB}}}).find("GPU 2: it is not visible (visible-devices=0,1)"), std::string::npos);
  EXPECT_NE(cut({{0, {6 * kGiB, 6 * kGiB}}}).find("together above its 10.76 GiB"), std::string::npos);
  EXPECT_NE(cut({{0, {kGiB, 0}}}).find("above 0 bytes"), std::string::npos);
  DeviceProfile full = find_profile("four-2080ti");
  full.others_bytes = full.total_bytes + 1;
  EXPECT_NE(refusal([&] { simulated_gpus(full, {}, nullptr); }).find("others cannot hold"),
            std::string::npos);
  EXPECT_NE(refusal([] { four(nullptr, {{4, {kGiB}}}); }).find("GPUs 0 to 3"), std::string::npos);
  EXPECT_NE(refusal([] {
              four(nullptr, {{1, {12 * kGiB}}});
            }).find("others cannot hold 12.00 GiB"),
            std::string::npos);
}

TEST(DeviceMap, ParsesListsOfGpusOrRefusesThemInOneLine) {
  EXPECT_EQ(parse_gpu_sizes("0:1GiB,512MiB/3:1", "x"),
            (std::vector<GpuSizes>{{0, {kGiB, 512 * kMiB}}, {3, {1}}}));
  EXPECT_TRUE(parse_gpu_sizes("", "x").empty());
  EXPECT_EQ(parse_gpu_numbers("2,0", "x"), (std::vector<int>{2, 0}));
  EXPECT_TRUE(parse_gpu_numbers("none", "x").empty());
  for (const char* text :
       {"0", ":1GiB", "a:1GiB", "0:", "0:1GiB,", "0:1GiB/", "-1:1GiB", "0:1GiB/0:1GiB", "0:-1"}) {
    EXPECT_TRUE(refusal([&] { parse_gpu_sizes(text, "x"); }).starts_with("x: ")) << text;
  }
  for (const char* text : {"", "1,", ",1", "-1", "1.0", "99999999999", "1 2"}) {
    EXPECT_TRUE(refusal([&] { parse_gpu_numbers(text, "x"); }).starts_with("x: ")) << text;
  }
}

TEST(DeviceMap, VirtualDevicesRefuseOtherLimits) {
  const std::vector<GpuSizes> split = {{0, {kGiB, 2 * kGiB}}};
  const DeviceMap map = make_device_map(four(), std::nullopt, split);
  const DeviceName second{DeviceType::kGpu, 1}, whole{DeviceType::kGpu, 2};
  EXPECT_EQ(strategy_on(map, second, {.name = "caching"}).limit_bytes, 2 * kGiB);
  EXPECT_EQ(strategy_on(map, whole, {.name = "caching"}).limit_bytes, std::nullopt);
  EXPECT_TRUE(
      refusal([&] {
        strategy_on(map, whole, {.memory_fraction = 0.4});
      }).starts_with("It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set"));
  EXPECT_NE(refusal([&] { strategy_on(map, second, {.limit_bytes = kGiB}); }).find("not both"),
            std::string::npos);
  EXPECT_NE(refusal([&] { strategy_on(map, second, {.limit_scope = LimitScope::kProcess}); }).find("share"),
            std::string::npos);
}

}  // namespace
}  // namespace headroom
