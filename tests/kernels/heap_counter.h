// Counts what this program takes from the system heap, so that a test can promise that nothing was.
#pragma once

#include <cstdint>

namespace headroom::test {

class HeapCounter {
 public:
  // Whether allocations are seen at all.
  static bool works();
  HeapCounter();
  // Calls of malloc and its kin, operator new included, on any thread since this counter was made.
  int64_t allocations() const;

 private:
  int64_t begin_;
};

}  // namespace headroom::test
