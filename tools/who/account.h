// Who holds the memory of a device, as one sum: total = free + ours + others + unaccounted. Knows no command
// line and prints nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device/gpus.h"

namespace headroom::who {

// What this process holds.
struct Ours {
  int64_t context_bytes = 0;
  int64_t libraries_bytes = 0;  // handles and kernels: all that is neither context nor the strategy's
  int64_t live_bytes = 0;       // of the strategy: in blocks that are in use
  int64_t cached_bytes = 0;     // of the strategy: held from the driver and in no block

  int64_t total_bytes() const { return context_bytes + libraries_bytes + live_bytes + cached_bytes; }
};

// Somebody else. Without a process where it is known that others hold it, and not who.
struct Holder {
  std::optional<int64_t> pid;
  std::string user, command;     // empty: unknown
  std::optional<int64_t> bytes;  // absent: the driver does not tell; its share is unaccounted then
};

struct Account {
  std::string device;  // "cuda:0", "sim:laptop-2gb"; "hidden" for a GPU that CUDA does not show
  std::string name;    // "NVIDIA H200"
  std::string uuid;    // empty for a simulated one
  bool simulated = false;
  int64_t total_bytes = 0, free_bytes = 0;
  Ours ours = {};
  std::vector<Holder> others = {};  // the largest first
  bool processes_listed = true;     // whether the driver says which processes there are

  // Of those others that are known.
  int64_t others_bytes() const;
  // What is used and nobody's: the driver's own, processes that it does not list. Negative where more is
  // claimed than used.
  int64_t unaccounted_bytes() const;
};

// A GPU of the machine as its driver sees it. `ours` are taken as what this process holds.
Account account_of(const PhysicalGpu& gpu, const Ours& ours);

}  // namespace headroom::who
