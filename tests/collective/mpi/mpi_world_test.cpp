// The collective over processes keeps the promises of the seam, under mpirun.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <set>
#include <string>

#include "base/errors.h"
#include "tests/mpirun.h"

namespace headroom {
namespace {

// Every rank found all promises of the scenario kept.
void expect_done(const std::string& scenario, int ranks) {
  const ScratchFolder folder;
  const Outcome outcome = run_shell(folder, mpirun_command(ranks, HEADROOM_MPI_CHILD " " + scenario));
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_NE(outcome.out.find(fmt::format("rank {} of {} done\n", rank, ranks)), std::string::npos)
        << scenario << ": " << outcome.out << outcome.errors;
  }
}

TEST(MpiCollectiveTest, AllRanksGetTheBitsOfTheSumInRankOrderAndAMismatchMovesNone) {
  expect_done("agree", 3);
}

TEST(MpiWorldTest, OnOneHostMpiListensAtNoPort) {
  expect_done("closed", 2);
}

TEST(MpiCollectiveTest, RankThatLeavesIsNamedToAllThatWaitAndComeLater) {
  expect_done("die", 3);
}

TEST(MpiCollectiveTest, RankThatComesLateIsNamedToAllAndToItself) {
  expect_done("late", 2);
}

// Expects the job to end with one of the exit codes and to print only `line`, once, long before the ranks
// would end by themselves. With `or_by_mpiexec` mpiexec may end the ranks that are left before one has said
// it.
void expect_end(const std::string& scenario, const std::string& line, const std::set<int>& codes,
                bool or_by_mpiexec = false) {
  const ScratchFolder folder;
  const auto began = std::chrono::steady_clock::now();
  const Outcome outcome = run_shell(folder, mpirun_command(3, HEADROOM_MPI_CHILD " " + scenario));
  EXPECT_TRUE(codes.contains(outcome.code)) << outcome.code << outcome.errors;
  const size_t at = outcome.errors.find("child: ");
  if (or_by_mpiexec && at == std::string::npos) {
    EXPECT_NE(outcome.errors.find("signal 9"), std::string::npos)
        << outcome.errors;  // lines are broken anywhere
    return;
  }
  ASSERT_NE(at, std::string::npos) << outcome.errors;
  EXPECT_TRUE(outcome.errors.substr(at).starts_with("child: " + line)) << outcome.errors;
  EXPECT_EQ(outcome.errors.find("child: ", at + 1), std::string::npos) << outcome.errors;
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(50)) << scenario;
}

// Exit codes of the killed rank, or of those that the watch ends: mpirun returns the first one that it sees.
const std::set<int> kKilled = {128 + SIGKILL, kExitLibraryFailure};

TEST(RankWatchTest, KilledRankIsNamedOnceAndEndsAllThatWaitForNothing) {
  expect_end("killed", "rank 2 of the test: its process ended without an error message", kKilled);
  expect_end("first", "rank 0 of the test: its process ended without an error message", kKilled);
}

TEST(RankWatchTest, StoppedRankIsNamedOnceAndEnds) {
  expect_end("stopped", "rank 2 of the test: no heartbeat from its process for 2000 ms",
             {kExitLibraryFailure});
}

TEST(RankWatchTest, IfRanksFailAlikeOneReportsWhy) {
  expect_end("alike", "this is why\n", {kExitOutOfMemory});
}

TEST(RankWatchTest, NoOtherRankReportsWhileOneDoes) {
  expect_end("report", "this is why\n", {kExitOutOfMemory});
}

TEST(RankWatchTest, TerminatedRankIsNamedOnceAndEndsAll) {
  expect_end("asked", "rank 2 of the test: asked to end by SIGTERM\n", {kExitLibraryFailure});
  expect_end("interrupted", "rank ", {kExitLibraryFailure});
}

TEST(RankWatchTest, WorkThatAnswersASignalEndsByItself) {
  expect_done("answered", 3);
}

TEST(RankWatchTest, WorkThatDoesNotAnswerASignalIsEndedAfterTheTimeout) {
  expect_end("unanswered", "rank 2 of the test: asked to end by SIGTERM\n", {kExitLibraryFailure});
}

TEST(StartLimitTest, RanksThatDoNotMeetEndWithOneLine) {
  expect_end("absent", "rank 0 on ", {kExitLibraryFailure});
}

TEST(StartLimitTest, RankThatIsKilledBeforeTheOthersHaveMetItEndsTheJobWithOneLine) {
  expect_end("unborn", "rank 0 on ", kKilled, true);
}

TEST(RankWatchTest, SignalAfterTheWorkOfAllRanksIsIgnored) {
  expect_done("signaled", 3);
}

TEST(RankWatchTest, RanksThatWorkAreLeftAlone) {
  expect_done("idle", 3);
}

TEST(RankWatchTest, RanksThatEndAtDifferentTimesEndWell) {
  expect_done("well", 3);
}

}  // namespace
}  // namespace headroom
