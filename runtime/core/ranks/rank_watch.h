// Watches whether all ranks of a job live, and lets one of them alone say why the job ends. A rank that dies
// or stops without a word ends the whole job within a bounded time, whatever the others are waiting in. Knows
// no MPI and no device; each rank must be a process.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/collective.h"
#include "runtime/core/ranks/rank_link.h"

namespace headroom {

class RankWatch {
 public:
  // All ranks of `group` must make it together: each links to rank 0, which `host` leads to. `program` leads
  // the line that says why a job ends. SIGTERM is handled from then on, as launchers send it to all ranks
  // once one has died. Throws InvalidArgument when a link cannot be made, CollectiveError as `group` does.
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
  // call end_job. For all others the process ends here, with the first one's exit code.
  void ask_to_speak();
  // Ends all processes of the job with this exit code, this one too. What they have written is flushed.
  [[noreturn]] void end_job(int exit_code);
  // This rank has done its work: that it ends is no failure any more. The others are watched on.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  // What this rank knows of one that it is linked to.
  struct Peer {
    RankLink link;
    std::string name;
    Clock::time_point heard = Clock::now();
    bool may_end = false;  // it has said that it will
  };

  void link_to_all(Collective& group, const std::string& host, std::chrono::milliseconds timeout);
  void watch();
  void listen(int wait_ms);
  void hear(int rank, const RankMessage& message);
  void look_for_the_dead();
  void grant(int rank);
  void tell_all(const RankMessage& message) noexcept;
  void terminate();
  [[noreturn]] void end_for(int rank, const std::string& cause);
  [[noreturn]] void leave(int exit_code) noexcept;

  const int rank_, size_;
  const std::string program_;
  std::string name_;
  std::atomic<int64_t> timeout_ms_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<Peer> peers_;  // by rank: of rank 0 all others, of the others rank 0 alone
  int speaker_ = -1;         // who may say why the job ends; at rank 0
  bool may_speak_ = false;
  bool stopped_ = false;
  int wake_ = -1;  // an eventfd: something has to be done before the next look
  std::thread thread_;
};

}  // namespace headroom
