// The first of many places that holds at least so much: a tree of maxima with sixteen children to a node, so
// that a node is one line of cache and a search takes a few of them. Knows numbers alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom {

class FirstFitTree {
 public:
  // As many places at least, what is new of them holding nothing. Throws std::bad_alloc, and has then changed
  // nothing.
  void grow(size_t places);
  size_t places() const { return places_; }

  // Says what a place holds from now on, 0 or more.
  void set(size_t place, int32_t amount) noexcept;
  // The first place that holds `amount` (> 0) or more, or -1.
  int64_t first_with(int32_t amount) const noexcept;

 private:
  static constexpr size_t kFanOut = 16;
  static constexpr size_t kMostLevels = 16;  // 2^64 places
  using Four [[gnu::vector_size(16)]] = int32_t;
  struct alignas(64) Node {
    Four most[kFanOut / 4] = {};

    int32_t get(size_t lane) const { return most[lane / 4][lane % 4]; }
    // Stores four at once: processors stall when what is stored in parts is read in one.
    void set(size_t lane, int32_t amount) {
      const auto at = static_cast<int32_t>(lane % 4);
      const Four here = Four{0, 1, 2, 3} == Four{at, at, at, at};
      most[lane / 4] = (most[lane / 4] & ~here) | (Four{amount, amount, amount, amount} & here);
    }
  };

  [[gnu::always_inline]] static int32_t most_of(const Node& node);
  [[gnu::always_inline]] static size_t first_lane(const Node& node, int32_t amount);

  size_t places_ = 0;
  size_t height_ = 0;
  std::array<Node*, kMostLevels> levels_ = {};  // from the leaves up; the last has one node
  std::vector<Node> nodes_;                     // of all levels
};

}  // namespace headroom
