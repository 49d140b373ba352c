#include "kernels/cuda/conv/conv_choice.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/bytes.h"

namespace headroom::cuda {
namespace {

// Maximum time of concurrent kernels on shares of a GPU, relative to their time in sequence on all of it. On
// an H200 the conv net's step at batch 64 and 128 gains 10 % if its gradients share, and with bf16 at batch
// 512 loses 6 % if the threshold is 0.95; two replicas lose 5 % more at 1024 if it is 0.9, and 11 % more at
// 2048 if it is 0.97.
constexpr double kGradientsShare = 0.9, kReplicasShare = 0.95;

std::optional<TileChoice> forward_on(const ConvGeometry& g, Math math, int multiprocessors,
                                     int64_t shared_limit_bytes) {
  if (g.channels % kTermsOfChunk != 0) return {};
  const int64_t terms = int64_t{g.kernel_h} * g.kernel_w * g.channels, of_word = terms_of_word(math);
  const auto cost_of = [&](ConvTile& tile, int filters, int warps) {
    tile.patch_h = tile.rows * g.unit - 1 + g.kernel_h;
    tile.patch_w = g.width + 2 * g.pad_w;
    const int64_t pixels = int64_t{tile.images} * tile.patch_h * tile.patch_w;
    const int64_t positions = int64_t{tile.images} * tile.rows * g.out_w * g.unit * g.unit;
    const ProductShape product{(positions + kRowsOfGroup - 1) / kRowsOfGroup, filters, terms / of_word};
    TileCost cost = cost_of_product(product, warps);
    const int64_t shares = share_words(product.groups, cost.parts, filters);
    cost.shared_bytes = (filters * (terms / of_word + kForwardPadding) +
                         std::max(pixels * (g.channels / of_word + kForwardPadding), shares)) *
                        4;
    if (warps * 32 > max_threads(filters)) cost.shared_bytes = INT64_MAX;
    cost.fixed_bytes = terms * filters * 4;
    cost.tile_bytes = pixels * g.channels * 4;
    cost.work = int64_t{tile.tiles} * (g.filters / filters);
    return cost;
  };
  return choose_tile(g.batch, g.out_h, g.filters, {8, 12, 16}, multiprocessors, shared_limit_bytes, cost_of);
}

std::optional<TileChoice> input_grad_on(const ConvGeometry& g, Math math, int multiprocessors,
                                        int64_t shared_limit_bytes) {
  if (g.filters % kTermsOfChunk != 0) return {};
  const int64_t taps = int64_t{g.kernel_h} * g.kernel_w, of_word = terms_of_word(math);
  const auto cost_of = [&](ConvTile& tile, int channels, int warps) {
    tile.patch_h = tile.rows + g.kernel_h - 1;
    tile.patch_w = g.width + g.kernel_w - 1;
    const int64_t pixels = int64_t{tile.images} * tile.patch_h * tile.patch_w;
    const int64_t positions = int64_t{tile.images} * tile.rows * g.width;
    const int64_t pitch = g.filters / of_word + kInputGradPadding;
    const ProductShape product{(positions + kRowsOfGroup - 1) / kRowsOfGroup, channels,
                               taps * g.filters / of_word};
    TileCost cost = cost_of_product(product, warps);
    const int64_t shares = share_words(product.groups, cost.parts, channels);
    cost.shared_bytes = (taps * channels * pitch + std::max(pixels * pitch, shares)) * 4;
    if (warps * 32 > max_threads(channels)) cost.shared_bytes = INT64_MAX;
    cost.fixed_bytes = taps * channels * g.filters * 4;
    cost.tile_bytes = pixels * g.filters * 2;  // half of it is zeros
    cost.work = int64_t{tile.tiles} * (g.channels / channels);
    return cost;
  };
  return choose_tile(g.batch, g.height, g.channels, {8, 12, 16}, multiprocessors, shared_limit_bytes,
                     cost_of);
}

std::optional<FilterGradTile> filter_grad_on(const ConvGeometry& g, int multiprocessors,
                                             int64_t shared_limit_bytes) {
  if (g.channels % 16 != 0 || g.filters % 16 != 0) return {};
  FilterGradTile best;
  best.filters = g.filters % 64 == 0 ? 64 : g.filters % 32 == 0 ? 32 : 16;
  best.warp_rows = (g.kernel_h * g.kernel_w * g.channels + kRowsOfWarp - 1) / kRowsOfWarp;
  const auto extents = [&](ConvTile& tile) {
    tile.patch_h = tile.rows + g.kernel_h - 1;
    tile.patch_w = g.width + 2 * g.pad_w;
    const int positions = static_cast<int>(round_up(int64_t{tile.rows} * tile.patch_w, kPositionsOfStep));
    return std::pair(positions, positions + (g.kernel_h - 1) * tile.patch_w + g.kernel_w - 1);
  };
  // The fewest slices that fit: each loads x and dy again, and next to the other gradients of a step the work
  // matters more than this kernel's own time.
  const auto slices_of = [&](int pieces) { return (best.warp_rows + pieces - 1) / pieces; };
  for (int pieces = std::min(kMaxFilterGradWarps, best.warp_rows); pieces >= 1 && best.slices == 0;
       --pieces) {
    if (best.warp_rows % pieces != 0 && pieces != kMaxFilterGradWarps) continue;
    for (int parts = 1; parts * pieces <= kMaxFilterGradWarps; ++parts) {
      const int warps = pieces * parts;
      const auto cost_of = [&](ConvTile& tile, int, int) {
        const auto [positions, pixels] = extents(tile);
        TileCost cost;
        const int64_t image_words = int64_t{pixels} * (g.channels + kFilterGradPadding) +
                                    int64_t{positions} * (best.filters + kFilterGradPadding);
        cost.shared_bytes = std::max({image_words * tile.images, share_words(pieces, parts, best.filters),
                                      int64_t{warps} * 32 * 4}) *
                            4;
        const bool cuts_window = tile.rows % g.unit != 0 && tile.tiles_per_image > 1;
        if (cuts_window) cost.shared_bytes = INT64_MAX;
        cost.tile_bytes = int64_t{tile.images} * (pixels * g.channels * 4 + positions * best.filters * 2);
        cost.work = int64_t{tile.tiles} * slices_of(pieces) * (g.filters / best.filters);
        const int64_t steps = int64_t{tile.images} * positions / 8, column_tiles = best.filters / 8;
        cost.tile_clocks = std::max((steps + parts - 1) / parts * (50 + 5 * column_tiles),
                                    pieces * steps * (8 + 2 * column_tiles));
        cost.fixed_bytes = cost.after_bytes = int64_t{pieces} * kRowsOfWarp * best.filters * 4;  // its sums
        cost.parts = parts;
        return cost;
      };
      const std::optional<TileChoice> choice =
          choose_tile(g.batch, g.out_h * g.unit, 16, {warps}, multiprocessors, shared_limit_bytes, cost_of);
      if (!choice || (best.slices > 0 && best.choice.clocks <= choice->clocks)) continue;
      best.choice = *choice;
      best.slices = slices_of(pieces);
    }
  }
  if (best.slices == 0) return {};
  std::tie(best.positions, best.pixels) = extents(best.choice.tile);
  return best;
}

}  // namespace

std::optional<TileChoice> choose_forward(const ConvGeometry& g, Math math, const GpuShare& gpu) {
  const std::optional<TileChoice> all = forward_on(g, math, gpu.multiprocessors, gpu.shared_limit_bytes);
  if (!all || gpu.replicas == 1) return all;
  const std::optional<TileChoice> share =
      forward_on(g, math, std::max(1, gpu.multiprocessors / gpu.replicas), gpu.shared_limit_bytes);
  const double in_turn = static_cast<double>(all->clocks) * gpu.replicas;
  return share && static_cast<double>(share->clocks) < in_turn * kReplicasShare ? share : all;
}

GradientTiles choose_gradients(const ConvGeometry& g, Math math, const GpuShare& gpu) {
  const auto on_share = [&](int shares) {
    const int multiprocessors = std::max(1, gpu.multiprocessors / shares);
    return GradientTiles{input_grad_on(g, math, multiprocessors, gpu.shared_limit_bytes),
                         filter_grad_on(g, multiprocessors, gpu.shared_limit_bytes)};
  };
  GradientTiles best = on_share(1);
  const auto clocks = [](const GradientTiles& tiles) {
    return std::pair<double, double>(tiles.input ? tiles.input->clocks : 0,
                                     tiles.filter ? tiles.filter->choice.clocks : 0);
  };
  const auto [input_alone, filter_alone] = clocks(best);
  double least = (input_alone + filter_alone) * gpu.replicas;  // time of all kernels in sequence
  const auto consider = [&](GradientTiles tiles, double time, double share) {
    if (time >= least * share) return;
    best = std::move(tiles);
    least = time;
  };
  if (gpu.replicas > 1) {
    GradientTiles tiles = on_share(gpu.replicas);
    const auto [input, filter] = clocks(tiles);
    consider(std::move(tiles), input + filter, kReplicasShare);
  }
  if (best.input && best.filter) {
    GradientTiles tiles = on_share(2 * gpu.replicas);
    const auto [input, filter] = clocks(tiles);
    consider(std::move(tiles), std::max(input, filter), kGradientsShare);
  }
  return best;
}

}  // namespace headroom::cuda
