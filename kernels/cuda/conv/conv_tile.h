// Divides a convolution into tiles that a block of threads keeps in shared memory: some rows of some images,
// with halo. Pure arithmetic. Knows no kernel.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>

#include "ops/ops.h"

namespace headroom::cuda {

// A stride-1 convolution in which an output position is `unit` positions of the convolution along each axis:
// 2 under a 2 x 2 max pool, otherwise 1. All extents in elements.
struct ConvGeometry {
  int batch, height, width, channels;  // x
  int kernel_h, kernel_w, pad_h, pad_w;
  int conv_h, conv_w, filters;  // size of the convolution
  int out_h, out_w, unit;       // size of the block
};

// The geometry of a block that our kernels take; nothing for those that they leave to the libraries: groups,
// dilation, strides, other pools, extents beyond 32 bits.
std::optional<ConvGeometry> geometry_of(const ConvBlock& block, const Shape& x, const Shape& filter);

// `rows` rows of each of `images` images.
struct ConvTile {
  int images = 1, rows = 1;
  int tiles_per_image = 1;       // more than 1 only when images is 1
  int tiles = 1;                 // tiles of the batch
  int patch_h = 1, patch_w = 1;  // one image in shared memory, with halo and padding

  // Cuts `batch` images of `height` rows each.
  static ConvTile cut(int batch, int height, int images, int rows);
};

// The cost of one configuration of a kernel on a multiprocessor.
struct TileCost {
  int64_t shared_bytes = 0;  // per block
  int64_t fixed_bytes = 0;   // that each block loads once
  int64_t tile_bytes = 0;    // that it loads for each tile
  int64_t after_bytes = 0;   // that it leaves for another kernel to read
  int64_t tile_clocks = 0;   // that a tile takes to compute when a multiprocessor works on it alone
  int64_t work = 0;          // tiles, over all slices of the columns
  int parts = 1;             // warps that share the terms of one group of rows
};

// A product of `groups` groups of 32 rows with `columns` columns, each a sum over `words` words of terms.
struct ProductShape {
  int64_t groups, columns, words;
};

// tile_clocks and parts of a product that `warps` warps compute from shared memory.
TileCost cost_of_product(const ProductShape& product, int warps);

// Clocks until the slowest multiprocessor is done; nothing when a block does not fit into shared memory.
std::optional<int64_t> clocks_of(const TileCost& cost, int multiprocessors, int64_t shared_limit_bytes);

struct TileChoice {
  ConvTile tile;
  int columns = 0;  // per block
  int warps = 0;    // per block
  TileCost cost;
  int multiprocessors = 0;  // that it is made for
  int64_t clocks = 0;
};

// Returns the cheapest of all sensible tiles of `batch` images with `height` rows, of 16, 32 or 64 of the
// `columns` columns, and of the given numbers of warps; nullopt if none fits. cost_of(tile, columns, warps)
// fills in the tile's patch and returns its cost. If blocks run once and it costs little, they leave half of
// a multiprocessor's shared memory to the next kernel, which may start early.
std::optional<TileChoice> choose_tile(
    int batch, int height, int columns, std::initializer_list<int> warps, int multiprocessors,
    int64_t shared_limit_bytes, const std::function<TileCost(ConvTile&, int columns, int warps)>& cost_of);

}  // namespace headroom::cuda
