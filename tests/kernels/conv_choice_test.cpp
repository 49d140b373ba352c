// Tests the tiling of convolution kernels for an H200, by arithmetic only.
#include "kernels/cuda/conv/conv_choice.h"

#include <gtest/gtest.h>

namespace headroom::cuda {
namespace {

constexpr int kMultiprocessors = 132;
constexpr int64_t kSharedLimit = 227 << 10;

// The conv net's second and third layer.
ConvGeometry pooled_layer(int batch) {
  return {.batch = batch,
          .height = 13,
          .width = 13,
          .channels = 32,
          .kernel_h = 3,
          .kernel_w = 3,
          .pad_h = 0,
          .pad_w = 0,
          .conv_h = 11,
          .conv_w = 11,
          .filters = 64,
          .out_h = 5,
          .out_w = 5,
          .unit = 2};
}
ConvGeometry plain_layer(int batch) {
  return {.batch = batch,
          .height = 5,
          .width = 5,
          .channels = 64,
          .kernel_h = 3,
          .kernel_w = 3,
          .pad_h = 0,
          .pad_w = 0,
          .conv_h = 3,
          .conv_w = 3,
          .filters = 64,
          .out_h = 3,
          .out_w = 3,
          .unit = 1};
}

GpuShare gpu(int replicas = 1) {
  return {.multiprocessors = kMultiprocessors, .shared_limit_bytes = kSharedLimit, .replicas = replicas};
}

TEST(ConvChoice, GradientsOfAShortLayerShareTheGpuAndThoseOfALongOneTakeAllOfIt) {
  for (const auto layer : {pooled_layer, plain_layer}) {
    const GradientTiles brief = choose_gradients(layer(64), Math::kTf32, gpu());
    ASSERT_TRUE(brief.input && brief.filter);
    EXPECT_EQ(brief.input->multiprocessors, kMultiprocessors / 2);
    EXPECT_EQ(brief.filter->choice.multiprocessors, kMultiprocessors / 2);
    const GradientTiles extended = choose_gradients(layer(4096), Math::kTf32, gpu());
    EXPECT_EQ(extended.input->multiprocessors, kMultiprocessors);
    EXPECT_EQ(extended.filter->choice.multiprocessors, kMultiprocessors);
  }
}

TEST(ConvChoice, ReplicasOnOneGpuShareItWhileTheirKernelsAreShort) {
  EXPECT_EQ(choose_forward(pooled_layer(256), Math::kTf32, gpu(2))->multiprocessors, kMultiprocessors / 2);
  EXPECT_EQ(choose_forward(pooled_layer(256), Math::kTf32, gpu())->multiprocessors, kMultiprocessors);
  EXPECT_EQ(choose_forward(pooled_layer(2048), Math::kTf32, gpu(2))->multiprocessors, kMultiprocessors);
  const GradientTiles shared = choose_gradients(pooled_layer(32), Math::kTf32, gpu(2));
  EXPECT_EQ(shared.input->multiprocessors, kMultiprocessors / 4);
  EXPECT_EQ(shared.filter->choice.multiprocessors, kMultiprocessors / 4);
}

TEST(ConvChoice, EveryChoiceFitsAndCoversTheBatch) {
  for (const Math math : {Math::kF32, Math::kTf32, Math::kBf16, Math::kF16}) {
    for (const auto layer : {pooled_layer, plain_layer}) {
      for (const int batch : {1, 7, 64, 1000}) {
        for (const int replicas : {1, 2, 8, 1000}) {
          const ConvGeometry g = layer(batch);
          const std::optional<TileChoice> forward = choose_forward(g, math, gpu(replicas));
          const GradientTiles gradients = choose_gradients(g, math, gpu(replicas));
          ASSERT_TRUE(forward && gradients.input && gradients.filter);
          for (const TileChoice& choice : {*forward, *gradients.input, gradients.filter->choice}) {
            EXPECT_LE(choice.cost.shared_bytes, kSharedLimit);
            EXPECT_GE(choice.multiprocessors, 1);
            EXPECT_LE(choice.warps * 32, 512);
            const ConvTile& tile = choice.tile;
            EXPECT_TRUE(tile.images == 1 ? tile.tiles == batch * tile.tiles_per_image
                                         : tile.tiles * tile.images >= batch);
          }
          const FilterGradTile& filter = *gradients.filter;
          EXPECT_EQ(filter.positions % kPositionsOfStep, 0);
          EXPECT_GE(filter.slices * kMaxFilterGradWarps, filter.warp_rows);
        }
      }
    }
  }
}

TEST(ConvChoice, RefusesChannelsThatFillNoStep) {
  ConvGeometry g = pooled_layer(64);
  g.channels = 24;
  EXPECT_FALSE(choose_forward(g, Math::kTf32, gpu()));
  EXPECT_FALSE(choose_gradients(g, Math::kTf32, gpu()).filter);
  EXPECT_FALSE(choose_gradients(g, Math::kTf32, gpu(2)).filter);
  g = pooled_layer(64);
  g.filters = 24;
  EXPECT_FALSE(choose_gradients(g, Math::kTf32, gpu()).input);
}

}  // namespace
}  // namespace headroom::cuda
