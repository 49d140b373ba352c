// Lets the ranks of one communicator meet for a call, and detects failures. Includes MPI's header, so nothing
// outside this folder includes this one.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collective/collective_call.h"

namespace headroom {

// Before a call moves any byte, each rank tells every other which call it makes. This shows which ranks are
// late, shows a mismatch to all before anything has changed, and carries the cause if a rank dies or gives
// up.
class MpiGroup {
 public:
  using Clock = std::chrono::steady_clock;

  // All ranks of the job must make it; `names`, by rank, are for messages. Throws CollectiveError when MPI
  // fails.
  MpiGroup(std::chrono::milliseconds timeout, std::vector<std::string> names);
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  MPI_Comm communicator() const { return communicator_; }

  // Returns once all ranks have arrived with this call. Throws CollectiveError as Collective says.
  void meet(const CollectiveCall& call);
  // Waits for a transfer of this call, which all ranks have reached. Throws CollectiveError if one gives up
  // or it takes longer than the timeout; its memory must then stay valid.
  void wait(MPI_Request request);
  // Throws CollectiveError unless MPI's answer is success.
  void check(int status);

  // Tells all others that this rank makes no more calls.
  void leave() noexcept;
  // Takes the last messages of all others, which must have left or be about to.
  void finish();

 private:
  enum class Kind : int64_t { kArrive, kLeave, kGiveUp };
  struct Message {
    Kind kind = Kind::kArrive;
    int64_t round = 0;  // round in which it gave up
    CollectiveCall call;
    char cause[984] = "";  // reason for giving up
  };
  struct Peer {
    Message inbox;                             // where MPI writes the next message
    MPI_Request receiving = MPI_REQUEST_NULL;  // while one is expected
    std::optional<CollectiveCall> arrived;     // the call that it is at and this rank has not left yet
    bool has_left = false;
  };

  void expect(int rank);
  void send(const Message& message);
  void listen();
  void hear(int rank, const Message& message);
  bool is_broken() const { return !broken_.empty() && broken_round_ <= round_; }
  void require_usable();
  [[noreturn]] void give_up(const std::string& cause);
  [[noreturn]] void fail(const std::string& cause) const;
  std::string name_of_rank(int rank) const;
  std::string late_ranks_text() const;
  std::string find_mismatch() const;

  const std::chrono::milliseconds timeout_;
  const std::vector<std::string> names_;  // may be none
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  std::vector<Peer> peers_;  // by rank; the own one is not used
  CollectiveCall call_;      // the current one
  int64_t round_ = 0;        // number of calls made with it
  std::string broken_;       // reason that the group is broken permanently; empty if it is not
  int64_t broken_round_ =
      0;  // a faster rank may break a later round: the one at which all have arrived is finished
};

}  // namespace headroom
