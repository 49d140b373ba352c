// Products of matrices, a tile of the result in registers at a time. Knows no tensor.
#pragma once

#include <cstdint>

#include "kernels/cpu/worker_scratch.h"

namespace headroom::cpu {

// A product of few rows reads each number of b once, so that tiles do not pay (matmul.cpp).
inline constexpr int64_t kMostFewRows = 8;

// a (m,k) x b (k,n) -> y (m,n). Each number of y is summed in the order of k alone: its bits depend neither
// on the other rows and columns nor on the build's vectors.
struct TiledProduct {
  int64_t m, n, k;
  int64_t a_row, a_depth;     // steps between the rows of a and between the numbers of a row
  int64_t b_depth, b_column;  // one of them is 1
  int64_t y_row;
  bool relu = false;  // y is at least 0

  // Returns the same on every host.
  int64_t workspace_bytes() const;
  // Starts with `bias` (n), or with zeros if that is null.
  void operator()(const float* a, const float* b, const float* bias, float* y, float* workspace) const;
};

// A product whose rows the threads of a pool share. The caller's workspace is of TiledProduct's size.
class TiledKernel {
 public:
  TiledKernel(const TiledProduct& product, ThreadPool* threads);
  void operator()(const float* a, const float* b, const float* bias, float* y, float* workspace) const;

 private:
  TiledProduct product_;
  ThreadPool* threads_;
  int64_t grain_;  // rows of a piece
  WorkerScratch scratch_;
};

}  // namespace headroom::cpu
