// Tables and scratch memory that grow with the extents: a kernel makes them at its first run. A plan asks a
// kernel for its workspace alone, also where the extents have no room anywhere. Knows no op.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace headroom::cpu {

template <typename T>
class OnFirstUse {
 public:
  explicit OnFirstUse(std::function<T()> make) : state_(std::make_shared<State>(std::move(make))) {}

  // All copies have one value, on any thread.
  const T& operator*() const {
    if (const T* value = state_->ready.load(std::memory_order_acquire)) return *value;
    const std::lock_guard lock(state_->mutex);
    if (!state_->value) state_->value.emplace(state_->make());
    state_->ready.store(&*state_->value, std::memory_order_release);
    return *state_->value;
  }
  const T* operator->() const { return &**this; }

 private:
  struct State {
    explicit State(std::function<T()> f) : make(std::move(f)) {}
    std::function<T()> make;
    std::mutex mutex;
    std::optional<T> value;
    std::atomic<const T*> ready = nullptr;
  };
  std::shared_ptr<State> state_;
};

}  // namespace headroom::cpu
