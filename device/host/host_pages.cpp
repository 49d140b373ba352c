#include "device/host/host_pages.h"

#include <sys/mman.h>

#include <cstddef>
#include <new>

#include "base/bytes.h"

namespace headroom {
namespace {

constexpr std::align_val_t kAlignment{256};  // cudaMalloc's guarantee
// From here on a range of its own: malloc would keep smaller ones anyway, and address sanitizers see their
// ends.
constexpr int64_t kMappedBytes = kMiB;
// Without backing, addresses of blocks from here on serve again if they are the last that were handed out: a
// few thousand blocks of a petabyte would use all addresses up.
constexpr int64_t kReusedBytes = 1024 * kGiB;

uintptr_t aligned(int64_t bytes) {
  return static_cast<uintptr_t>(round_up(bytes, static_cast<int64_t>(kAlignment)));
}

}  // namespace

void* HostPages::take(int64_t bytes) noexcept {
  if (backing_ == Backing::kNone) {
    uintptr_t end = next_address_.load();
    do {
      if (end <= aligned(bytes)) return nullptr;  // no address is left
    } while (!next_address_.compare_exchange_weak(end, end - aligned(bytes)));
    return reinterpret_cast<void*>(end - aligned(bytes));
  }
  if (bytes < kMappedBytes) return ::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow);
  void* pointer = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pointer == MAP_FAILED) return nullptr;
  // Kernels stream through these ranges: 2 MiB pages spare them most TLB misses. Only a wish, so no check.
  madvise(pointer, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return pointer;
}

void HostPages::give_back(void* pointer, int64_t bytes) noexcept {
  if (pointer == nullptr) return;
  if (backing_ == Backing::kNone) {
    auto last = reinterpret_cast<uintptr_t>(pointer);
    if (bytes >= kReusedBytes) next_address_.compare_exchange_strong(last, last + aligned(bytes));
    return;
  }
  if (bytes < kMappedBytes) {
    ::operator delete(pointer, kAlignment);
  } else {
    munmap(pointer, static_cast<size_t>(bytes));
  }
}

}  // namespace headroom
