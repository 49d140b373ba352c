// Offsets of blocks and segments in the block map: addresses without the unused ranges between them. Knows no
// output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/report/history.h"

namespace headroom::report {

class AddressMap {
 public:
  explicit AddressMap(const History& history);

  // Bytes from the beginning of the map.
  uint64_t offset(size_t block) const;
  uint64_t offset_of_address(uint64_t address) const;
  uint64_t bytes() const { return bytes_; }

 private:
  // A maximal range of addresses that are used at some time.
  struct Stretch {
    uint64_t begin = 0, end = 0, offset = 0;
  };
  void place_blocks();
  void join();

  const History& history_;
  std::vector<Stretch> stretches_;  // by address
  std::vector<uint64_t> offsets_;   // by block, if the trace has no addresses
  uint64_t bytes_ = 0;
};

}  // namespace headroom::report
