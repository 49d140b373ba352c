// train_mnist over processes: the same weights on all ranks, and one message with an exit code when it fails.
#include <gtest/gtest.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "tests/mpirun.h"

namespace headroom {
namespace {

constexpr const char* kShort = "--device sim:four-2080ti --epochs 1 --steps 3 --batch 32 ";

std::string train(const std::string& arguments) {
  return HEADROOM_TRAIN_MNIST " " + std::string(kShort) + arguments;
}

// A command whose ranks write their pids to the folder before they begin.
std::string with_numbers(const ScratchFolder& folder, const std::string& command) {
  return "/bin/sh -c 'echo $$ >" + (folder / "pid.") + "$OMPI_COMM_WORLD_RANK; exec " + command + "'";
}

// The lines that our program printed, without those of MPI and mpirun.
std::string lines_of_ours(const std::string& text) {
  std::istringstream lines(text);
  std::string ours;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("train_mnist: ")) ours += line + "\n";
  }
  return ours;
}

void expect_refusal(const std::string& arguments, const std::string& part, int code = kExitBadInput) {
  const ScratchFolder folder;
  const Outcome outcome = run_shell(folder, mpirun_command(2, arguments));
  EXPECT_EQ(outcome.code, code) << outcome.errors;
  const std::string ours = lines_of_ours(outcome.errors);
  EXPECT_EQ(std::count(ours.begin(), ours.end(), '\n'), 1) << outcome.errors;
  EXPECT_NE(ours.find(part), std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.out, "");
}

TEST(RanksTest, ProcessesAndThreadsGetTheSameWeights) {
  const ScratchFolder folder;
  const Outcome processes = run_shell(folder, mpirun_command(2, train("--json")));
  ASSERT_EQ(processes.code, 0) << processes.errors;
  const nlohmann::json ranks = nlohmann::json::parse(processes.out);  // rank 0's alone
  const Outcome one = run_shell(folder, "env -i " + train("--replicas 2 --json"));
  ASSERT_EQ(one.code, 0) << one.errors;
  const nlohmann::json threads = nlohmann::json::parse(one.out);
  EXPECT_EQ(ranks["weights_checksum"], threads["weights_checksum"]);
  EXPECT_EQ(ranks["final_loss"], threads["final_loss"]);
  EXPECT_EQ(ranks["test_accuracy"], threads["test_accuracy"]);
  ASSERT_EQ(ranks["replicas"].size(), 2u);
  for (const nlohmann::json& rank : ranks["replicas"]) {
    EXPECT_EQ(rank["weights_checksum"], threads["weights_checksum"]);
  }
  EXPECT_NE(ranks["replicas"][0]["device"], ranks["replicas"][1]["device"]);
}

TEST(RanksTest, ProcessesResumeATrainingOfThreadsWithTheSameBits) {
  const ScratchFolder folder;
  const std::string file = folder / "training";
  const std::string constant = "--schedule constant --json ";
  const auto checksum = [](const Outcome& outcome) -> std::string {
    EXPECT_EQ(outcome.code, 0) << outcome.errors;
    return outcome.code == 0 ? nlohmann::json::parse(outcome.out)["weights_checksum"]
                             : nlohmann::json("none");
  };
  checksum(run_shell(folder, "env -i " + train(constant + "--replicas 2 --save " + file)));
  // Only rank 0 reads the file.
  const std::string resume = "test $OMPI_COMM_WORLD_RANK = 0 && r=\"--resume " + file + "\"; exec " +
                             train(constant + "--epochs 2 --shard-optimizer") + " $r";
  const Outcome processes = run_shell(folder, mpirun_command(2, "/bin/sh -c '" + resume + "'"));
  const Outcome threads = run_shell(folder, "env -i " + train(constant + "--epochs 2 --replicas 2"));
  EXPECT_EQ(checksum(processes), checksum(threads));
}

TEST(RanksTest, RanksThatDifferAreRefusedInOneLine) {
  expect_refusal(train("--batch 33"), "33");
  expect_refusal(train("--replicas 3"), "--replicas 3");
  expect_refusal(train("--place dense=/GPU:1 --device-policy silent"), "without mpirun --replicas spreads");
  // Another batch on rank 1, and another program.
  expect_refusal(
      "/bin/sh -c 'test $OMPI_COMM_WORLD_RANK = 0 || export HEADROOM_SEED=7; exec " + train("") + "'",
      "rank 1 of 2 on ");
  const ScratchFolder folder;
  const std::string other = folder / "train_mnist";
  std::filesystem::copy_file(HEADROOM_TRAIN_MNIST, other);
  const int status = std::system(("echo >>" + other).c_str());
  ASSERT_EQ(status, 0);
  expect_refusal("/bin/sh -c 'p=" HEADROOM_TRAIN_MNIST "; test $OMPI_COMM_WORLD_RANK = 0 || p=" + other +
                     "; exec $p " + kShort + "'",
                 "build is ");
}

TEST(RanksTest, TheErrorNamesTheRankThatRanOutOfMemory) {
  const ScratchFolder folder;
  const Outcome outcome = run_shell(folder, mpirun_command(2, train("--others-by-gpu 1:10900MiB --json")));
  EXPECT_NE(outcome.errors.find("rank 1 of 2 on "), std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.errors.find("rank 0 of 2"), std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.code, kExitLibraryFailure) << outcome.errors;
}

TEST(RanksTest, IfAllRanksRunOutOfMemoryOneReportsIt) {
  const ScratchFolder folder;
  const Outcome outcome = run_shell(folder, mpirun_command(2, train("--limit 2MiB")));
  EXPECT_EQ(outcome.code, kExitOutOfMemory) << outcome.errors;
  const size_t at = outcome.errors.find("out_of_memory: ");
  EXPECT_NE(at, std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.errors.find("out_of_memory: ", at + 1), std::string::npos) << outcome.errors;
}

// Returns the outcome of a training in which some ranks get a signal after the first checkpoint. No process
// remains.
Outcome signal_ranks(const ScratchFolder& folder, int signal, const std::vector<int>& ranks,
                     const std::string& training, const std::string& checkpoint) {
  const auto pid_of = [&](int of) {
    return static_cast<pid_t>(std::stoi(read_file(folder / ("pid." + std::to_string(of)), 100)));
  };
  std::atomic<bool> has_ended = false;
  std::thread killer([&] {
    while (!std::filesystem::exists(checkpoint) && !has_ended) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (const int rank : ranks) {
      if (!has_ended) kill(pid_of(rank), signal);
    }
  });
  const Outcome outcome = run_shell(folder, mpirun_command(2, with_numbers(folder, training)));
  has_ended = true;
  killer.join();
  EXPECT_TRUE(std::filesystem::exists(checkpoint)) << outcome.errors;
  const std::string ours = lines_of_ours(outcome.errors);
  EXPECT_EQ(std::count(ours.begin(), ours.end(), '\n'), 1) << outcome.errors;
  for (const int of : {0, 1}) {
    // mpirun waits for its own children; an orphan may be visible for a moment.
    const auto is_running = [&] {
      const std::string stat = "/proc/" + std::to_string(pid_of(of)) + "/stat";
      return std::filesystem::exists(stat) && read_file(stat, 4096).find(") Z ") == std::string::npos;
    };
    for (int look = 0; look < 500 && is_running(); ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_FALSE(is_running()) << "rank " << of << " is an orphan";
  }
  return outcome;
}

// The job must end with one line about the rank, and leave the checkpoint whole.
void expect_end_after(int signal, int rank, int timeout_seconds, const std::string& cause,
                      const std::set<int>& codes) {
  const ScratchFolder folder;
  const std::string weights = folder / "weights";
  const Outcome outcome =
      signal_ranks(folder, signal, {rank},
                   train("--steps 0 --epochs 1000000 --checkpoint-every 10 --collective-timeout " +
                         std::to_string(timeout_seconds) + " --save " + weights),
                   weights);
  EXPECT_TRUE(codes.contains(outcome.code)) << outcome.code;  // 124: timeout(1) had to end it
  const std::string ours = lines_of_ours(outcome.errors);
  EXPECT_NE(ours.find("rank " + std::to_string(rank) + " of 2 on "), std::string::npos) << outcome.errors;
  EXPECT_NE(ours.find("/GPU:" + std::to_string(rank) + ": "), std::string::npos) << outcome.errors;
  EXPECT_NE(ours.find(cause), std::string::npos) << outcome.errors;
  EXPECT_EQ(run_shell(folder, "env -i " + train("--load " + weights)).code, 0);
}

TEST(RanksTest, KilledRankEndsTheJobAndLeavesTheLastCheckpoint) {
  // mpirun returns the first exit code that it sees.
  expect_end_after(SIGKILL, 1, 60, "ended without an error message", {128 + SIGKILL, kExitLibraryFailure});
}

TEST(RanksTest, StoppedRankEndsTheJobAndLeavesTheLastCheckpoint) {
  expect_end_after(SIGSTOP, 1, 4, "no heartbeat from its process for 4000 ms", {kExitLibraryFailure});
}

// Checks that, whichever ranks get the signal, all end after the same step, rank 0 saves it, and resuming
// gives the same bits as an uninterrupted training.
void expect_saved_after(int signal, const std::vector<int>& ranks, const std::string& name) {
  const ScratchFolder folder;
  const std::string file = folder / "run.st";
  const std::string constant = "--steps 20 --schedule constant ";
  const Outcome ended = signal_ranks(
      folder, signal, ranks, train(constant + "--epochs 1000000 --checkpoint-every 10 --save " + file), file);
  EXPECT_EQ(ended.code, 128 + signal) << ended.errors;
  const std::string ours = lines_of_ours(ended.errors),
                    line = "train_mnist: ended by " + name + " after step ";
  ASSERT_TRUE(ours.starts_with(line)) << ended.errors;
  EXPECT_NE(ours.find("continue with --resume " + file), std::string::npos) << ended.errors;
  const std::string whole = "env -i " + train(constant + "--replicas 2 --json --epochs " +
                                              std::to_string(std::stoll(ours.substr(line.size())) / 20 + 1));
  const Outcome never_ended = run_shell(folder, whole),
                resumed = run_shell(folder, whole + " --resume " + file);
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  const auto bits = [](const Outcome& outcome) {
    return nlohmann::json::parse(outcome.out)["weights_checksum"].get<std::string>();
  };
  EXPECT_EQ(bits(resumed), bits(never_ended));
}

TEST(RanksTest, ASignalToOneRankSavesTheTrainingOfAll) {
  expect_saved_after(SIGTERM, {1}, "SIGTERM");
}

TEST(RanksTest, ASignalToAllRanksSavesTheTraining) {
  expect_saved_after(SIGINT, {0, 1}, "SIGINT");
}

}  // namespace
}  // namespace headroom
