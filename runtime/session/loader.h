// Feeds a session batch by batch: a thread fills page-locked host memory and queues its copy to the device on
// its own stream, while the session computes the batch before. Knows no data.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "device/host_buffer.h"
#include "runtime/session/session.h"

namespace headroom {

class Loader {
 public:
  // The inputs of one batch in host memory, zeroed or as an earlier batch left them.
  class Batch {
   public:
    // Throws InvalidArgument when the plan does not read that input or T is not its dtype.
    template <typename T>
    std::span<T> input(const Value& value) const {
      const std::span<std::byte> bytes = bytes_of(value, dtype_of<T>);
      return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
    }

   private:
    friend class Loader;
    Batch(const Session& session, std::byte* base) : session_(session), base_(base) {}
    std::span<std::byte> bytes_of(const Value& value, DType dtype) const;

    const Session& session_;
    std::byte* base_;
  };
  // Writes every input of batch `number`. Called on the loader's thread, for one batch after the other. The
  // loader cannot end before it returns.
  using Fill = std::function<void(int64_t number, const Batch& batch)>;

  // Keeps `depth` (>= 2) batches in host memory, and two of them also on the device. The plan of `session`
  // must have doubled inputs, and the session must outlive this. Throws InvalidArgument, and DeviceError if
  // there is no page-locked memory or no stream.
  Loader(Session& session, Fill fill, int64_t depth);
  // Waits for the batch that is being filled, and drops the batches that are not computed yet.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Starts to load batches `first` to `end` - 1, and drops earlier ones that are not computed yet.
  void begin(int64_t first, int64_t end);
  // Drops the batches that are not computed yet, once the one that is being filled is done.
  void stop() noexcept;
  // Runs the session on the next `steps` batches, as Session::run does, and fetches the last one's values. An
  // exception of filling or copying a batch is thrown here once the batches before it are done, and again at
  // each call until begin(). After an exception of running a batch, that batch is the next one again. Throws
  // InvalidArgument when fewer batches are left.
  void run(int64_t steps = 1);

 private:
  void work();
  void run_next(bool is_last);
  std::unique_ptr<Event> copy(int64_t number, const HostBuffer& buffer);
  void fill(int64_t number, const HostBuffer& buffer);
  bool can_copy() const;
  bool can_fill() const;

  Session& session_;
  Device& device_;
  const Fill fill_;
  std::vector<HostBuffer> buffers_;
  Stream stream_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  int64_t end_ = 0;
  // The next batch to fill, to queue for copying, and to queue for computing.
  int64_t filled_ = 0, copied_ = 0, done_ = 0;
  std::map<int64_t, std::unique_ptr<Event>> arrivals_;  // by batch: when its inputs are on the device
  // By input set: the end of the work queued on it; null when it is done.
  std::array<std::unique_ptr<Event>, 2> ends_;
  std::exception_ptr failure_;
  int64_t failed_ = 0;  // the batch that failed; `end_` when none did
  std::thread thread_;
};

}  // namespace headroom
