// Bounds the time in which a rank meets the others, which calls that start a library of ranks do not. Knows
// no MPI.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace headroom {

// Ends the process, with one line that `program` leads and the exit code of a library's failure, when it is
// not destroyed within `timeout`.
class StartLimit {
 public:
  StartLimit(const std::string& program, std::chrono::milliseconds timeout);
  ~StartLimit();
  StartLimit(const StartLimit&) = delete;
  StartLimit& operator=(const StartLimit&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_started_ = false;
  std::thread thread_;
};

}  // namespace headroom
