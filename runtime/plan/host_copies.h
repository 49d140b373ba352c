// When values go to host memory and come back, beside the nodes of a step: a link that carries one copy at a
// time each way, in order, while nodes run. Knows no graph and no memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headroom {

// The way between a device and the page-locked memory of its host.
struct HostLink {
  double bytes_per_us = 0;  // each way, while both are in use; 0: there is none
  double latency_us = 0;    // time per copy
  int64_t max_bytes = 0;    // memory of the host

  bool exists() const { return bytes_per_us > 0 && max_bytes > 0; }
  double copy_us(int64_t bytes) const { return latency_us + static_cast<double>(bytes) / bytes_per_us; }
};

// Nodes are given by their positions in the step.
struct HostStore {
  int maker = -1;        // the copy can begin after it
  int last_reader = -1;  // the device's block is free after it, once the copy is done
  bool waits = false;    // the next node waits for the copy; else the block stays until the copy is done
  double us = 0;
};
struct HostLoad {
  int store = -1;      // store whose copy comes back
  int reader = -1;     // the first node that reads it
  bool waits = false;  // the reader waits for all of the copy; else the copy begins early enough, if it can
  double us = 0;
};

// By store and by load: the position of the node before which it is queued. The block of a store is free from
// there on, that of a load is taken. Each copy in the order of these positions, stores first.
struct HostCopies {
  std::vector<int> store_at, load_at;
  double us = 0;  // time of the step, waits included
};

// Places the copies so that nodes wait for none, if possible and the link has the time. `loads` are in the
// order of their readers. The length of a step is at least `us`, in which each node runs after the node and
// the stores queued before it, each load begins after the node and the stores before it, and copies of one
// direction follow each other.
HostCopies place_host_copies(std::span<const double> node_us, std::span<const HostStore> stores,
                             std::span<const HostLoad> loads);

}  // namespace headroom
