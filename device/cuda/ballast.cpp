#include "device/cuda/ballast.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

#include "base/bytes.h"
#include "device/cuda/check.h"

namespace headroom::cuda {
namespace {

constexpr int64_t kPage = 2 * kMiB;  // cudaMalloc's on every GPU since Pascal

int64_t free_now() {
  size_t free = 0, total = 0;
  HR_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

}  // namespace

Ballast::~Ballast() {
  release();
}

void Ballast::leave(int64_t free_bytes) {
  try {
    // A request that fails makes the driver release its own cache of some MiB, which would otherwise show up
    // as free once the device is full.
    void* none = nullptr;
    if (cudaMalloc(&none, static_cast<size_t>(free_now() + kPage)) == cudaSuccess) cudaFree(none);
    cudaGetLastError();
    // Free memory may be in several pieces, and the driver does not hand out all that it calls free.
    int64_t left = free_now() - free_bytes;
    for (int64_t piece = left; left > 0 && piece >= kPage;) {
      piece = round_up(std::min(piece, left), kPage);
      void* pointer = nullptr;
      const cudaError_t status = cudaMalloc(&pointer, static_cast<size_t>(piece));
      if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        piece = piece / 2;
        continue;
      }
      HR_CHECK(status);
      pieces_.push_back({pointer, piece});
      bytes_ += piece;
      left = free_now() - free_bytes;
      piece = std::max(left, kPage);
    }
  } catch (...) {
    release();
    throw;
  }
}

void Ballast::release() noexcept {
  for (const Piece& piece : pieces_) cudaFree(piece.pointer);
  pieces_.clear();
  bytes_ = 0;
}

}  // namespace headroom::cuda
