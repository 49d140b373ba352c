// The collective over processes keeps the promises of the seam, under mpirun.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/mpirun.h"

namespace headroom {
namespace {

// Every rank has found all promises of the scenario kept.
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

TEST(MpiCollectiveTest, RankThatLeavesIsNamedToAllThatWaitAndComeLater) {
  expect_done("die", 3);
}

TEST(MpiCollectiveTest, RankThatComesLateIsNamedToAllAndToItself) {
  expect_done("late", 3);
}

}  // namespace
}  // namespace headroom
