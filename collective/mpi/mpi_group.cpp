#include "collective/mpi/mpi_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"

namespace headroom {
namespace {

// Pauses between two looks for a message: none at first, so that ranks in step meet in microseconds; later
// naps, which leave the processor to others, perhaps to the ranks that this one waits for.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds timeout) : end_(MpiGroup::Clock::now() + timeout) {}
  // False when the time is over.
  bool wait() {
    constexpr int kSpins = 2000;
    constexpr useconds_t kNapUs = 50;  // Linux's timers add this much to a nap in any case
    if (++looks_ > kSpins) usleep(kNapUs);
    return MpiGroup::Clock::now() < end_;
  }

 private:
  const MpiGroup::Clock::time_point end_;
  int looks_ = 0;
};

}  // namespace

MpiGroup::MpiGroup(std::chrono::milliseconds timeout, std::vector<std::string> names)
    : timeout_(timeout), names_(std::move(names)) {
  check(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_));
  // A failure is returned as a status instead of ending the process with a page of text.
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  int size = 0;
  check(MPI_Comm_rank(communicator_, &rank_));
  check(MPI_Comm_size(communicator_, &size));
  peers_.resize(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    if (rank != rank_) expect(rank);
  }
}

void MpiGroup::expect(int rank) {
  Peer& peer = peers_[rank];
  check(MPI_Irecv(&peer.inbox, sizeof peer.inbox, MPI_BYTE, rank, 0, communicator_, &peer.receiving));
}

// A message of one KiB is sent at once, even before the receiver asks for it (OpenMPI's eager limit is 4 KiB,
// MPICH's is more), so sending does not wait for a late rank.
void MpiGroup::send(const Message& message) {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_) check(MPI_Send(&message, sizeof message, MPI_BYTE, rank, 0, communicator_));
  }
}

// Takes the messages that have come, one of each rank that has not arrived yet.
void MpiGroup::listen() {
  for (int rank = 0; rank < size(); ++rank) {
    Peer& peer = peers_[rank];
    if (peer.receiving == MPI_REQUEST_NULL || peer.arrived) continue;
    int has_come = 0;
    check(MPI_Test(&peer.receiving, &has_come, MPI_STATUS_IGNORE));
    if (has_come == 0) continue;
    const Message message = peer.inbox;
    if (message.kind != Kind::kLeave) expect(rank);
    hear(rank, message);
  }
}

void MpiGroup::hear(int rank, const Message& message) {
  Peer& peer = peers_[rank];
  if (message.kind == Kind::kArrive) peer.arrived = message.call;
  if (message.kind == Kind::kLeave) peer.has_left = true;
  // The first cause is the one that all ranks name.
  if (message.kind == Kind::kGiveUp && broken_.empty()) {
    broken_ = message.cause;
    broken_round_ = message.round;
  }
}

void MpiGroup::meet(const CollectiveCall& call) {
  call_ = call;
  ++round_;
  require_usable();
  Message message;
  message.call = call;
  send(message);
  peers_[rank_].arrived = call;
  const auto have_arrived = [this] {
    return std::ranges::all_of(peers_, [](const Peer& peer) { return peer.arrived.has_value(); });
  };
  for (Patience patience(timeout_);;) {
    listen();
    if (have_arrived()) break;
    require_usable();
    if (!patience.wait()) give_up(late_ranks_text());
  }
  const std::string mismatch = find_mismatch();
  for (Peer& peer : peers_) peer.arrived.reset();
  if (!mismatch.empty()) fail(mismatch);
  // A rank that arrived and then gave up has sent its message by now.
  listen();
  if (is_broken()) fail(broken_);
}

void MpiGroup::wait(MPI_Request request) {
  for (Patience patience(timeout_);;) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done != 0) return;
    listen();
    // A rank that has left is no reason to fail: it may have done its part of this call and ended well.
    if (is_broken()) fail(broken_);
    if (!patience.wait()) {
      give_up(fmt::format("all ranks arrived, but did not finish within {} ms", timeout_.count()));
    }
  }
}

void MpiGroup::check(int status) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  broken_ = fmt::format("MPI failed: {}", text);
  broken_round_ = round_;
  fail(broken_);
}

void MpiGroup::require_usable() {
  for (int rank = 0; rank < size() && !is_broken(); ++rank) {
    if (peers_[rank].has_left && !peers_[rank].arrived)
      give_up(fmt::format("{} has died", name_of_rank(rank)));
  }
  if (is_broken()) fail(broken_);
}

// The others, also late ones, get the cause before the message that this rank has left.
void MpiGroup::give_up(const std::string& cause) {
  broken_ = cause;
  broken_round_ = round_;
  Message message;
  message.kind = Kind::kGiveUp;
  message.round = round_;
  std::strncpy(message.cause, cause.c_str(), sizeof message.cause - 1);
  send(message);
  fail(cause);
}

void MpiGroup::fail(const std::string& cause) const {
  throw CollectiveError(rank_, call_.name(), cause);
}

std::string MpiGroup::name_of_rank(int rank) const {
  return names_.empty() ? fmt::format("rank {}", rank) : names_[rank];
}

std::string MpiGroup::late_ranks_text() const {
  std::vector<std::string> late;
  for (int rank = 0; rank < size(); ++rank) {
    if (!peers_[rank].arrived) late.push_back(name_of_rank(rank));
  }
  return fmt::format("{} did not arrive within {} ms", fmt::join(late, " and "), timeout_.count());
}

std::string MpiGroup::find_mismatch() const {
  const CollectiveCall& first = *peers_[0].arrived;
  for (int rank = 1; rank < size(); ++rank) {
    const CollectiveCall& other = *peers_[rank].arrived;
    if (other != first) return mismatch_text(first, rank, other);
  }
  return {};
}

void MpiGroup::leave() noexcept {
  Message message;
  message.kind = Kind::kLeave;
  try {
    send(message);
  } catch (const CollectiveError&) {  // the waiting ranks run into their timeout
  }
}

void MpiGroup::finish() {
  for (int rank = 0; rank < size(); ++rank) {
    Peer& peer = peers_[rank];
    while (peer.receiving != MPI_REQUEST_NULL) {
      check(MPI_Wait(&peer.receiving, MPI_STATUS_IGNORE));
      if (peer.inbox.kind != Kind::kLeave) expect(rank);
    }
  }
}

}  // namespace headroom
