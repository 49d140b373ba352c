// Memory of a large vector in pages of 2 MiB: tables that are read at random then miss fewer address
// translations. Knows no table.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace headroom {

template <typename T>
struct LargePages {
  using value_type = T;
  LargePages() = default;
  template <typename U>
  LargePages(const LargePages<U>&) {}  // NOLINT: as std::allocator

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    void* const memory = ::operator new(bytes, alignment_of(bytes));
    // Only a wish, so no check.
    if (bytes >= kLargeBytes) madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) noexcept {
    ::operator delete(memory, alignment_of(count * sizeof(T)));
  }
  bool operator==(const LargePages&) const = default;

 private:
  static constexpr size_t kPageBytes = size_t{2} << 20, kLargeBytes = 2 * kPageBytes;
  static std::align_val_t alignment_of(size_t bytes) {
    return std::align_val_t{bytes >= kLargeBytes ? kPageBytes : alignof(T)};
  }
};

}  // namespace headroom
