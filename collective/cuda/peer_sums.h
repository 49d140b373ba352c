// Sums and gathers of small tensors between the GPUs of one host, each call one kernel: every GPU shows its
// part to the others and reads theirs over the links between them. Knows no NCCL and no graph.
//
// A ring or a tree, as in NCCL's kernels, needs several exchanges in sequence. Here all GPUs read all parts
// at once, as the one-shot all-reduce of TensorRT-LLM and vLLM does: one exchange, (ranks - 1) times the
// bytes. That is faster for few bytes; docs/performance.md has the figures.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/collective.h"
#include "collective/device_collective.h"

namespace headroom::cuda {

class PeerSums {
 public:
  // The most ranks and bytes of one call. More bytes go faster over NCCL.
  static constexpr int kMaxRanks = 8;
  static constexpr int64_t kMaxBytes = int64_t{1} << 20;

  // All ranks of `host` make it together, each with its GPU, which must be the calling thread's current one.
  // Null on all ranks unless all GPUs are in one host and reach each other's memory. Takes 2 MiB of each GPU.
  // Throws CollectiveError as `host` does.
  static std::unique_ptr<PeerSums> make(int ordinal, Collective& host);

  // No other rank may still read this rank's part.
  ~PeerSums();
  PeerSums(const PeerSums&) = delete;
  PeerSums& operator=(const PeerSums&) = delete;

  // Like the calls of DeviceCollective. They return false and queue nothing if the call has too many bytes;
  // all ranks see the same sizes and decide the same. Each output is ((part of rank 0 + rank 1) + rank 2) +
  // ..., in f32.
  bool all_reduce_sum(std::span<const DeviceCollective::Term> terms, cudaStream_t stream);
  bool all_gather(std::span<const std::span<float>> tensors, cudaStream_t stream);

  // Ends kernels that wait for a rank that will not arrive. Their results are invalid.
  void abort() noexcept;

  // A tensor, or the part of one that rank `owner` has.
  struct Piece {
    const void* input = nullptr;
    void* output = nullptr;
    int64_t elements = 0;
    int32_t first_quad = 0;  // its place in the slots, where all are f32, in 16 bytes
    int16_t owner = -1;      // -1: the sum over all ranks
    DType dtype = DType::kF32;
  };

 private:
  PeerSums(int ordinal, int rank, int size) : ordinal_(ordinal), rank_(rank), size_(size) {}
  bool allocate();
  bool reach(const Collective& host, int peer, const struct PeerGuest& guest);
  bool queue(cudaStream_t stream);

  const int ordinal_, rank_, size_;
  std::byte* memory_ = nullptr;       // this rank's slots, flags and epochs
  int* aborted_ = nullptr;            // on the host, seen by the kernels
  std::byte* parts_[kMaxRanks] = {};  // every rank's memory as this GPU addresses it
  std::vector<std::byte*> opened_;    // those of other processes
  std::vector<Piece> pieces_;         // pieces of the call
};

}  // namespace headroom::cuda
