// The work queue of a device, as a value.
#pragma once

namespace headroom {

// A null handle is the default stream. The CPU runs queued work at once, and so do simulated devices whose
// work takes no time.
struct Stream {
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

}  // namespace headroom
