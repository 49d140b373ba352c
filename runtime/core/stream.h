// The work queue of a device, as a value.
#pragma once

namespace headroom {

// A null handle is the default stream. Simulated devices and the CPU run at once what is queued.
struct Stream {
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

}  // namespace headroom
