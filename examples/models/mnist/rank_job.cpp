#include "examples/models/mnist/rank_job.h"

#include <fmt/format.h>

#include <csignal>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "collective/in_process/in_process_collective.h"
#include "collective/mpi/mpi_world.h"
#include "collective/ranks/rank_watch.h"
#include "collective/ranks/start_limit.h"
#include "runtime/app/run_main.h"

namespace headroom {
namespace {

// PyTorch's default for its rendezvous (TCPStore).
constexpr std::chrono::minutes kMeetingTimeout(5);

// Broadcasts the text of `rank`.
std::string text_of(Collective& group, int rank, std::string text) {
  int64_t bytes = std::ssize(text);
  broadcast_value(group, bytes, rank);
  text.resize(static_cast<size_t>(bytes));
  group.broadcast(std::as_writable_bytes(std::span(text)), rank);
  return text;
}

class MpiRankJob final : public RankJob {
 public:
  explicit MpiRankJob(const char* program)
      : start_limit_(std::in_place, program, kMeetingTimeout),
        world_(join_mpi_world()),
        first_group_(world_->make_collective(kCollectiveTimeout)),
        watch_(*first_group_, world_->host(), program, kCollectiveTimeout) {
    start_limit_.reset();  // from here on the watch reports failures
    set_device("");
  }

  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  const std::string& host() const override { return world_->host(); }
  int device_of(int devices) const override { return world_->local_rank() % devices; }
  const std::string& name() const override { return name_; }

  void set_device(const std::string& device) override {
    name_ = fmt::format("rank {} of {} on {}{}{}", rank(), size(), world_->host(), device.empty() ? "" : ", ",
                        device);
    watch_.set_name(name_);
  }

  void set_timeout(std::chrono::milliseconds timeout) override {
    timeout_ = timeout;
    watch_.set_timeout(timeout);
  }

  Collective& group() override {
    if (group_ != nullptr) return *group_;
    std::vector<std::string> names;
    for (int other = 0; other < size(); ++other) names.push_back(text_of(*first_group_, other, name_));
    // Longer than the watch waits, which checks once a second and says more about a missing rank.
    constexpr std::chrono::seconds kWatchPeriods(2);
    group_ = world_->make_collective(timeout_ + timeout_ / 4 + kWatchPeriods, std::move(names));
    return *group_;
  }

  void require_equal(const Fingerprint& fingerprint) override {
    std::string own;
    for (const auto& [name, value] : fingerprint) own += fmt::format("{}\n{}\n", name, value);
    std::istringstream first(text_of(group(), 0, own));
    Fingerprint expected;
    for (std::string name, value; std::getline(first, name) && std::getline(first, value);) {
      expected[name] = value;
    }
    const std::string differences = list_differences(fingerprint, expected, "on rank 0");
    if (!differences.empty()) {
      throw InvalidArgument(fmt::format("all ranks need the same settings and data: {}", differences));
    }
    group().barrier();
  }

  const EndSignals& answer_signals() override { return watch_.leave_signals_to_work(); }
  void claim_error_report() override { watch_.claim_error_report(); }
  [[noreturn]] void end_all(int exit_code) { watch_.end_job(exit_code); }

  // Called at the end. MPI waits for all ranks here; an earlier death of a rank is a failure. After a signal
  // it is not, once all have done their work: the launcher may not wait for MPI.
  void finish(bool is_after_signal) {
    if (is_after_signal) watch_.finish();
    group_.reset();
    first_group_.reset();
    world_->finish();
    watch_.finish();
  }

 private:
  std::optional<StartLimit> start_limit_;  // made before MPI starts
  std::unique_ptr<MpiWorld> world_;
  std::unique_ptr<Collective> first_group_, group_;
  RankWatch watch_;
  std::string name_;
  std::chrono::milliseconds timeout_ = kCollectiveTimeout;
};

bool is_after_signal(int exit_code) {
  return exit_code == 128 + SIGINT || exit_code == 128 + SIGTERM;
}

// After a signal ranks end as after their work: rank 0 may still save.
bool is_failure(int exit_code) {
  return exit_code != kExitDone && exit_code != kExitCheckFailed && !is_after_signal(exit_code);
}

}  // namespace

int run_as_rank(const char* program, const std::function<int(RankJob*)>& body) {
  if (!is_started_by_mpi()) return body(nullptr);
  MpiRankJob job(program);
  try {
    const int code = body(&job);
    if (is_failure(code)) job.end_all(code);
    job.finish(is_after_signal(code));
    return code;
  } catch (const std::exception& error) {
    job.claim_error_report();
    print_failure(program, fmt::format("{}: {}", job.name(), error.what()));
    job.end_all(exit_code(error));
  }
}

}  // namespace headroom
