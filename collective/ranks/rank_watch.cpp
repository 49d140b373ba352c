#include "collective/ranks/rank_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/errors.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;

// Between SIGTERM and the end: time to learn which rank died before. OpenMPI's mpirun sends SIGKILL after a
// second.
constexpr milliseconds kEndDelay(300);
// Several, so that some may be late on a loaded machine before a rank counts as dead.
constexpr int64_t kChecksPerTimeout = 8;
constexpr milliseconds kShortestPause(1), kLongestPause(1000);

}  // namespace

RankWatch::RankWatch(Collective& group, const std::string& host, std::string program, milliseconds timeout)
    : rank_(group.rank()),
      size_(group.size()),
      program_(std::move(program)),
      timeout_ms_(std::min(timeout, kMaxSilence).count()),
      peers_(static_cast<size_t>(size_)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  std::vector<RankLink> links = link_ranks(group, host, timeout);
  for (int rank = 0; rank < size_; ++rank) {
    peers_[rank].link = std::move(links[static_cast<size_t>(rank)]);
    peers_[rank].is_linked = peers_[rank].link.is_open();
    peers_[rank].name = fmt::format("rank {}", rank);
  }
  group.barrier();
  set_name(fmt::format("rank {} on {}", rank_, host));
  signals_.emplace(wake_, EndSignals::Second::kIsIgnored);
  thread_ = std::thread([this] { watch(); });
}

RankWatch::~RankWatch() {
  finish();
  // A signal that comes now would end this rank alone, with the work of all done.
  signals_->ignore_from_now();
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    wake_watch();
  }
  thread_.join();
  close_links();
  signals_.reset();
  close(wake_);
}

void RankWatch::set_timeout(milliseconds timeout) {
  timeout_ms_ = std::min(timeout, kMaxSilence).count();
}

void RankWatch::set_name(const std::string& name) {
  const std::lock_guard lock(mutex_);
  peers_[rank_].name = name;
  send_all({RankMessageKind::kName, rank_, name});
}

const EndSignals& RankWatch::leave_signals_to_work() {
  const std::lock_guard lock(mutex_);
  work_answers_signals_ = true;
  return *signals_;
}

void RankWatch::send_all(const RankMessage& message) noexcept {
  for (Peer& peer : peers_) peer.link.send(message);
}

void RankWatch::wake_watch() noexcept {
  const uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof one));
}

milliseconds RankWatch::pause() const {
  return std::clamp(milliseconds(timeout_ms_ / kChecksPerTimeout), kShortestPause,
                    first_signal_ ? kEndDelay / kChecksPerTimeout : kLongestPause);
}

void RankWatch::watch() {
  auto last_check = Clock::now(), next_heartbeat = last_check;
  for (std::unique_lock lock(mutex_); !stopped_; lock.lock()) {
    const milliseconds wait = pause();
    // By the clock, not as an answer: two ranks that answer each other would do nothing else.
    if (last_check >= next_heartbeat) {
      send_all({});
      next_heartbeat = last_check + wait;
    }
    lock.unlock();
    receive(std::min(wait, std::chrono::ceil<milliseconds>(next_heartbeat - last_check)));
    lock.lock();
    const auto now = Clock::now();
    // This process itself was stopped or got no processor; messages of that time are still unread.
    if (now - last_check > 3 * wait) {
      for (Peer& peer : peers_) peer.heard = now;
    }
    last_check = now;
    if (const int signal = signals_->arrived()) note_signal(rank_, signal);
    check_ranks(now);
    check_signals(now);
    grant_report();
    lock.unlock();
  }
}

// Waits for messages, at most that long, and handles those that have come.
void RankWatch::receive(milliseconds wait) {
  std::vector<pollfd> entries = {{wake_, POLLIN, 0}};
  for (const Peer& peer : peers_) {
    if (peer.link.is_open()) entries.push_back({peer.link.socket(), POLLIN, 0});
  }
  poll(entries.data(), entries.size(), static_cast<int>(wait.count()));
  uint64_t woken = 0;
  static_cast<void>(!read(wake_, &woken, sizeof woken));
  const std::lock_guard lock(mutex_);
  for (int rank = 0; rank < size_; ++rank) {
    for (const RankMessage& message : peers_[rank].link.receive()) handle(rank, message);
  }
}

void RankWatch::handle(int rank, const RankMessage& message) {
  Peer& peer = peers_[rank];
  peer.heard = Clock::now();
  switch (message.kind) {
    case RankMessageKind::kName:
      peer.name = message.text;
      break;
    case RankMessageKind::kDone:
      peer.is_done = true;
      changed_.notify_all();
      break;
    case RankMessageKind::kSignal:
      note_signal(rank, message.value);
      break;
    case RankMessageKind::kClaimReport:
      if (claimant_ < 0) claimant_ = rank;
      break;
    case RankMessageKind::kGrantReport:
      reporter_ = rank_;
      changed_.notify_all();
      break;
    case RankMessageKind::kEnd:
      if (rank_ == 0) send_all(message);
      exit_now(message.value);
    case RankMessageKind::kHello:
    case RankMessageKind::kHeartbeat:
      break;
  }
}

void RankWatch::note_signal(int rank, int signal) {
  if (peers_[rank].signal != 0) return;
  peers_[rank].signal = signal;
  if (!first_signal_) first_signal_ = Clock::now();
  if (rank == rank_) send_all({RankMessageKind::kSignal, signal});
}

void RankWatch::check_ranks(Clock::time_point now) {
  if (reporter_ == rank_) return;
  const milliseconds timeout(timeout_ms_);
  for (int rank = 0; rank < size_; ++rank) {
    const Peer& peer = peers_[rank];
    const bool reports = rank == reporter_;
    // While a rank reports, only that one is watched. A rank that got a signal may end.
    const bool may_end = reporter_ >= 0 || (peer.signal != 0 && !work_answers_signals_);
    if (!peer.is_linked || peer.is_done || (!reports && may_end)) continue;
    if (!peer.link.is_open()) {
      end_for(rank, "its process ended without an error message: killed from outside, or crashed");
    }
    if (now - peer.heard > timeout) {
      end_for(rank, fmt::format("no heartbeat from its process for {} ms: stopped, or its host is gone",
                                timeout.count()));
    }
  }
}

// Rank 0 reports for all; if it cannot, rank 1 does, and the others end last.
void RankWatch::check_signals(Clock::time_point now) {
  const int turn = std::min(rank_, 2);
  const milliseconds delay = work_answers_signals_ ? milliseconds(timeout_ms_) : kEndDelay;
  if (!first_signal_ || reporter_ >= 0 || now - *first_signal_ < delay + turn * kEndDelay) return;
  const auto is_signaled = [](const Peer& peer) { return peer.signal != 0 && !peer.is_done; };
  const auto first = std::ranges::find_if(peers_, is_signaled);
  if (first == peers_.end()) return;
  const bool is_all = size_ > 1 && std::ranges::all_of(peers_, is_signaled);
  end_for(static_cast<int>(first - peers_.begin()),
          fmt::format("asked to end by {}{}", first->signal == SIGINT ? "SIGINT" : "SIGTERM",
                      is_all ? ", as all ranks were" : ""));
}

// Grants only the first claim: if several ranks fail the same way, one reports.
void RankWatch::grant_report() {
  if (reporter_ >= 0 || claimant_ < 0) return;
  reporter_ = claimant_;
  peers_[reporter_].link.send({RankMessageKind::kGrantReport});
  changed_.notify_all();
}

// Rank 0 reports on all others, and rank 1 on rank 0: one line, not one from each.
void RankWatch::end_for(int rank, const std::string& cause) {
  if (rank_ <= 1) {
    // By write(): a thread that was stopped while it printed may hold the stream's lock.
    const std::string line = fmt::format("{}: {}: {}\n", program_, peers_[rank].name, cause);
    static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  } else {
    // The launcher ends all when it sees one end, and rank 1 may need one more check.
    std::this_thread::sleep_for(pause() + kEndDelay);
  }
  send_all({RankMessageKind::kEnd, kExitLibraryFailure});
  exit_now(kExitLibraryFailure);
}

void RankWatch::claim_error_report() {
  std::unique_lock lock(mutex_);
  if (rank_ == 0) {
    if (claimant_ < 0) claimant_ = 0;
    wake_watch();
  } else {
    peers_[0].link.send({RankMessageKind::kClaimReport});
  }
  // The watching thread ends the process when another rank reports or rank 0 is gone.
  changed_.wait(lock, [this] { return reporter_ == rank_; });
}

void RankWatch::end_job(int exit_code) {
  std::fflush(nullptr);
  const std::lock_guard lock(mutex_);
  send_all({RankMessageKind::kEnd, exit_code});
  exit_now(exit_code);
}

// All ranks end together: if the others were gone, none could report a rank that fails.
void RankWatch::finish() {
  std::unique_lock lock(mutex_);
  send_all({RankMessageKind::kDone});
  changed_.wait(lock, [this] {
    return std::ranges::all_of(peers_, [](const Peer& peer) { return peer.is_done || !peer.is_linked; });
  });
}

// Not by exit(), which joins other threads: they may wait forever for ranks, on a GPU as well.
void RankWatch::exit_now(int exit_code) noexcept {
  close_links();
  _exit(exit_code);
}

// Gives the other ends time to read everything that was sent.
void RankWatch::close_links() noexcept {
  const auto end = Clock::now() + kEndDelay;
  for (Peer& peer : peers_) peer.link.finish(end);
}

}  // namespace headroom
