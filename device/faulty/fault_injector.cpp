#include "device/faulty/fault_injector.h"

namespace headroom {

void FaultInjector::arm(const FaultPlan& plan) {
  const std::lock_guard lock(mutex_);
  plan_ = plan;
  calls_ = 0;
}

bool FaultInjector::next_call_fails() {
  const std::lock_guard lock(mutex_);
  ++calls_;
  return plan_.failing_call > 0 && calls_ >= plan_.failing_call &&
         calls_ - plan_.failing_call < plan_.failing_calls;
}

int64_t FaultInjector::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

int64_t FaultInjector::dropped_bytes() const {
  const std::lock_guard lock(mutex_);
  return plan_.drop_call > 0 && calls_ >= plan_.drop_call ? plan_.drop_bytes : 0;
}

}  // namespace headroom
