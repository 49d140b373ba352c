// Where blocks and segments lie on one line without the empty stretches between them: for the block map.
// Knows no output.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/report/history.h"

namespace headroom::report {

class AddressMap {
 public:
  explicit AddressMap(const History& history);

  // Bytes from the begin of the line.
  uint64_t offset(size_t block) const;
  uint64_t offset_of_address(uint64_t address) const;
  uint64_t bytes() const { return bytes_; }

 private:
  // What is used of the address space at any time, without a hole in it.
  struct Stretch {
    uint64_t begin = 0, end = 0, offset = 0;
  };
  void join();

  const History& history_;
  std::vector<Stretch> stretches_;  // by address
  std::vector<uint64_t> offsets_;   // by block, where the trace has no addresses
  uint64_t bytes_ = 0;
};

}  // namespace headroom::report
