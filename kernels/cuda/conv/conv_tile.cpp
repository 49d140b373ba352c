#include "kernels/cuda/conv/conv_tile.h"

#include <algorithm>
#include <limits>

namespace headroom::cuda {
namespace {

// An H200's: 5.5 TB/s from the second-level cache are some 24 bytes a clock for each multiprocessor.
constexpr int64_t kBytesPerClock = 24;
constexpr int64_t kLatency = 800;         // clocks until the first bytes arrive
constexpr int64_t kMaxResident = 4;       // blocks of a multiprocessor
constexpr int64_t kReservedBytes = 1024;  // shared memory that the system reserves for each block
constexpr int kMaxImages = 16;            // images of a tile
// By how much slower a kernel may be that leaves room for the next: on an H200 the conv net's step at batch
// 64 gains 4 % from one that is 1.13 times as slow.
constexpr double kWorthLeavingRoom = 1.25;

}  // namespace

std::optional<ConvGeometry> geometry_of(const ConvBlock& block, const Shape& x, const Shape& filter) {
  const Conv2d& conv = block.conv;
  if (conv.stride != Pair{1, 1} || conv.dilation != Pair{1, 1} || conv.groups != 1) return {};
  if (block.pool && *block.pool != Pool2d{}) return {};
  const int64_t conv_h = window_output(x[1], filter[0], 1, conv.padding[0], 1);
  const int64_t conv_w = window_output(x[2], filter[1], 1, conv.padding[1], 1);
  const int unit = block.pool ? 2 : 1;
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  const int64_t images = std::max<int64_t>(x[0], 1);
  if (x.elements() == 0 || conv_h < unit || conv_w < unit || filter.elements() > kMax) return {};
  if (images * x[1] * x[2] > kMax || images * conv_h * conv_w > kMax) return {};
  const auto narrow = [](int64_t n) { return static_cast<int>(n); };
  return ConvGeometry{narrow(x[0]),          narrow(x[1]),
                      narrow(x[2]),          narrow(x[3]),
                      narrow(filter[0]),     narrow(filter[1]),
                      conv.padding[0],       conv.padding[1],
                      narrow(conv_h),        narrow(conv_w),
                      narrow(filter[3]),     narrow(conv_h / unit),
                      narrow(conv_w / unit), unit};
}

ConvTile ConvTile::cut(int batch, int height, int images, int rows) {
  ConvTile tile;
  tile.images = images;
  tile.rows = rows;
  tile.tiles_per_image = (height + rows - 1) / rows;
  tile.tiles = images > 1 ? (batch + images - 1) / images : batch * tile.tiles_per_image;
  return tile;
}

TileCost cost_of_product(const ProductShape& product, int warps) {
  TileCost cost;
  const int64_t steps = product.words / 8, column_tiles = product.columns / 8;
  // Two bounds for all warps together: the tensor cores, on which mma.sync takes 2 clocks for 16 x 8 x 8
  // products, and shared memory, 128 bytes per clock. For each step a group of rows reads 8 x 128 bytes, half
  // of them twice because of a conflict, and each tile of columns 2 x 128.
  const int64_t throughput = product.groups * steps * std::max(4 * column_tiles, 12 + 2 * column_tiles);
  // A single warp has a quarter of the tensor cores, and waits for shared memory.
  const int64_t latency_of_step = 30 + 16 * column_tiles;
  int64_t best = -1;
  for (int parts = 1; parts <= warps; parts *= 2) {
    if (parts > 1 && (product.groups * parts > warps || steps / 2 < parts)) break;
    const int64_t rounds = (product.groups * parts + warps - 1) / warps;
    const int64_t exchange = parts > 1 ? 200 + product.groups * (parts - 1) * product.columns * 2 : 0;
    const int64_t latency = rounds * steps / parts * latency_of_step;
    const int64_t clocks = std::max(latency, throughput) + std::min(latency, throughput) / 3 + exchange;
    if (best >= 0 && clocks >= best) continue;
    best = clocks;
    cost.parts = parts;
    cost.tile_clocks = clocks;
  }
  return cost;
}

std::optional<int64_t> clocks_of(const TileCost& cost, int multiprocessors, int64_t shared_limit_bytes) {
  if (cost.shared_bytes > shared_limit_bytes) return {};
  const int64_t resident = std::clamp<int64_t>(
      (shared_limit_bytes + kReservedBytes) / (cost.shared_bytes + kReservedBytes), 1, kMaxResident);
  const int64_t blocks = std::min(cost.work, resident * multiprocessors);
  const auto per_multiprocessor = [&](int64_t n) { return (n + multiprocessors - 1) / multiprocessors; };
  const int64_t load = cost.tile_bytes / kBytesPerClock + kLatency;
  // Blocks that share a multiprocessor load while others compute.
  const int64_t tile = per_multiprocessor(blocks) > 1
                           ? std::max(load, cost.tile_clocks) + std::min(load, cost.tile_clocks) / 2
                           : load + cost.tile_clocks;
  return per_multiprocessor(blocks) * cost.fixed_bytes / kBytesPerClock +
         per_multiprocessor(cost.work) * tile +
         blocks * cost.after_bytes / (multiprocessors * kBytesPerClock);
}

std::optional<TileChoice> choose_tile(int batch, int height, int columns, std::initializer_list<int> warps,
                                      int multiprocessors, int64_t shared_limit_bytes,
                                      const std::function<TileCost(ConvTile&, int, int)>& cost_of) {
  const int64_t half = (shared_limit_bytes - kReservedBytes) / 2;
  std::optional<TileChoice> best, smaller;
  const auto consider = [&](int images, int rows) {
    for (int columns_of_block : {64, 32, 16}) {
      if (columns % columns_of_block != 0) continue;
      for (int warps_of_block : warps) {
        ConvTile tile = ConvTile::cut(batch, height, images, rows);
        const TileCost cost = cost_of(tile, columns_of_block, warps_of_block);
        const std::optional<int64_t> clocks = clocks_of(cost, multiprocessors, shared_limit_bytes);
        if (!clocks) continue;
        const TileChoice choice{tile, columns_of_block, warps_of_block, cost, multiprocessors, *clocks};
        const auto keep = [&](std::optional<TileChoice>& least) {
          if (!least || choice.clocks <= least->clocks)
            least = choice;  // the more warps, the sooner all is loaded
        };
        keep(best);
        if (cost.shared_bytes <= half && cost.work <= multiprocessors) keep(smaller);
      }
    }
  };
  for (int images = 1; images <= std::min(kMaxImages, batch); ++images) consider(images, height);
  for (int parts = 2, last = height; parts <= height; ++parts) {
    const int rows = (height + parts - 1) / parts;
    if (rows == last) continue;
    last = rows;
    consider(1, rows);
  }
  return smaller &&
                 static_cast<double>(smaller->clocks) <= static_cast<double>(best->clocks) * kWorthLeavingRoom
             ? smaller
             : best;
}

}  // namespace headroom::cuda
