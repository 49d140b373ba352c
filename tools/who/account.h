// The users of a device's memory: total = free + ours + others + unaccounted. Knows no command line and
// prints nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/gpus.h"

namespace headroom::who {

// The memory of this process.
struct Ours {
  int64_t context_bytes = 0;
  int64_t libraries_bytes = 0;  // handles and kernels: all that is neither context nor the strategy's
  int64_t live_bytes = 0;       // the strategy's blocks in use
  int64_t cached_bytes = 0;     // the rest of what the strategy holds

  int64_t total_bytes() const { return context_bytes + libraries_bytes + live_bytes + cached_bytes; }
};

// Another process; without a pid if it is only known that others hold the memory.
struct Holder {
  std::optional<int64_t> pid;
  std::string user, command;     // empty: unknown
  std::optional<int64_t> bytes;  // absent: not reported; its share is then unaccounted
};

struct Account {
  std::string device;  // "cuda:0", "sim:laptop-2gb"; "hidden" for a GPU that CUDA does not show
  std::string name;    // "NVIDIA H200"
  std::string uuid;    // empty for a simulated one
  bool simulated = false;
  int64_t total_bytes = 0, free_bytes = 0;
  Ours ours = {};
  std::vector<Holder> others = {};  // the largest first
  bool processes_listed = true;     // true if the driver lists processes

  // Returns the bytes of the other processes, as far as known.
  int64_t others_bytes() const;
  // Returns the rest of the used memory: the driver's own, and processes that it does not list. Negative if
  // more is claimed than used.
  int64_t unaccounted_bytes() const;
};

// Returns a GPU of the machine as its driver reports it. `ours` is the memory of this process.
Account account_of(const PhysicalGpu& gpu, const Ours& ours);

}  // namespace headroom::who
