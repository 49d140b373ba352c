#include "device/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <sstream>
#include <string>

#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

constexpr std::align_val_t kHostAlignment{256};

}  // namespace

int64_t host_total_bytes() {
  static const int64_t total = [] {
    int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    // A limit is a number or "max".
    for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
      std::ifstream file(path);
      int64_t limit = 0;
      if (file >> limit && limit > 0) bytes = std::min(bytes, limit);
    }
    return bytes;
  }();
  return total;
}

std::optional<int64_t> host_available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    int64_t kib = 0;
    std::string key;
    if (std::istringstream(line) >> key >> kib && key == "MemAvailable:") return kib * kKiB;
  }
  return {};
}

void* allocate_host_memory(int64_t bytes) {
  if (bytes > host_total_bytes()) throw HostOutOfMemory(bytes);
  void* const pointer = ::operator new(static_cast<size_t>(bytes), kHostAlignment, std::nothrow);
  if (pointer == nullptr) throw HostOutOfMemory(bytes);
  return pointer;
}

void release_host_memory(void* pointer) noexcept {
  ::operator delete(pointer, kHostAlignment);
}

}  // namespace headroom
