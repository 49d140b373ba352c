#include "tests/kernels/heap_counter.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HR_HEAP_IS_TAKEN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define HR_HEAP_IS_TAKEN 1
#endif

namespace {
std::atomic<int64_t> calls{0};
}

#ifndef HR_HEAP_IS_TAKEN
// Eigen and operator new both end in these, which a program may define itself (glibc manual, "Replacing
// malloc"); the library's own stay reachable under these names.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* pointer, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
// NOLINTEND(bugprone-reserved-identifier)

void* malloc(size_t bytes) {
  ++calls;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++calls;
  return __libc_calloc(count, bytes);
}
void* realloc(void* pointer, size_t bytes) {
  ++calls;
  return __libc_realloc(pointer, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  ++calls;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, size_t alignment, size_t bytes) {
  ++calls;
  *result = __libc_memalign(alignment, bytes);
  return *result == nullptr ? ENOMEM : 0;
}
}
#endif

namespace headroom::test {

bool HeapCounter::works() {
#ifdef HR_HEAP_IS_TAKEN
  return false;
#else
  return true;
#endif
}

HeapCounter::HeapCounter() : begin_(calls) {}

int64_t HeapCounter::allocations() const {
  return calls - begin_;
}

}  // namespace headroom::test
