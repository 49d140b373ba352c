// Watches whether all ranks of a job live, and lets one of them alone say why the job ends. A rank that dies
// or stops without a word ends the whole job within a bounded time, whatever the others are waiting in. Knows
// no MPI and no device; each rank must be a process.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/collective/collective.h"
#include "runtime/collective/ranks/end_signals.h"
#include "runtime/collective/ranks/rank_link.h"

namespace headroom {

class RankWatch {
 public:
  // All ranks of `group` must make it together: each links to rank 0, which `host` leads to. `program` leads
  // the line that says why a job ends. SIGINT and SIGTERM are handled from then on: one that a rank alone
  // gets ends the job like any other failure, and launchers send SIGTERM to all ranks once one has died,
  // which is then what is said. Throws what link_ranks throws.
  RankWatch(Collective& group, const std::string& host, std::string program,
            std::chrono::milliseconds timeout);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // A rank that is not heard of for so long has failed. The default is that of the constructor.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ms_ = timeout.count(); }
  // What a person calls this rank: "rank 1 on node7, /device:GPU:1".
  void set_name(const std::string& name);

  // To be called by a rank that has failed. Returns for the first of the job, which should then say why and
  // call end_job; nobody else speaks meanwhile. For all others the process ends here, with the first one's
  // exit code, and where the failure is that another rank has died the watch says that.
  void ask_to_speak();
  // Ends all processes of the job with this exit code, this one too. What they have written is flushed.
  [[noreturn]] void end_job(int exit_code);
  // To be called by all ranks when they have done their work. Returns when all have; that one ends is no
  // failure any more.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  // What this rank knows of one that it is linked to, or of itself.
  struct Peer {
    RankLink link;
    std::string name;
    Clock::time_point heard = Clock::now();
    bool is_linked = false;  // the link may be closed by now
    bool is_done = false;    // it may end
    int signal = 0;          // it has been asked to end by that
  };

  std::chrono::milliseconds pause() const;
  void watch();
  void listen(std::chrono::milliseconds wait);
  void hear(int rank, const RankMessage& message);
  void note_signal(int rank, int signal);
  // Of ranks that failed by themselves, then of those that were asked to end, then who may say more.
  void look_for_the_dead(Clock::time_point now);
  void look_for_signals(Clock::time_point now);
  void let_speak();
  void tell_all(const RankMessage& message) noexcept;
  void wake_watch() noexcept;
  [[noreturn]] void end_for(int rank, const std::string& cause);
  [[noreturn]] void leave(int exit_code) noexcept;
  void close_links() noexcept;

  const int rank_, size_;
  const std::string program_;
  std::atomic<int64_t> timeout_ms_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<Peer> peers_;  // by rank: linked are of rank 0 all others, of the others rank 0 alone
  int asking_ = -1;          // the first that would say why the job ends; at rank 0
  int speaker_ = -1;         // who does; at rank 0, and at the speaker
  std::optional<Clock::time_point> first_signal_;
  bool stopped_ = false;
  const int wake_;  // an eventfd: something has to be done before the next look
  std::optional<EndSignals> signals_;
  std::thread thread_;
};

}  // namespace headroom
