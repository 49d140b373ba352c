#include "runtime/core/simulated_streams.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace headroom {

struct SimulatedStreams::State {
  mutable std::mutex mutex;
  double now_us = 0;
  uintptr_t streams_made = 0;
  std::map<void*, double> busy_until_us;  // no entry: idle
  std::mutex callbacks_mutex;  // held while they run, so that an owner can end after it took its away
  std::map<const void*, std::function<void()>> callbacks;

  void call_back() {
    const std::lock_guard lock(callbacks_mutex);
    for (const auto& [owner, callback] : callbacks) callback();
  }

  double end_of(Stream stream) const {
    const auto found = busy_until_us.find(stream.handle);
    return found == busy_until_us.end() ? now_us : std::max(now_us, found->second);
  }
};

class SimulatedStreams::TimedEvent final : public Event {
 public:
  TimedEvent(std::shared_ptr<State> state, double at_us) : state_(std::move(state)), at_us_(at_us) {}
  bool done() const override {
    const std::lock_guard lock(state_->mutex);
    return state_->now_us >= at_us_;
  }
  void wait() override {
    {
      const std::lock_guard lock(state_->mutex);
      state_->now_us = std::max(state_->now_us, at_us_);
    }
    state_->call_back();
  }

 private:
  const std::shared_ptr<State> state_;
  const double at_us_;
};

SimulatedStreams::SimulatedStreams() : state_(std::make_shared<State>()) {}
SimulatedStreams::~SimulatedStreams() = default;

Stream SimulatedStreams::add() {
  const std::lock_guard lock(state_->mutex);
  // A number in a pointer's clothes: nobody looks behind it, and null is the default stream.
  return {reinterpret_cast<void*>(++state_->streams_made)};
}

void SimulatedStreams::remove(Stream stream) noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->busy_until_us.erase(stream.handle);
}

void SimulatedStreams::occupy(Stream stream, double us) {
  const std::lock_guard lock(state_->mutex);
  state_->busy_until_us[stream.handle] = state_->end_of(stream) + us;
}

void SimulatedStreams::wait(Stream stream, Stream other) {
  const std::lock_guard lock(state_->mutex);
  const double end = std::max(state_->end_of(stream), state_->end_of(other));
  if (end > state_->now_us) state_->busy_until_us[stream.handle] = end;
}

std::unique_ptr<Event> SimulatedStreams::record(Stream stream) {
  const std::lock_guard lock(state_->mutex);
  return std::make_unique<TimedEvent>(state_, state_->end_of(stream));
}

void SimulatedStreams::synchronize(Stream stream) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->now_us = state_->end_of(stream);
  }
  state_->call_back();
}

void SimulatedStreams::synchronize_all() {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [stream, end_us] : state_->busy_until_us)
    state_->now_us = std::max(state_->now_us, end_us);
}

void SimulatedStreams::call_after_waits(const void* owner, std::function<void()> callback) {
  const std::lock_guard lock(state_->callbacks_mutex);
  if (callback) {
    state_->callbacks[owner] = std::move(callback);
  } else {
    state_->callbacks.erase(owner);
  }
}

double SimulatedStreams::now_us() const {
  const std::lock_guard lock(state_->mutex);
  return state_->now_us;
}

}  // namespace headroom
