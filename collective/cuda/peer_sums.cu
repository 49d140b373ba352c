#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "base/shard.h"
#include "collective/cuda/peer_sums.h"
#include "collective/cuda/quads.cuh"
#include "device/cuda/check.h"
#include "device/cuda/current_device.h"

namespace headroom::cuda {

// The data that a rank shows the others.
struct PeerGuest {
  char host[256] = "";
  uint64_t process = 0;
  int ordinal = 0;
  std::byte* memory = nullptr;
  cudaIpcMemHandle_t handle{};
  bool is_ready = false;
};

namespace {

// Few and small blocks: they share the multiprocessors with the backward pass while they wait.
constexpr int kExchangeBlocks = 32, kExchangeThreads = 256;
// Calls use the two slots alternately. A rank that writes a slot a second time has seen the flags of the call
// in between, which the others raise when they have read the first.
constexpr int64_t kSlotBytes = PeerSums::kMaxBytes;
constexpr int64_t kFlagsAt = 2 * kSlotBytes, kFlagBytes = kExchangeBlocks * PeerSums::kMaxRanks * 4;
constexpr int64_t kEpochsAt = kFlagsAt + kFlagBytes, kPartBytes = kEpochsAt + kExchangeBlocks * 4;
// Looks at the flags between two looks at the host's memory, which take a microsecond each.
constexpr uint32_t kLooksBetween = 1024;

// The number of pieces that fit into the 4 KiB of a launch's arguments.
struct Call {
  static constexpr size_t kMaxPieces = 96;
  PeerSums::Piece pieces[kMaxPieces];
  std::byte* parts[PeerSums::kMaxRanks];
  const volatile int* aborted;
  int64_t quads;
  int count, rank, size;
};
static_assert(sizeof(Call) <= 4096);

__device__ uint32_t* flags_of(std::byte* part, unsigned block) {
  return reinterpret_cast<uint32_t*>(part + kFlagsAt) + block * PeerSums::kMaxRanks;
}

__device__ void raise_flag(uint32_t* flag, uint32_t epoch) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(epoch) : "memory");
}

__device__ uint32_t read_flag(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// Each block exchanges a stretch of the quads with the same block of every other rank, so blocks need not run
// at the same time as others of their grid.
__global__ void __launch_bounds__(kExchangeThreads) exchange(const __grid_constant__ Call call) {
  const unsigned block = blockIdx.x;
  std::byte* const own = call.parts[call.rank];
  uint32_t* const epochs = reinterpret_cast<uint32_t*>(own + kEpochsAt);
  const uint32_t epoch = epochs[block] + 1;
  const int64_t slot = (epoch & 1) * kSlotBytes;
  const int64_t begin = call.quads * block / kExchangeBlocks + threadIdx.x,
                end = call.quads * (block + 1) / kExchangeBlocks;

  const auto piece_of = [&call](int64_t quad, int at) {
    while (at + 1 < call.count && call.pieces[at + 1].first_quad <= quad) ++at;
    return at;
  };
  const auto shown = [&call, slot](int rank) { return reinterpret_cast<float4*>(call.parts[rank] + slot); };

  for (int64_t i = begin, at = 0; i < end; i += kExchangeThreads) {
    const PeerSums::Piece& piece = call.pieces[at = piece_of(i, static_cast<int>(at))];
    if (piece.owner < 0 || piece.owner == call.rank)
      shown(call.rank)[i] = load_quad(piece.input, piece.dtype, piece.elements, i - piece.first_quad);
  }
  __syncthreads();
  if (const int peer = static_cast<int>(threadIdx.x); peer < call.size) {
    __threadfence_system();
    raise_flag(flags_of(call.parts[peer], block) + call.rank, epoch);
    const uint32_t* const flag = flags_of(own, block) + peer;
    for (uint32_t looks = 1; static_cast<int32_t>(read_flag(flag) - epoch) < 0; ++looks) {
      if (looks % kLooksBetween == 0 && *call.aborted != 0) break;
    }
    if (peer == 0) epochs[block] = epoch;
  }
  __syncthreads();
  for (int64_t i = begin, at = 0; i < end; i += kExchangeThreads) {
    const PeerSums::Piece& piece = call.pieces[at = piece_of(i, static_cast<int>(at))];
    if (piece.owner == call.rank) continue;
    // Not from a cache: an earlier call of this kernel may have left another call's values there.
    float4 value = __ldcv(shown(max(piece.owner, 0)) + i);
    for (int rank = 1; piece.owner < 0 && rank < call.size; ++rank) {
      value = add(value, __ldcv(shown(rank) + i));
    }
    store_quad(piece.output, piece.dtype, piece.elements, i - piece.first_quad, value);
  }
}

// Clears an error that is an answer, so that no later call reports it.
bool succeeded(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess;
}

}  // namespace

std::unique_ptr<PeerSums> PeerSums::make(int ordinal, Collective& host) {
  if (host.size() > kMaxRanks) return nullptr;
  std::unique_ptr<PeerSums> sums(new PeerSums(ordinal, host.rank(), host.size()));
  PeerGuest own;
  gethostname(own.host, sizeof own.host - 1);
  own.process = process_nonce();
  own.ordinal = ordinal;
  own.is_ready = sums->allocate() && succeeded(cudaIpcGetMemHandle(&own.handle, sums->memory_));
  own.memory = sums->memory_;

  bool reaches_all = own.is_ready;
  for (int peer = 0; peer < host.size(); ++peer) {
    PeerGuest guest = own;
    broadcast_value(host, guest, peer);
    reaches_all = reaches_all && guest.is_ready && std::strcmp(guest.host, own.host) == 0 &&
                  sums->reach(host, peer, guest);
  }
  bool all_reach = true;
  for (int peer = 0; peer < host.size(); ++peer) {
    bool answer = reaches_all;
    broadcast_value(host, answer, peer);
    all_reach = all_reach && answer;
  }
  return all_reach ? std::move(sums) : nullptr;
}

bool PeerSums::allocate() {
  void *memory = nullptr, *aborted = nullptr;
  if (!succeeded(cudaMalloc(&memory, kPartBytes))) return false;
  memory_ = static_cast<std::byte*>(memory);
  if (!succeeded(cudaHostAlloc(&aborted, sizeof(int), cudaHostAllocPortable))) return false;
  aborted_ = static_cast<int*>(aborted);
  *aborted_ = 0;
  return succeeded(cudaMemset(memory_, 0, kPartBytes)) && succeeded(cudaDeviceSynchronize());
}

bool PeerSums::reach(const Collective& host, int peer, const PeerGuest& guest) {
  if (peer == host.rank()) {
    parts_[peer] = memory_;
    return true;
  }
  if (guest.process == process_nonce()) {
    const cudaError_t status = cudaDeviceEnablePeerAccess(guest.ordinal, 0);
    if (!succeeded(status) && status != cudaErrorPeerAccessAlreadyEnabled) return false;
    parts_[peer] = guest.memory;
    return true;
  }
  void* memory = nullptr;
  if (!succeeded(cudaIpcOpenMemHandle(&memory, guest.handle, cudaIpcMemLazyEnablePeerAccess))) return false;
  opened_.push_back(static_cast<std::byte*>(memory));
  parts_[peer] = opened_.back();
  return true;
}

PeerSums::~PeerSums() {
  const CurrentDevice current(ordinal_);
  for (std::byte* memory : opened_) cudaIpcCloseMemHandle(memory);
  cudaFree(memory_);
  cudaFreeHost(aborted_);
}

void PeerSums::abort() noexcept {
  *const_cast<volatile int*>(aborted_) = 1;
}

bool PeerSums::all_reduce_sum(std::span<const DeviceCollective::Term> terms, cudaStream_t stream) {
  pieces_.clear();
  for (const DeviceCollective::Term& term : terms) {
    if (term.elements > 0) pieces_.push_back({term.input, term.output, term.elements, 0, -1, term.dtype});
  }
  return queue(stream);
}

bool PeerSums::all_gather(std::span<const std::span<float>> tensors, cudaStream_t stream) {
  pieces_.clear();
  for (const std::span<float> tensor : tensors) {
    for (int owner = 0; owner < size_; ++owner) {
      const Shard shard{owner, size_};
      const int64_t elements = shard.size(std::ssize(tensor));
      float* const begin = tensor.data() + shard.begin(std::ssize(tensor));
      if (elements > 0) pieces_.push_back({begin, begin, elements, 0, static_cast<int16_t>(owner)});
    }
  }
  return queue(stream);
}

bool PeerSums::queue(cudaStream_t stream) {
  if (pieces_.size() > Call::kMaxPieces) return false;
  Call call{};
  for (Piece& piece : pieces_) {
    piece.first_quad = static_cast<int32_t>(call.quads);
    call.quads += (piece.elements + 3) / 4;
    call.pieces[call.count++] = piece;
  }
  if (call.quads * 16 > kMaxBytes) return false;
  if (call.count == 0) return true;
  std::copy_n(parts_, kMaxRanks, call.parts);
  call.aborted = aborted_;
  call.rank = rank_;
  call.size = size_;
  exchange<<<kExchangeBlocks, kExchangeThreads, 0, stream>>>(call);
  HR_CHECK(cudaGetLastError());
  return true;
}

}  // namespace headroom::cuda
