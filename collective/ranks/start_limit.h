// Bounds the time until a rank has met the others, since MPI's start itself has no timeout. Knows no MPI.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace headroom {

// Returns true if an MPI launcher (mpirun, srun) has started this process as one of several ranks.
bool is_started_by_mpi();

// Ends the process, with one line that begins with `program` and the exit code of a library's failure, unless
// it is destroyed within `timeout`. A launcher that sees a rank end earlier sends a signal to the others: of
// these only rank 0 prints a line.
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
