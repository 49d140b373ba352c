// A program as one of several ranks started by mpirun. All ranks finish, or all end with one error message.
// Knows no training.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/end_signals.h"
#include "collective/collective.h"
#include "examples/models/mnist/fingerprint.h"

namespace headroom {

class RankJob {
 public:
  virtual ~RankJob() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& host() const = 0;
  // The index of this rank's device. The ranks of a host take its `devices` in turn.
  virtual int device_of(int devices) const = 0;

  // The device that error messages name, and how long ranks wait for each other.
  virtual void set_device(const std::string& device) = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  // "rank 1 of 4 on node7, /GPU:1".
  virtual const std::string& name() const = 0;

  // The collective of all ranks with the current timeout. All ranks must make the first call together.
  virtual Collective& group() = 0;
  // Returns on all ranks if all fingerprints are equal. Otherwise throws InvalidArgument, on the ranks that
  // differ from rank 0, with each difference.
  virtual void require_equal(const Fingerprint& fingerprint) = 0;
  // The signals that ask this rank to end. From the call on `body` answers them: it ends on all ranks, with
  // exit code 128 + signal. Before, a signal ends the job as a failure does.
  virtual const EndSignals& answer_signals() = 0;
  // A failed rank must call this before it prints its error. Returns on the first rank that calls; ends the
  // others.
  virtual void claim_error_report() = 0;
};

// Calls `body` and returns its exit code. `body` gets null if mpirun did not start this process. If `body`
// throws on a rank, one rank prints the error with its name and all ranks end. A failing exit code (see
// ExitCode) also ends all ranks; `body` must have called claim_error_report before.
int run_as_rank(const char* program, const std::function<int(RankJob*)>& body);

}  // namespace headroom
