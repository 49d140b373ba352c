// The memory of the machine that the process runs on. Knows no device.
#pragma once

#include <cstdint>
#include <optional>

namespace headroom {

// Memory of the machine, or of the container that the process runs in.
int64_t host_total_bytes();
// Bytes of it that are free or could be freed; nullopt where the system does not say.
std::optional<int64_t> host_available_bytes();

// `bytes` of it, on the alignment of device memory. Throws HostOutOfMemory for more than the machine has, at
// once, and when the system has no room.
void* allocate_host_memory(int64_t bytes);
void release_host_memory(void* pointer) noexcept;

}  // namespace headroom
