// Watches whether all ranks of a job are alive, and lets only one of them report why the job ends. A rank
// that dies or stops ends the whole job within a bounded time, whatever the others are waiting for. Knows no
// MPI and no device; each rank must be a process.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/end_signals.h"
#include "collective/collective.h"
#include "collective/ranks/rank_link.h"

namespace headroom {

class RankWatch {
 public:
  static constexpr std::chrono::milliseconds kMaxSilence = std::chrono::minutes(1);

  // All ranks of `group` must make it together; each links to rank 0. `host` is this rank's, and `program`
  // begins the line that reports the end of a job. From then on SIGINT and SIGTERM are handled: sent to one
  // rank they end the job like any other failure. Launchers send SIGTERM to all ranks once one has died; then
  // the line reports the death. Throws as link_ranks does.
  RankWatch(Collective& group, const std::string& host, std::string program,
            std::chrono::milliseconds timeout);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // A rank without a heartbeat for so long has failed, or for kMaxSilence if that is shorter: a rank sends
  // heartbeats while it works, however long a step takes. The default is the constructor's.
  void set_timeout(std::chrono::milliseconds timeout);
  // This rank's name for messages: "rank 1 on node7, /device:GPU:1".
  void set_name(const std::string& name);

  // From now on the work handles signals: it asks the returned object if one has arrived, and ends on all
  // ranks at the same step. The watch ends the job only if that takes longer than the timeout. The returned
  // object lives as long as the watch.
  const EndSignals& leave_signals_to_work();

  // To be called by a rank that has failed. Returns on the first one of the job, which should then print why
  // and call end_job. On all others the process ends here, with the first one's exit code. If another rank
  // has died, the watch itself reports that.
  void claim_error_report();
  // Ends all processes of the job with this exit code, and flushes their output.
  [[noreturn]] void end_job(int exit_code);
  // To be called by all ranks when they have done their work. Returns when all have; from then on a rank that
  // ends is no failure.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  // A rank that this one is linked to, or this one itself.
  struct Peer {
    RankLink link;
    std::string name;
    Clock::time_point heard = Clock::now();
    bool is_linked = false;  // though the link may be closed by now
    bool is_done = false;    // its end is no failure
    int signal = 0;          // the one that it got; 0: none
  };

  std::chrono::milliseconds pause() const;
  void watch();
  void receive(std::chrono::milliseconds wait);
  void handle(int rank, const RankMessage& message);
  void note_signal(int rank, int signal);
  void check_ranks(Clock::time_point now);
  void check_signals(Clock::time_point now);
  void grant_report();
  void send_all(const RankMessage& message) noexcept;
  void wake_watch() noexcept;
  [[noreturn]] void end_for(int rank, const std::string& cause);
  [[noreturn]] void exit_now(int exit_code) noexcept;
  void close_links() noexcept;

  const int rank_, size_;
  const std::string program_;
  std::atomic<int64_t> timeout_ms_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<Peer> peers_;  // by rank; see link_ranks for those that are linked
  int claimant_ = -1;        // the first rank that wants to report; known at rank 0
  int reporter_ = -1;        // the rank that may; known at rank 0 and at that rank
  std::optional<Clock::time_point> first_signal_;
  bool work_answers_signals_ = false;
  bool stopped_ = false;
  const int wake_;  // an eventfd: something is to be done before the next check
  std::optional<EndSignals> signals_;
  std::thread thread_;
};

}  // namespace headroom
