// Finds work that uses memory which another stream may still use, regardless of timing. It checks the order
// given by waits and events, happens-before by vector clocks, like PyTorch's CSAN (torch/cuda/_sanitizer.py)
// and race detectors since Fidge and Mattern. Knows no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "device/device_streams.h"

namespace headroom {

// Not thread-safe. Like CSAN it treats all host threads as one: a wait of one thread counts for all, so it
// does not find a missing wait between two threads.
class StreamChecker {
 public:
  // By stream, in the order of first use: how much of its work comes before.
  using Clock = std::vector<uint64_t>;

  // Notes that work is queued. Throws StreamHazard, and notes nothing, if it uses memory that unordered work
  // of another stream writes, or writes memory that such work reads.
  void add(Stream stream, const StreamWork& work);
  // All work on the stream so far, as an event recorded now would have it.
  Clock now(Stream stream);
  // Work queued on the stream from now on comes after the event.
  void wait(Stream stream, const Clock& event);
  // The host has waited: work queued on any stream from now on comes after the event.
  void host_waits(const Clock& event);
  void host_waits_for_all();
  // The memory went back to the driver, which hands it out as new.
  void forget(const void* data, int64_t bytes);

 private:
  struct Label {
    std::string work, place;
  };
  struct Access {
    size_t stream = 0;
    uint64_t turn = 0;  // turn in the stream's work, from 1
    std::shared_ptr<const Label> label = {};
    std::string name = {};
  };
  // Accesses to a range of bytes: the last write, and later reads, at most one per stream.
  struct History {
    uintptr_t end = 0;
    Access write = {};  // turn 0: none
    std::vector<Access> reads = {};
  };
  using Histories = std::map<uintptr_t, History>;  // by begin

  size_t index_of(Stream stream);
  Clock& clock_of(size_t stream);
  void check(size_t stream, const Clock& clock, const StreamWork& work, const MemoryUse& use) const;
  void note(const Access& access, const MemoryUse& use);
  Histories::iterator split_at(uintptr_t address);

  std::vector<Stream> streams_;
  std::vector<Clock> clocks_;  // by stream
  Clock host_;
  Histories histories_;
};

}  // namespace headroom
