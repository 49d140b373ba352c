// The split of a tensor's elements among replicas. Knows no replica.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headroom {

// Elements of f32 in 256 bytes. Tensors are aligned to that, so shards are aligned as well.
inline constexpr int64_t kShardAlignment = 64;

// One of `of` shards of a tensor's elements, about equal and in order; the whole by default.
struct Shard {
  int index = 0;
  int of = 1;

  // The shard of a tensor with that many elements is [begin, end), which may be empty.
  constexpr int64_t begin(int64_t elements) const { return start_of(index, elements); }
  constexpr int64_t end(int64_t elements) const { return start_of(index + 1, elements); }
  constexpr int64_t size(int64_t elements) const { return end(elements) - begin(elements); }
  constexpr bool is_whole() const { return of == 1; }
  bool operator==(const Shard&) const = default;

 private:
  constexpr int64_t start_of(int shard, int64_t elements) const {
    const int64_t blocks = elements / kShardAlignment + (elements % kShardAlignment != 0);
    // In two terms: blocks * shard may overflow.
    const int64_t block = blocks / of * shard + blocks % of * shard / of;
    return std::min(elements, block * kShardAlignment);
  }
};

}  // namespace headroom
