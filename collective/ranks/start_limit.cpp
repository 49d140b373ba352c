#include "collective/ranks/start_limit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/ended_by_signal.h"
#include "base/errors.h"

namespace headroom {
namespace {

// A launcher that sees one rank end takes a second or two to end the others.
constexpr std::chrono::seconds kTurn(5);

// The rank's number as set by OpenMPI, by MPICH and Intel's MPI, or by launchers with PMIx (srun --mpi=pmix);
// null without a launcher.
const char* rank_of_launcher() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    if (const char* const text = std::getenv(variable)) return text;
  }
  return nullptr;
}

std::string name_of(const std::string& program, int rank) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("{}: rank {} on {}", program, rank, host.data());
}

[[noreturn]] void give_up(const std::string& program, int rank, std::chrono::milliseconds timeout) {
  const std::string line =
      fmt::format("{}: the ranks have not met within {:g} s: one is stopped, or never came\n",
                  name_of(program, rank), std::chrono::duration<double>(timeout).count());
  if (rank <= 1) static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  _exit(kExitLibraryFailure);
}

}  // namespace

bool is_started_by_mpi() {
  return rank_of_launcher() != nullptr;
}

StartLimit::StartLimit(const std::string& program, std::chrono::milliseconds timeout) {
  // Rank 0 reports; rank 1 does if rank 0 is the stopped one. The others end last and print nothing.
  const char* const number = rank_of_launcher();
  const int rank = number == nullptr ? 0 : std::atoi(number);
  if (rank == 0) {
    say_which_signal_ends(name_of(program, rank), "before the ranks had met: one may have ended");
  } else {
    end_silently_by_signals();
  }
  const auto end = std::chrono::steady_clock::now() + timeout + std::min(rank, 2) * kTurn;
  thread_ = std::thread([this, program, rank, timeout, end] {
    const auto has_started = [this] { return has_started_; };
    std::unique_lock lock(mutex_);
    if (changed_.wait_until(lock, end, has_started)) return;
    // This rank itself was stopped. Another one has reported by now, and the launcher continues this one only
    // to end it.
    if (std::chrono::steady_clock::now() > end + kTurn / 2 && changed_.wait_for(lock, kTurn, has_started))
      return;
    give_up(program, rank, timeout);
  });
}

StartLimit::~StartLimit() {
  {
    const std::lock_guard lock(mutex_);
    has_started_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace headroom
