// Counts the calls of a driver or of a collective and decides which of them fails: the common part of the
// faulty twins. Knows no device.
#pragma once

#include <cstdint>
#include <mutex>

namespace headroom {

struct FaultPlan {
  int64_t failing_call = 0;   // this call, counted from 1, fails; 0: none does
  int64_t failing_calls = 1;  // number of consecutive calls that fail
  int64_t drop_call = 0;      // from this call on others hold `drop_bytes` more of the device; 0: never
  int64_t drop_bytes = 0;
};

// Thread-safe.
class FaultInjector {
 public:
  // Follows `plan` from now on, counting from zero again.
  void arm(const FaultPlan& plan);
  // Counts one call; true when it is the one to fail.
  bool next_call_fails();
  // Calls since the last arm().
  int64_t calls() const;
  // Returns the additional bytes that other processes use by now.
  int64_t dropped_bytes() const;

 private:
  mutable std::mutex mutex_;
  FaultPlan plan_;
  int64_t calls_ = 0;
};

}  // namespace headroom
