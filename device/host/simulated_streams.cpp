#include "device/host/simulated_streams.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "device/host/stream_checker.h"

namespace headroom {

struct SimulatedStreams::State {
  struct Pending {
    Stream stream;
    std::function<void(Stream)> run;
  };

  std::mutex running_mutex;  // held while work runs, which no other work may overtake; before `mutex`
  mutable std::mutex mutex;
  double now_us = 0;
  bool blocking = false;
  uintptr_t streams_made = 0;
  uint64_t works_queued = 0;
  std::map<void*, double> busy_until_us;                   // no entry: idle
  std::map<std::pair<double, uint64_t>, Pending> pending;  // by end, then in the order of queueing
  std::map<void*, std::exception_ptr> failures;            // by stream: the first since its last wait
  std::optional<StreamChecker> checker;
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

  void stay_busy_until(Stream stream, double us) {
    if (us > now_us) busy_until_us[stream.handle] = us;
  }

  // Runs the work that ends until then, in the order of its ends. The caller holds `running_mutex`.
  void advance_to(double us) {
    for (;;) {
      Pending next;
      {
        const std::lock_guard lock(mutex);
        if (pending.empty() || pending.begin()->first.first > us) {
          now_us = std::max(now_us, us);
          return;
        }
        now_us = std::max(now_us, pending.begin()->first.first);
        next = std::move(pending.begin()->second);
        pending.erase(pending.begin());
      }
      try {
        next.run(next.stream);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failures.try_emplace(next.stream.handle, std::current_exception());
      }
    }
  }

  void throw_failure(Stream stream) {
    std::exception_ptr failure;
    {
      const std::lock_guard lock(mutex);
      const auto found = failures.find(stream.handle);
      if (found == failures.end()) return;
      failure = std::move(found->second);
      failures.erase(found);
    }
    std::rethrow_exception(failure);
  }

  // The host waits until then, and for all that `event` has seen.
  void wait_on_host(double us, const StreamChecker::Clock& event) {
    {
      const std::lock_guard running(running_mutex);
      advance_to(us);
      const std::lock_guard lock(mutex);
      if (checker) checker->host_waits(event);
    }
    call_back();
  }
};

class SimulatedStreams::TimedEvent final : public Event {
 public:
  TimedEvent(std::shared_ptr<State> state, Stream stream, double at_us, StreamChecker::Clock clock)
      : state_(std::move(state)), stream_(stream), at_us_(at_us), clock_(std::move(clock)) {}
  bool done() const override {
    const std::lock_guard lock(state_->mutex);
    if (state_->now_us < at_us_) return false;
    if (state_->checker) state_->checker->host_waits(clock_);
    return true;
  }
  void wait() override {
    state_->wait_on_host(at_us_, clock_);
    state_->throw_failure(stream_);
  }

 private:
  friend class SimulatedStreams;
  const std::shared_ptr<State> state_;
  const Stream stream_;
  const double at_us_;
  const StreamChecker::Clock clock_;
};

SimulatedStreams::SimulatedStreams(double kernel_us, bool takes_all_work)
    : kernel_us_(kernel_us), takes_all_work_(takes_all_work), state_(std::make_shared<State>()) {}

SimulatedStreams::~SimulatedStreams() {
  const std::lock_guard lock(state_->mutex);
  state_->pending.clear();
}

Stream SimulatedStreams::new_stream() {
  const std::lock_guard lock(state_->mutex);
  // A number, not an address: it is never dereferenced, and null is the default stream.
  return {reinterpret_cast<void*>(++state_->streams_made)};
}

void SimulatedStreams::delete_stream(Stream stream) noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->busy_until_us.erase(stream.handle);
  state_->failures.erase(stream.handle);
}

void SimulatedStreams::queue(Stream stream, StreamWork work) {
  const double us = work.us.value_or(kernel_us_);
  queue(stream, std::move(work), us);
}

void SimulatedStreams::queue(Stream stream, StreamWork work, double us) {
  double end = 0;
  bool at_once = false, blocking = false;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->checker) state_->checker->add(stream, work);
    end = state_->end_of(stream) + us;
    at_once = end <= state_->now_us;
    blocking = state_->blocking;
    if (blocking && state_->checker) state_->checker->host_waits(state_->checker->now(stream));
    if (!at_once) {
      state_->stay_busy_until(stream, end);
      state_->pending.emplace(std::pair(end, state_->works_queued++),
                              State::Pending{stream, std::move(work.run)});
    }
  }
  // Runs without a lock, because it may wait for another thread's work on the same device.
  if (at_once) return work.run(stream);
  if (!blocking) return;
  {
    const std::lock_guard running(state_->running_mutex);
    state_->advance_to(end);
  }
  state_->throw_failure(stream);
}

bool SimulatedStreams::takes_work(Stream stream) const {
  if (takes_all_work_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->checker || state_->end_of(stream) > state_->now_us;
}

void SimulatedStreams::occupy(Stream stream, double us) {
  queue(stream, {[](Stream) {}}, us);
}

void SimulatedStreams::wait(Stream stream, Stream other) {
  const std::lock_guard lock(state_->mutex);
  state_->stay_busy_until(stream, std::max(state_->end_of(stream), state_->end_of(other)));
  if (state_->checker) state_->checker->wait(stream, state_->checker->now(other));
}

void SimulatedStreams::wait(Stream stream, const Event& event) {
  const auto* timed = dynamic_cast<const TimedEvent*>(&event);
  if (timed == nullptr || timed->state_ != state_)
    throw InvalidArgument("wait: the event is another device's");
  const std::lock_guard lock(state_->mutex);
  state_->stay_busy_until(stream, std::max(state_->end_of(stream), timed->at_us_));
  if (state_->checker) state_->checker->wait(stream, timed->clock_);
}

std::unique_ptr<Event> SimulatedStreams::record_event(Stream stream) {
  const std::lock_guard lock(state_->mutex);
  return std::make_unique<TimedEvent>(
      state_, stream, state_->end_of(stream),
      state_->checker ? state_->checker->now(stream) : StreamChecker::Clock{});
}

void SimulatedStreams::synchronize(Stream stream) {
  // Not by record_event(): a step takes nothing from the heap.
  double end_us = 0;
  StreamChecker::Clock clock;
  {
    const std::lock_guard lock(state_->mutex);
    end_us = state_->end_of(stream);
    if (state_->checker) clock = state_->checker->now(stream);
  }
  TimedEvent(state_, stream, end_us, std::move(clock)).wait();
}

void SimulatedStreams::synchronize_all() noexcept {
  const std::lock_guard running(state_->running_mutex);
  double end_us = 0;
  {
    const std::lock_guard lock(state_->mutex);
    end_us = state_->now_us;
    for (const auto& [stream, busy_until_us] : state_->busy_until_us)
      end_us = std::max(end_us, busy_until_us);
    if (!state_->pending.empty()) end_us = std::max(end_us, state_->pending.rbegin()->first.first);
  }
  state_->advance_to(end_us);
  const std::lock_guard lock(state_->mutex);
  if (state_->checker) state_->checker->host_waits_for_all();
}

void SimulatedStreams::forget(const void* data, int64_t bytes) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->checker) state_->checker->forget(data, bytes);
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

void SimulatedStreams::set_blocking(bool blocking) {
  const std::lock_guard lock(state_->mutex);
  state_->blocking = blocking;
}

void SimulatedStreams::check_waits() {
  const std::lock_guard lock(state_->mutex);
  if (!state_->checker) state_->checker.emplace();
}

}  // namespace headroom
