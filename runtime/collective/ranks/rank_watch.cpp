#include "runtime/collective/ranks/rank_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "runtime/base/errors.h"
#include "runtime/collective/ranks/link_ranks.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;

// Between SIGTERM and the end: time to hear who has died before. OpenMPI's mpirun sends SIGKILL after a
// second.
constexpr milliseconds kLastWords(300);
// Looks within the timeout: some may be late on a loaded machine before a rank is given up.
constexpr int64_t kLooks = 8;
constexpr milliseconds kShortestPause(1), kLongestPause(1000);

}  // namespace

RankWatch::RankWatch(Collective& group, const std::string& host, std::string program, milliseconds timeout)
    : rank_(group.rank()),
      size_(group.size()),
      program_(std::move(program)),
      timeout_ms_(timeout.count()),
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
  signals_.emplace(wake_);
  thread_ = std::thread([this] { watch(); });
}

RankWatch::~RankWatch() {
  finish();
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

void RankWatch::set_name(const std::string& name) {
  const std::lock_guard lock(mutex_);
  peers_[rank_].name = name;
  tell_all({RankWord::kName, rank_, name});
}

void RankWatch::tell_all(const RankMessage& message) noexcept {
  for (Peer& peer : peers_) peer.link.send(message);
}

void RankWatch::wake_watch() noexcept {
  const uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof one));
}

milliseconds RankWatch::pause() const {
  return std::clamp(milliseconds(timeout_ms_ / kLooks), kShortestPause,
                    first_signal_ ? kLastWords / kLooks : kLongestPause);
}

void RankWatch::watch() {
  auto last_look = Clock::now(), next_word = last_look;
  for (std::unique_lock lock(mutex_); !stopped_; lock.lock()) {
    const milliseconds wait = pause();
    // By the clock, not as an answer: two ranks that answered each other would do nothing else.
    if (last_look >= next_word) {
      tell_all({});
      next_word = last_look + wait;
    }
    lock.unlock();
    listen(std::min(wait, std::chrono::ceil<milliseconds>(next_word - last_look)));
    lock.lock();
    const auto now = Clock::now();
    // This process itself was stopped, or got no processor: what the others said meanwhile is yet to be read.
    if (now - last_look > 3 * wait) {
      for (Peer& peer : peers_) peer.heard = now;
    }
    last_look = now;
    if (const int signal = signals_->arrived()) note_signal(rank_, signal);
    look_for_the_dead(now);
    look_for_signals(now);
    let_speak();
    lock.unlock();
  }
}

// Waits for messages, at most so long, and takes what has come.
void RankWatch::listen(milliseconds wait) {
  std::vector<pollfd> entries = {{wake_, POLLIN, 0}};
  for (const Peer& peer : peers_) {
    if (peer.link.is_open()) entries.push_back({peer.link.socket(), POLLIN, 0});
  }
  poll(entries.data(), entries.size(), static_cast<int>(wait.count()));
  uint64_t woken = 0;
  static_cast<void>(!read(wake_, &woken, sizeof woken));
  const std::lock_guard lock(mutex_);
  for (int rank = 0; rank < size_; ++rank) {
    for (const RankMessage& message : peers_[rank].link.receive()) hear(rank, message);
  }
}

void RankWatch::hear(int rank, const RankMessage& message) {
  Peer& peer = peers_[rank];
  peer.heard = Clock::now();
  switch (message.word) {
    case RankWord::kName:
      peer.name = message.text;
      break;
    case RankWord::kDone:
      peer.is_done = true;
      changed_.notify_all();
      break;
    case RankWord::kAskedToEnd:
      note_signal(rank, message.value);
      break;
    case RankWord::kAskToSpeak:
      if (asking_ < 0) asking_ = rank;
      break;
    case RankWord::kSpeak:
      speaker_ = rank_;
      changed_.notify_all();
      break;
    case RankWord::kEnd:
      if (rank_ == 0) tell_all(message);
      leave(message.value);
    case RankWord::kHello:
    case RankWord::kAlive:
      break;
  }
}

void RankWatch::note_signal(int rank, int signal) {
  if (peers_[rank].signal != 0) return;
  peers_[rank].signal = signal;
  if (!first_signal_) first_signal_ = Clock::now();
  if (rank == rank_) tell_all({RankWord::kAskedToEnd, signal});
}

void RankWatch::look_for_the_dead(Clock::time_point now) {
  if (speaker_ == rank_) return;
  const milliseconds timeout(timeout_ms_);
  for (int rank = 0; rank < size_; ++rank) {
    const Peer& peer = peers_[rank];
    const bool speaks = rank == speaker_;
    // While one speaks, only that it does is watched; one that was asked to end may do so.
    if (!peer.is_linked || peer.is_done || (!speaks && (speaker_ >= 0 || peer.signal != 0))) continue;
    if (!peer.link.is_open()) {
      end_for(rank, "its process ended without a word: killed from outside, or crashed");
    }
    if (now - peer.heard > timeout) {
      end_for(rank, fmt::format("nothing was heard of its process for {} ms: stopped, or its host is gone",
                                timeout.count()));
    }
  }
}

// Rank 0 says it for all; should it not be able to, rank 1 does, and the others go last.
void RankWatch::look_for_signals(Clock::time_point now) {
  const int turn = std::min(rank_, 2);
  if (!first_signal_ || speaker_ >= 0 || now - *first_signal_ < (turn + 1) * kLastWords) return;
  const auto is_asked = [](const Peer& peer) { return peer.signal != 0 && !peer.is_done; };
  const auto first = std::find_if(peers_.begin(), peers_.end(), is_asked);
  if (first == peers_.end()) return;
  const bool is_all = size_ > 1 && std::all_of(peers_.begin(), peers_.end(), is_asked);
  end_for(static_cast<int>(first - peers_.begin()),
          fmt::format("asked to end by {}{}", first->signal == SIGINT ? "SIGINT" : "SIGTERM",
                      is_all ? ", as all ranks were" : ""));
}

// The first that asks alone: of ranks that fail alike, one says so.
void RankWatch::let_speak() {
  if (speaker_ >= 0 || asking_ < 0) return;
  speaker_ = asking_;
  peers_[speaker_].link.send({RankWord::kSpeak});
  changed_.notify_all();
}

// Rank 0 speaks of all others, and rank 1 of rank 0: one line, not one from each.
void RankWatch::end_for(int rank, const std::string& cause) {
  if (rank_ <= 1) {
    // By write: a thread that was stopped while it printed may hold the stream's lock.
    const std::string line = fmt::format("{}: {}: {}\n", program_, peers_[rank].name, cause);
    static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  } else {
    // The launcher ends all when it sees one end, and rank 1 may be a look behind.
    std::this_thread::sleep_for(pause() + kLastWords);
  }
  tell_all({RankWord::kEnd, kExitLibraryFailure});
  leave(kExitLibraryFailure);
}

void RankWatch::ask_to_speak() {
  std::unique_lock lock(mutex_);
  if (rank_ == 0) {
    if (asking_ < 0) asking_ = 0;
    wake_watch();
  } else {
    peers_[0].link.send({RankWord::kAskToSpeak});
  }
  // Ends in the watching thread when another rank speaks, or when rank 0 is gone.
  changed_.wait(lock, [this] { return speaker_ == rank_; });
}

void RankWatch::end_job(int exit_code) {
  std::fflush(nullptr);
  const std::lock_guard lock(mutex_);
  tell_all({RankWord::kEnd, exit_code});
  leave(exit_code);
}

// Together: nobody could speak of a rank that fails when the others have gone.
void RankWatch::finish() {
  std::unique_lock lock(mutex_);
  tell_all({RankWord::kDone});
  changed_.wait(lock, [this] {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const Peer& peer) { return peer.is_done || !peer.is_linked; });
  });
}

// At once: other threads may wait for ranks that never come, on a GPU as well, and exit() would join them.
void RankWatch::leave(int exit_code) noexcept {
  close_links();
  _exit(exit_code);
}

// Those at the other ends shall read all that was sent.
void RankWatch::close_links() noexcept {
  const auto end = Clock::now() + kLastWords;
  for (Peer& peer : peers_) peer.link.finish(end);
}

}  // namespace headroom
