// A program as one of several ranks, processes that mpirun has started: it runs to its end on all of them, or
// ends on all of them with one message. Knows no training.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "examples/models/mnist/facts.h"
#include "runtime/collective/collective.h"

namespace headroom {

class RankJob {
 public:
  virtual ~RankJob() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& host() const = 0;
  // Which of the `devices` of its host the rank takes: the ranks of a host take them in turn.
  virtual int device_of(int devices) const = 0;

  // What a failure of this rank names beside rank and host, and how long ranks wait for each other.
  virtual void set_device(const std::string& device) = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  // "rank 1 of 4 on node7, /GPU:1".
  virtual const std::string& name() const = 0;

  // The collective of all ranks, with the timeout of the last set_timeout; all must ask for it together.
  virtual Collective& group() = 0;
  // Throws InvalidArgument on ranks where one of the facts is not what it is on rank 0, naming each that is
  // not. Ranks of which all are equal return once all are found to be.
  virtual void require_equal(const Facts& facts) = 0;
  // To be called by a rank that has failed, before it says why. Returns for the first; the others end here.
  virtual void ask_to_speak() = 0;
};

// The exit code of `body`, which is given null where no launcher has started this process as a rank. With
// ranks an exception of `body` is said by one rank alone, led by its name, and ends all of them, and so does
// an exit code of a failure (see ExitCode), for which ask_to_speak must have been called.
int run_as_rank(const char* program, const std::function<int(RankJob*)>& body);

}  // namespace headroom
