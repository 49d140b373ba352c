// The addresses that a GPU's driver gives segments, by which PyTorch orders free blocks. Knows no memory: a
// play takes addresses from here and bytes from the device.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace headroom {

// As recorded on an H200 with driver 580 (docs/notes/pytorch-memory.md): addresses are taken in chunks of
// whole units from the top down, each from the highest hole that is large enough. A segment goes to the lower
// end of a gap in the newest chunk that has one, there in the newest gap, else to a new chunk; an empty chunk
// leaves a hole.
class SegmentPlaces {
 public:
  // Kernels run after `allocations`: then the context gives the stacks of its threads back and makes new ones
  // elsewhere.
  explicit SegmentPlaces(int64_t allocations);

  // Returns the address of a new segment, after so many allocations of the program.
  int64_t take(int64_t bytes, int64_t allocations);
  void give_back(int64_t address, int64_t bytes) noexcept;

 private:
  struct Range {
    int64_t begin = 0, bytes = 0;
    int64_t end() const { return begin + bytes; }
  };
  struct Chunk {
    Range range;
    std::vector<Range> gaps;  // the newest last
  };

  Range take_hole(int64_t bytes);
  void add_hole(Range hole) noexcept;

  const int64_t kernels_after_;
  bool has_old_stacks_ = true;
  std::vector<Chunk> chunks_;         // the newest last
  std::map<int64_t, int64_t> holes_;  // begin -> bytes
};

}  // namespace headroom
