// One rank of the tests of MPI: makes the calls of the scenario that its argument names and prints the
// result. Exits with 1 when a promise is broken.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "collective/mpi/mpi_world.h"
#include "collective/ranks/rank_watch.h"
#include "collective/ranks/start_limit.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong = std::chrono::minutes(1), kShort(300), kWatched(2000);

void expect(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

std::span<std::byte> bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

// Magnitudes far enough apart for another order of adding to give other bits.
std::vector<float> random_values(int rank, size_t count) {
  uint32_t state = static_cast<uint32_t>(rank) + 1;
  std::vector<float> values(count);
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;  // Numerical Recipes
    value = std::ldexp(static_cast<float>(state >> 8) - 0x1p23f, static_cast<int>(state >> 28));
  }
  return values;
}

std::string cause_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CollectiveError& error) {
    return error.cause();
  }
  return "no failure";
}

// Sums, some of more than one piece; then a mismatch, which leaves the group usable.
void agree(MpiWorld& world) {
  const std::unique_ptr<Collective> group = world.make_collective(kLong);
  expect(group->rank() == world.rank() && group->size() == world.size(), "rank and size");
  for (const size_t count : {0, 1, 2, 1000, 4200003}) {
    std::vector<float> sum = random_values(0, count);
    for (int rank = 1; rank < world.size(); ++rank) {
      const std::vector<float> values = random_values(rank, count);
      for (size_t i = 0; i < count; ++i) sum[i] += values[i];
    }
    std::vector<float> values = random_values(world.rank(), count);
    group->all_reduce_sum(values);
    expect(same_bits(values, sum), fmt::format("sum of {}", count));
    for (int root = count > 1000 ? world.size() - 1 : 0; root < world.size(); ++root) {
      std::vector<float> given = random_values(world.rank(), count);
      group->broadcast(bytes_of(given), root);
      expect(same_bits(given, random_values(root, count)), fmt::format("broadcast of {}", count));
    }
  }
  for (int round = 0; round < 100; ++round) {
    group->barrier();
    const bool is_odd = world.rank() == world.size() - 1;
    std::vector<float> values(is_odd ? 7 : 10, 1);
    expect(cause_of([&] { group->all_reduce_sum(values); }) ==
               fmt::format(
                   "rank 0 called all_reduce_sum of 10 floats, rank {} called all_reduce_sum of 7 floats",
                   world.size() - 1),
           "mismatch");
    expect(values[0] == 1, "a mismatch moved bytes");
  }
  expect(world.local_rank() == world.rank() && !world.host().empty(), "one host");
}

// The last rank makes two collectives' calls and leaves; the others are told so by each of theirs.
void die(MpiWorld& world) {
  std::unique_ptr<Collective> group = world.make_collective(kLong);
  group->barrier();
  const int dying = world.size() - 1;
  std::vector<float> values(10, 1);
  for (int call = 0; world.rank() != dying && call < 2; ++call) {
    expect(cause_of([&] { group->all_reduce_sum(values); }) == fmt::format("rank {} has died", dying),
           "death");
  }
}

// Rank 1 comes when rank 0 has given up: both name it, then and later.
void be_late(MpiWorld& world) {
  const std::unique_ptr<Collective> group = world.make_collective(kShort),
                                    order = world.make_collective(kLong);
  if (world.rank() == 1) order->barrier();
  for (int call = 0; call < 2; ++call) {
    const std::string cause = cause_of([&] { group->barrier(); });
    expect(cause == "rank 1 did not arrive within 300 ms", "late: " + cause);
  }
  if (world.rank() == 0) order->barrier();
}

// All ranks are watched; the others are not at fault for the last one's actions. They sleep meanwhile, as if
// they waited for a GPU, and are not woken.
void be_watched(MpiWorld& world, const std::function<void(RankWatch&)>& end) {
  const std::unique_ptr<Collective> group = world.make_collective(kLong);
  RankWatch watch(*group, world.host(), "child", kWatched);
  watch.set_name(fmt::format("rank {} of the test", world.rank()));
  group->barrier();
  end(watch);
  std::this_thread::sleep_for(kLong);
}

void be_killed(MpiWorld& world) {
  be_watched(world, [&](RankWatch&) {
    if (world.rank() == world.size() - 1) raise(SIGKILL);
  });
}

void kill_first(MpiWorld& world) {
  be_watched(world, [&](RankWatch&) {
    if (world.rank() == 0) raise(SIGKILL);
  });
}

void be_stopped(MpiWorld& world) {
  be_watched(world, [&](RankWatch&) {
    if (world.rank() == world.size() - 1) raise(SIGSTOP);
  });
}

void fail_alike(MpiWorld& world) {
  be_watched(world, [&](RankWatch& watch) {
    watch.claim_error_report();
    fmt::print(stderr, "child: this is why\n");
    watch.end_job(kExitOutOfMemory);
  });
}

// The last rank stops while rank 0 reports, which takes longer than the heartbeat timeout.
void report_long(MpiWorld& world) {
  be_watched(world, [&](RankWatch& watch) {
    if (world.rank() == world.size() - 1) raise(SIGSTOP);
    if (world.rank() != 0) return;
    watch.claim_error_report();
    watch.set_timeout(milliseconds(50));
    std::this_thread::sleep_for(milliseconds(500));
    fmt::print(stderr, "child: this is why\n");
    watch.end_job(kExitOutOfMemory);
  });
}

void be_asked_to_end(MpiWorld& world) {
  be_watched(world, [&](RankWatch&) {
    if (world.rank() == world.size() - 1) raise(SIGTERM);
  });
}

// The work of the signaled rank ends all, as a training does after a step.
void answer_a_signal(MpiWorld& world) {
  const std::unique_ptr<Collective> group = world.make_collective(kLong);
  RankWatch watch(*group, world.host(), "child", kWatched);
  const EndSignals& signals = watch.leave_signals_to_work();
  if (world.rank() == world.size() - 1) raise(SIGTERM);
  std::this_thread::sleep_for(milliseconds(1000));  // longer than a job lives that leaves them to its watch
  std::vector<float> signaled = {signals.arrived() == SIGTERM ? 1.0F : 0.0F};
  group->all_reduce_sum(signaled);
  expect(signaled[0] == 1, "the signal was not noted");
}

void answer_no_signal(MpiWorld& world) {
  be_watched(world, [&](RankWatch& watch) {
    watch.leave_signals_to_work();
    if (world.rank() == world.size() - 1) raise(SIGTERM);
  });
}

void interrupt_all(MpiWorld& world) {
  be_watched(world, [&](RankWatch&) { raise(SIGINT); });
}

// The TCP sockets of this process that listen.
int listening_ports() {
  constexpr const char* kListens = "0A";  // in Linux's include/net/tcp_states.h
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    sockets.insert(std::filesystem::read_symlink(entry, closed_meanwhile).string());
  }
  int ports = 0;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream columns(line);
      std::vector<std::string> words{std::istream_iterator<std::string>(columns), {}};
      if (words.size() > 9 && words[3] == kListens && sockets.contains("socket:[" + words[9] + "]")) ++ports;
    }
  }
  return ports;
}

// Ranks that answered each heartbeat at once would do so thousands of times.
void stay_idle(MpiWorld& world) {
  const std::unique_ptr<Collective> group = world.make_collective(kLong);
  RankWatch watch(*group, world.host(), "child", kWatched);
  const auto switches = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
  };
  const long before = switches();
  std::this_thread::sleep_for(milliseconds(300));
  expect(switches() - before < 300, "the watch is busy");
  group->barrier();
}

void end_well(MpiWorld& world) {
  const std::unique_ptr<Collective> group = world.make_collective(kLong);
  RankWatch watch(*group, world.host(), "child", kWatched);
  std::this_thread::sleep_for(milliseconds(20 * world.rank()));
}

// Signals that come when the work of all is done: with the watch, after it, and, in run(), after MPI.
void be_signaled_at_the_end(MpiWorld& world) {
  const std::unique_ptr<Collective> group = world.make_collective(kLong);
  {
    RankWatch watch(*group, world.host(), "child", kWatched);
    watch.finish();
    raise(SIGTERM);
  }
  raise(SIGINT);
}

// A stranger cannot connect to a process that does not listen.
void listen_nowhere(MpiWorld& world) {
  const std::unique_ptr<Collective> group = world.make_collective(kLong);
  group->barrier();
  expect(listening_ports() == 0, "a port is open");
  group->barrier();
}

int run(const std::string& scenario) {
  const std::map<std::string, void (*)(MpiWorld&)> scenarios = {{"agree", agree},
                                                                {"die", die},
                                                                {"late", be_late},
                                                                {"killed", be_killed},
                                                                {"first", kill_first},
                                                                {"stopped", be_stopped},
                                                                {"alike", fail_alike},
                                                                {"report", report_long},
                                                                {"asked", be_asked_to_end},
                                                                {"interrupted", interrupt_all},
                                                                {"answered", answer_a_signal},
                                                                {"unanswered", answer_no_signal},
                                                                {"idle", stay_idle},
                                                                {"closed", listen_nowhere},
                                                                {"well", end_well},
                                                                {"signaled", be_signaled_at_the_end}};
  std::optional<StartLimit> limit;
  if (scenario == "absent") {
    limit.emplace("child", kShort);
    if (std::getenv("OMPI_COMM_WORLD_RANK") != std::string("0")) raise(SIGSTOP);
  }
  if (scenario == "unborn") {
    limit.emplace("child", kLong);
    if (std::getenv("OMPI_COMM_WORLD_RANK") == std::string("2")) raise(SIGKILL);
  }
  const std::unique_ptr<MpiWorld> world = join_mpi_world();
  scenarios.at(scenario)(*world);
  fmt::print("rank {} of {} done\n", world->rank(), world->size());
  std::fflush(stdout);
  world->finish();
  if (scenario == "signaled") raise(SIGTERM);
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  try {
    return argc == 2 ? headroom::run(argv[1]) : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
