// Finds work that reads or overwrites what another stream may not have written or read yet, from the order
// that waits and events give, whatever the work's timing was: happens-before by vector clocks, as PyTorch's
// CSAN (torch/cuda/_sanitizer.py) and race detectors since Fidge and Mattern have it. Knows no device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "runtime/device/device_streams.h"

namespace headroom {

// Not thread-safe. Like CSAN it takes all threads of the host for one: what one of them has waited for counts
// as known to all, so a wait that is missing between two threads is not found.
class StreamChecker {
 public:
  // By stream, in the order in which they were first seen: how much of its work comes before.
  using Clock = std::vector<uint64_t>;

  // Notes that work is queued. Throws StreamHazard, and notes nothing, when it uses memory that work of
  // another stream writes, or writes what that reads, and nothing orders the two.
  void add(Stream stream, const StreamWork& work);
  // All that is on the stream so far: what an event, recorded now, stands for.
  Clock now(Stream stream);
  // What is queued on the stream from now on comes after that.
  void wait(Stream stream, const Clock& event);
  // What is queued on any stream from now on comes after that: the host has waited.
  void host_waits(const Clock& event);
  void host_waits_for_all();
  // The memory went back to the driver, which gives it out as new.
  void forget(const void* data, int64_t bytes);

 private:
  struct Label {
    std::string work, place;
  };
  struct Access {
    size_t stream = 0;
    uint64_t turn = 0;  // of the stream's work, from 1
    std::shared_ptr<const Label> label = {};
    std::string name = {};
  };
  // What has happened to some bytes: the last write and the reads since, one for each stream at most.
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
