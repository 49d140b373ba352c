// The tiles into which attention kernels divide the scores of a head, so that tiles hidden by a mask cost
// nothing. Knows no device.
#pragma once

#include <cstdint>

#include "kernels/loop_nest.h"
#include "ops/attention.h"

namespace headroom {

enum class MaskTile : uint8_t {
  kMixed,
  kPlain,   // adds 0 throughout
  kHidden,  // leaves no score a share of its row
};

// A score that much below another of its row has no share in f32: exp() of less than -104 is 0, and no
// product of numbers that train is near the rest. Frameworks hide scores by -infinity or by the lowest float.
inline constexpr float kHiddenBelow = 1e9f;

// The extents of one attention.
struct AttentionSizes {
  int64_t batch, queries, keys, heads, extent;
  int64_t key_heads;  // each of them for `group` neighboring heads

  AttentionSizes(const Shape& q, const Shape& k)
      : batch(q[0]), queries(q[1]), keys(k[1]), heads(q[2]), extent(q[3]), key_heads(k[2]) {}
  // Sizes from the shape of the scores (B,H,T,S) only.
  explicit AttentionSizes(const Shape& scores)
      : batch(scores[0]),
        queries(scores[2]),
        keys(scores[3]),
        heads(scores[1]),
        extent(0),
        key_heads(heads) {}
  constexpr int64_t head_count() const { return batch * heads; }
  constexpr int64_t group() const { return heads / key_heads; }
  // Elements between a query and the next one of its head.
  constexpr int64_t row_stride() const { return heads * extent; }
  constexpr int64_t query_tiles() const { return (queries + kAttentionTile - 1) / kAttentionTile; }
  constexpr int64_t key_tiles() const { return (keys + kAttentionTile - 1) / kAttentionTile; }
};

// Position of a query's row in the mask, and of its row of tiles: both broadcast.
struct MaskLayout {
  int64_t queries = 1;                                        // queries of a head in the mask
  int64_t strips = 0;                                         // rows of tiles of all heads; 0 without a mask
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;  // in elements
  int64_t batch_strips = 0, head_strips = 0, row_strips = 0;  // in rows of tiles

  MaskLayout() = default;
  MaskLayout(const Shape& mask, const AttentionSizes& sizes) {
    const Strides strides = broadcast_strides(mask, {sizes.batch, sizes.heads, sizes.queries, sizes.keys});
    batch_stride = strides[0], head_stride = strides[1], row_stride = strides[2];
    const bool has_rows = row_stride != 0;
    queries = has_rows ? sizes.queries : 1;
    const int64_t strips_of_head = has_rows ? sizes.query_tiles() : 1;
    row_strips = has_rows ? 1 : 0;
    const int64_t heads = head_stride != 0 ? sizes.heads : 1;
    head_strips = head_stride != 0 ? strips_of_head : 0;
    batch_strips = batch_stride != 0 ? heads * strips_of_head : 0;
    strips = (batch_stride != 0 ? sizes.batch : 1) * heads * strips_of_head;
  }
};

}  // namespace headroom
