// How the ranks of one communicator come together for a call, and find out when that fails. Includes MPI's
// header, so nothing outside this folder includes this one.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collective/collective_call.h"

namespace headroom {

// Before a call moves any byte, each rank tells every other what it calls. This shows which ranks are late,
// shows a mismatch to all before anything has changed, and carries the cause when a rank dies or gives up.
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
  // Waits for a transfer of this call, which all ranks have arrived at. Throws CollectiveError when one gives
  // up or it takes longer than the timeout; what it moves must then stay where it is.
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
    int64_t round = 0;  // of giving up
    CollectiveCall call;
    char cause[984] = "";  // of giving up
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
  int64_t round_ = 0;        // how many calls there were with it
  std::string broken_;       // why the group is broken for good; empty if it is not
  int64_t broken_round_ =
      0;  // a faster rank may break a later round: the one at which all have arrived is finished
};

}  // namespace headroom
