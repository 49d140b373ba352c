// The sizes of PyTorch's native caching allocator, and the options that change them. Knows no memory.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "allocators/strategies/strategy_options.h"

namespace headroom {

// Blocks up to this size lie in segments of their own; PyTorch's kSmallSize.
inline constexpr int64_t kSmallBlockBytes = int64_t{1} << 20;
constexpr bool is_small_block(int64_t block_bytes) {
  return block_bytes <= kSmallBlockBytes;
}

struct CachingRules {
  static constexpr int64_t kMinBlockBytes = 512;  // PyTorch's kMinBlockSize

  // One number of divisions per power of two from 1 MiB to 32 GiB; smaller sizes take the first one, larger
  // ones the last. 0 and 1: no rounding.
  using Divisions = std::array<int64_t, 16>;

  // Free blocks of at least this size are never cut and serve no smaller request.
  int64_t max_split_bytes = std::numeric_limits<int64_t>::max();
  // A request of at least that size uses only a free block that is larger by less than this.
  int64_t max_non_split_rounding_bytes = int64_t{20} << 20;
  // Size of a segment for blocks above 1 MiB and below 10 MiB; PyTorch's kLargeBuffer, or its
  // large_segment_size_mb.
  int64_t large_segment_bytes = int64_t{20} << 20;
  // Share of the limit above which idle segments are released before a new one is taken; 0: never. PyTorch's
  // garbage_collection_threshold; has no effect without a limit.
  double gc_share = 0;
  std::optional<Divisions> power2_divisions = {};
  bool expandable_segments = false;  // see expandable_allocator.h

  bool limits_splits() const { return max_split_bytes != std::numeric_limits<int64_t>::max(); }
  // The block size for a request: a multiple of 512 B, or the next division of a power of two.
  int64_t block_bytes(int64_t bytes) const {
    return power2_divisions ? divided(bytes) : (bytes + kMinBlockBytes - 1) & -kMinBlockBytes;
  }
  // Returns the size of the segment for a block: 2 MiB for a small one, a large segment below 10 MiB,
  // otherwise a multiple of 2 MiB.
  int64_t segment_bytes(int64_t block_bytes) const;
  // Returns true if the rest of a free block becomes a block.
  bool cuts(int64_t free_bytes, int64_t block_bytes) const {
    const int64_t rest = free_bytes - block_bytes;
    if (is_small_block(block_bytes)) return rest >= kMinBlockBytes;
    return block_bytes < max_split_bytes && rest > kSmallBlockBytes;
  }
  // Returns true if a free block that is large enough may serve the request.
  bool serves(int64_t free_bytes, int64_t block_bytes) const {
    if (block_bytes < max_split_bytes) return free_bytes < max_split_bytes;
    return free_bytes < block_bytes + max_non_split_rounding_bytes;
  }

 private:
  int64_t divided(int64_t bytes) const;
};

inline constexpr StrategyOption kCachingOptions[] = {
    {"max_split", "SIZE", "none",
     "free blocks of at least this size are not split and serve no smaller request"},
    {"max_non_split_rounding", "SIZE", "20MiB", "maximum bytes by which such a block exceeds the request"},
    {"large_segment", "SIZE", "20MiB", "segments for blocks above 1 MiB and below 10 MiB"},
    {"gc", "SHARE", "none", "share of the limit above which idle segments are released, oldest first"},
    {"roundup_power2", "COUNT", "none",
     "sizes round up to this share of a power of two; or by size in MiB: [256:1,512:2,1024:4,>:8]"},
    {"expandable_segments", "BOOL", "false", "one segment per stream and pool, grown page by page"},
};
// The rules for these options. Throws InvalidArgument for values out of range.
CachingRules caching_rules(const StrategyOptions& options);

// The next multiple of a power of two's share: 1200 in 4 divisions of 1024 is 1280.
int64_t round_up_power2(int64_t bytes, int64_t divisions);
// Parses "4", or one number per size in MiB as in "[256:1,512:2,1024:4,>:8]": 1 up to and including 256 MiB's
// power of two, and so on, 8 above. Throws InvalidArgument naming `what` for anything else and for numbers
// that are not powers of two.
CachingRules::Divisions parse_power2_divisions(std::string_view text, std::string_view what);

}  // namespace headroom
