#include "runtime/core/ranks/rank_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "runtime/core/errors.h"

namespace headroom {
namespace {

// Between SIGTERM and the end: time to hear who has died of a signal before. OpenMPI's mpirun sends SIGKILL
// after a second.
constexpr std::chrono::milliseconds kLastWords(300);
// Looks within the timeout: some may be late on a loaded machine before a rank is given up.
constexpr int64_t kLooks = 8;
constexpr std::chrono::milliseconds kLongestPause(1000);

std::atomic<bool> termination_asked = false;
std::atomic<int> wake_of_process = -1;

void on_termination(int) {
  termination_asked = true;
  const uint64_t one = 1;
  static_cast<void>(!write(wake_of_process, &one, sizeof one));
}

struct Meeting {
  char host[256] = "";
  char token[32] = "";  // keeps others who find the port out
  int32_t port = 0;
  int32_t this_host_only = 0;
};

template <typename T>
void broadcast(Collective& group, T& value, int root) {
  group.broadcast(std::as_writable_bytes(std::span(&value, 1)), root);
}

void copy_text(char* to, size_t capacity, const std::string& text) {
  std::strncpy(to, text.c_str(), capacity - 1);
}

// Whether all ranks are on one host, by name.
bool on_one_host(Collective& group, const std::string& host) {
  Meeting first;
  copy_text(first.host, sizeof first.host, host);
  broadcast(group, first, 0);
  float others = host == first.host ? 0.0f : 1.0f;
  group.all_reduce_sum({&others, 1});
  return others == 0;
}

}  // namespace

RankWatch::RankWatch(Collective& group, const std::string& host, std::string program,
                     std::chrono::milliseconds timeout)
    : rank_(group.rank()),
      size_(group.size()),
      program_(std::move(program)),
      name_(fmt::format("rank {} on {}", rank_, host)),
      timeout_ms_(timeout.count()),
      peers_(static_cast<size_t>(size_)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (int rank = 0; rank < size_; ++rank) peers_[rank].name = fmt::format("rank {}", rank);
  link_to_all(group, host, timeout);
  group.barrier();
  set_name(name_);
  wake_of_process = wake_;
  std::signal(SIGTERM, on_termination);
  thread_ = std::thread([this] { watch(); });
}

RankWatch::~RankWatch() {
  finish();
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    const uint64_t one = 1;
    static_cast<void>(!write(wake_, &one, sizeof one));
  }
  thread_.join();
  std::signal(SIGTERM, SIG_DFL);
  wake_of_process = -1;
  close(wake_);
}

void RankWatch::link_to_all(Collective& group, const std::string& host, std::chrono::milliseconds timeout) {
  const bool is_one_host = on_one_host(group, host);
  std::optional<RankListener> listener;
  Meeting meeting;
  if (rank_ == 0) {
    listener.emplace(is_one_host);
    std::random_device random;
    copy_text(meeting.host, sizeof meeting.host, is_one_host ? "127.0.0.1" : host);
    copy_text(meeting.token, sizeof meeting.token, fmt::format("{:08x}{:08x}", random(), random()));
    meeting.port = listener->port();
  }
  broadcast(group, meeting, 0);
  if (rank_ != 0) {
    peers_[0].link = RankLink::connect(meeting.host, meeting.port, timeout);
    peers_[0].link.send({RankWord::kHello, rank_, meeting.token});
    return;
  }
  std::vector<RankLink> strangers;
  const auto end = Clock::now() + timeout;
  for (int linked = 1; linked < size_;) {
    if (Clock::now() > end) throw InvalidArgument("not all ranks could link to rank 0");
    if (auto link = listener->accept(std::chrono::milliseconds(1))) strangers.push_back(std::move(*link));
    for (RankLink& stranger : strangers) {
      for (const RankMessage& message : stranger.receive()) {
        if (message.word != RankWord::kHello || message.text != meeting.token || message.value < 1 ||
            message.value >= size_ || !stranger.is_open()) {
          continue;
        }
        peers_[message.value].link = std::move(stranger);
        ++linked;
        break;
      }
    }
  }
}

void RankWatch::set_name(const std::string& name) {
  const std::lock_guard lock(mutex_);
  name_ = name;
  tell_all({RankWord::kName, rank_, name});
}

void RankWatch::tell_all(const RankMessage& message) noexcept {
  for (Peer& peer : peers_) peer.link.send(message);
}

void RankWatch::watch() {
  auto last_look = Clock::now();
  for (std::unique_lock lock(mutex_); !stopped_; lock.lock()) {
    const auto pause = std::clamp(std::chrono::milliseconds(timeout_ms_ / kLooks),
                                  std::chrono::milliseconds(1), kLongestPause);
    tell_all({});
    lock.unlock();
    listen(static_cast<int>(pause.count()));
    lock.lock();
    const auto now = Clock::now();
    // This process itself was stopped, or got no processor: what the others said meanwhile is yet to be read.
    if (now - last_look > 3 * pause) {
      for (Peer& peer : peers_) peer.heard = now;
    }
    last_look = now;
    if (termination_asked) terminate();
    look_for_the_dead();
    lock.unlock();
  }
}

// Waits for messages, at most so long, and takes what has come.
void RankWatch::listen(int wait_ms) {
  std::vector<pollfd> entries = {{wake_, POLLIN, 0}};
  for (const Peer& peer : peers_) {
    if (peer.link.is_open()) entries.push_back({peer.link.socket(), POLLIN, 0});
  }
  poll(entries.data(), entries.size(), wait_ms);
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
    case RankWord::kTerminated:
      peer.may_end = true;
      break;
    case RankWord::kAskToSpeak:
      grant(rank);
      break;
    case RankWord::kSpeak:
      may_speak_ = true;
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

// The first one only: of ranks that fail alike, one says so.
void RankWatch::grant(int rank) {
  if (speaker_ >= 0) return;
  speaker_ = rank;
  if (rank == rank_) {
    may_speak_ = true;
  } else {
    peers_[rank].link.send({RankWord::kSpeak});
  }
}

void RankWatch::look_for_the_dead() {
  const std::chrono::milliseconds timeout(timeout_ms_);
  for (int rank = 0; rank < size_; ++rank) {
    const Peer& peer = peers_[rank];
    const bool is_linked = rank != rank_ && (rank_ == 0 || rank == 0);
    if (!is_linked || peer.may_end) continue;
    if (!peer.link.is_open()) {
      end_for(rank, "its process ended without a word: killed from outside, or crashed");
    }
    if (Clock::now() - peer.heard > timeout) {
      end_for(rank, fmt::format("nothing was heard of its process for {} ms: stopped, or its host is gone",
                                timeout.count()));
    }
  }
}

// The launcher has asked all ranks to end. If one has died before, its link is closed by now, or in a moment.
void RankWatch::terminate() {
  tell_all({RankWord::kTerminated});
  const auto end = Clock::now() + kLastWords;
  mutex_.unlock();
  while (Clock::now() < end) {
    listen(10);
    mutex_.lock();
    look_for_the_dead();
    mutex_.unlock();
  }
  std::signal(SIGTERM, SIG_DFL);
  raise(SIGTERM);
  mutex_.lock();
}

// Rank 0 speaks of all others, and rank 1 of rank 0: one line, not one from each.
void RankWatch::end_for(int rank, const std::string& cause) {
  if (rank_ == 0 || rank_ == 1) {
    // By write: a thread that was stopped while it printed may hold the stream's lock.
    const std::string line = fmt::format("{}: {}: {}\n", program_, peers_[rank].name, cause);
    static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  }
  tell_all({RankWord::kEnd, kExitLibraryFailure});
  leave(kExitLibraryFailure);
}

void RankWatch::ask_to_speak() {
  std::unique_lock lock(mutex_);
  if (rank_ == 0) {
    grant(0);
  } else {
    peers_[0].link.send({RankWord::kAskToSpeak});
  }
  // Ends in the watching thread when another rank speaks, or when rank 0 is gone.
  changed_.wait(lock, [this] { return may_speak_; });
}

void RankWatch::end_job(int exit_code) {
  std::fflush(nullptr);
  const std::lock_guard lock(mutex_);
  tell_all({RankWord::kEnd, exit_code});
  leave(exit_code);
}

void RankWatch::finish() {
  const std::lock_guard lock(mutex_);
  tell_all({RankWord::kDone});
}

// At once: other threads may wait for ranks that never come, on a GPU as well, and exit() would join them.
void RankWatch::leave(int exit_code) noexcept {
  _exit(exit_code);
}

}  // namespace headroom
