// Feeds a session batch by batch: a thread of its own fills page-locked host memory and queues its copy to
// the device on a stream of its own, while the session computes the batch before. Knows no data.
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

#include "runtime/device/host_buffer.h"
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
  // Writes every input of batch `number`. Called on the loader's thread, for one batch after the other; it
  // must return for the loader to end.
  using Fill = std::function<void(int64_t number, const Batch& batch)>;

  // So many batches are in host memory at once, at least 2; two of them are on the device, too. The plan of
  // `session` must have doubled inputs, and the session must outlive this. Throws InvalidArgument, and
  // DeviceError when there is no memory that can be page-locked or no stream.
  Loader(Session& session, Fill fill, int64_t depth);
  // Waits for the batch that is being filled; what is not computed yet is dropped.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // From here on batches `first` to `end` - 1 come; what was not computed of earlier ones is dropped.
  void begin(int64_t first, int64_t end);
  // Drops what is not computed yet, once the batch is done that is being filled; none comes until begin().
  void stop() noexcept;
  // Runs the session on the next `steps` batches, as Session::run does; what is fetched is of the last one.
  // What filling or copying a batch has thrown comes out here once those before it are done, at this call and
  // each one until begin(). Where the run of a batch throws, that batch is the next one again. Throws
  // InvalidArgument where there are not so many batches left.
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
  // The next batch to be filled, to be copied, to be computed, as far as that is queued.
  int64_t filled_ = 0, copied_ = 0, done_ = 0;
  std::map<int64_t, std::unique_ptr<Event>> arrivals_;  // by batch: when its inputs are on the device
  // By set of inputs: when what was queued on it is done; null where it is.
  std::array<std::unique_ptr<Event>, 2> ends_;
  std::exception_ptr failure_;
  int64_t failed_ = 0;  // the batch that it is of; `end_` where there is none
  std::thread thread_;
};

}  // namespace headroom
