// Counts the program's allocations from the system heap, so that a test can promise that there were none.
#pragma once

#include <cstdint>

namespace headroom::test {

class HeapCounter {
 public:
  // Returns true if allocations are counted at all.
  static bool works();
  HeapCounter();
  // Calls of malloc and its kin, operator new included, on any thread since this counter was made.
  int64_t allocations() const;

 private:
  int64_t begin_;
};

}  // namespace headroom::test
