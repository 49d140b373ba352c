// When values go to host memory and come back, beside the nodes of a step: a link that carries one copy at a
// time each way, in order, while nodes run. Knows no graph and no memory.
#pragma once

#include <cstdint>
#include <span>

namespace headroom {

// The way between a device and the page-locked memory of its host.
struct HostLink {
  double bytes_per_us = 0;  // each way, while both are in use; 0: there is none
  double latency_us = 0;    // time per copy
  int64_t max_bytes = 0;    // memory of the host

  bool exists() const { return bytes_per_us > 0 && max_bytes > 0; }
  double copy_us(int64_t bytes) const { return latency_us + static_cast<double>(bytes) / bytes_per_us; }
};

// A store, which copies a value to the host, or a load, which copies it back. Nodes are given by their
// positions in the step.
struct HostCopy {
  int source = -1;     // the node that makes the value of a store; the store whose copy a load brings back
  int reader = -1;     // the last reader of a store, which frees the device's block; the first one of a load
  bool waits = false;  // nodes wait for all of the copy; else they run beside it, if the link has the time
  double us = 0;
  // The node before which it is queued. The block of a store is free from there on, that of a load is taken.
  int position = -1;
};

// Sets the positions of the copies so that nodes wait for none, if possible and the link has the time.
// `loads` are in the order of their readers. Copies run in the order of their positions, stores first.
// Returns the least time of the step, in which each node runs after the node and the stores queued before it,
// each load begins after the node and the stores before it, and copies of one direction follow each other.
double place_host_copies(std::span<const double> node_us, std::span<HostCopy> stores,
                         std::span<HostCopy> loads);

}  // namespace headroom
