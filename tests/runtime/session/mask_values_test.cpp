#include "runtime/session/mask_values.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "kernels/attention_tiles.h"
#include "runtime/session/node_timer.h"
#include "tests/runtime/session/harness.h"

namespace headroom {
namespace {

constexpr int64_t kWords = 128;

// Attention over 128 words whose mask is the variable `hidden` times `factor`, and its gradient.
struct MaskedNet {
  Graph graph;
  Value factor, hidden, x, mask, tiles;

  explicit MaskedNet(Value (*make_factor)(Graph&)) {
    factor = make_factor(graph);
    hidden = graph.variable("hidden", {DType::kF32, {kWords, kWords}}, given([] {
                              std::vector<float> causal(kWords * kWords);
                              for (size_t i = 0; i < causal.size(); ++i)
                                causal[i] = i % kWords > i / kWords ? 1 : 0;
                              std::vector<std::byte> bytes(4 * causal.size());
                              std::memcpy(bytes.data(), causal.data(), bytes.size());
                              return bytes;
                            }));
    x = graph.input("x", {DType::kF32, {1, kWords, 2, 16}});
    mask = reshape(mul(hidden, factor), {1, 1, kWords, kWords});
    tiles = graph.add(MaskTiles{{1, 2, kWords, kWords}}, std::vector{mask})[0];
    graph.add(Attention{}, std::vector{x, x, x, mask, tiles});
  }
};

Value variable_factor(Graph& graph) {
  return graph.variable("factor", {DType::kF32, {}}, constant_of(-1e30f));
}

TEST(MaskValues, ComputesAMaskThatFollowsFromConstants) {
  MaskedNet net(variable_factor);
  CpuHarness cpu;
  const Kernels kernels(net.graph, cpu.device, *cpu.allocator);
  const int64_t before = cpu.device.memory().info().process;
  {
    MaskValues masks(net.graph, kernels, cpu.device);
    EXPECT_FALSE(masks.contains(net.x.id));
    ASSERT_TRUE(masks.contains(net.mask.id) && masks.contains(net.tiles.id));
    EXPECT_EQ(masks.data(net.mask.id), nullptr);
    ASSERT_TRUE(masks.compute());
    EXPECT_EQ(cpu.device.memory().info().process, before + masks.bytes());
    const auto* mask = reinterpret_cast<const float*>(masks.data(net.mask.id));
    EXPECT_EQ(mask[5 * kWords + 5], 0);
    EXPECT_EQ(mask[5 * kWords + 6], -1e30f);
    const auto* tiles = reinterpret_cast<const MaskTile*>(masks.data(net.tiles.id));
    EXPECT_EQ(tiles[0], MaskTile::kMixed);
    EXPECT_EQ(tiles[1], MaskTile::kHidden);
  }
  EXPECT_EQ(cpu.device.memory().info().process, before);
  EXPECT_TRUE(NodeTimer(cpu.device).times_us(net.graph, kernels, std::numeric_limits<int64_t>::max()));
}

TEST(MaskValues, LeaveOutAMaskOfTheInput) {
  MaskedNet net([](Graph& graph) { return graph.input("factor", {DType::kF32, {}}); });
  CpuHarness cpu;
  const Kernels kernels(net.graph, cpu.device, *cpu.allocator);
  MaskValues masks(net.graph, kernels, cpu.device);
  EXPECT_FALSE(masks.contains(net.mask.id));
  EXPECT_EQ(masks.bytes(), 0);
  EXPECT_TRUE(masks.compute());
}

TEST(MaskValues, LeaveOutAMaskThatTrains) {
  MaskedNet net(variable_factor);
  const Value rate = net.graph.input("rate", {DType::kF32, {}});
  net.graph.add(SgdUpdate{}, std::vector{rate, net.factor, net.factor});
  CpuHarness cpu;
  const Kernels kernels(net.graph, cpu.device, *cpu.allocator);
  EXPECT_FALSE(MaskValues(net.graph, kernels, cpu.device).contains(net.mask.id));
}

}  // namespace
}  // namespace headroom
