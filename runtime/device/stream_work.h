// A piece of work for a stream and the memory that it reads and writes. Knows no device and no graph.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device/stream.h"

namespace headroom {

// Bytes of the device's memory that work reads, or writes (and may read).
struct MemoryUse {
  const void* data = nullptr;
  int64_t bytes = 0;
  bool writes = false;
  std::string name = {};  // of the value that lives there, where somebody knows
};

struct StreamWork {
  // Queues itself on the stream that it is given, and must not wait for one. Where work runs on the host it
  // may be called after the call that queued it has returned: it owns what it needs, but for device memory.
  std::function<void(Stream)> run;
  std::string name = {};             // "dense/matmul"
  std::string place = {};            // the line of code that asked for it: "net.cpp:31"
  std::vector<MemoryUse> uses = {};  // for a device that checks its streams
  std::optional<double> us = {};     // on a simulated GPU; what its profile says of a kernel when absent
};

}  // namespace headroom
