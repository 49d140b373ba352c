// The account of a tree of processes: no sum above its limit, and no share of the dead.

#include "guard/account.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <vector>

#include "tests/scratch_folder.h"

namespace headroom::guard {
namespace {

constexpr unsigned char kUuid[16] = {1};

class AccountTest : public testing::Test {
 protected:
  AccountTest() : account_(*create_account((folder_ / "account").c_str())) {
    account_.limit_bytes = 1000;
    card_ = card_of(account_, kUuid);
    reserve_ = reserve_of(1000);
  }
  ~AccountTest() override { close_account(&account_); }

  ScratchFolder folder_;
  Account& account_;
  int card_ = 0;
  int64_t reserve_ = 0;
};

TEST_F(AccountTest, TakesUpToTheLimitLessTheReserve) {
  const int slot = take_slot(account_);
  EXPECT_FALSE(take(account_, slot, card_, 1001 - reserve_));
  EXPECT_TRUE(take(account_, slot, card_, 1000 - reserve_));
  EXPECT_FALSE(take(account_, slot, card_, 1));
  EXPECT_FALSE(take(account_, slot, card_, reserve_, Asked::kContext));  // code has the other half
  EXPECT_TRUE(take(account_, slot, card_, reserve_ / 2, Asked::kContext));
  EXPECT_EQ(room_on(account_, card_), 0);
  give_back(account_, slot, card_, 1000 - reserve_ + reserve_ / 2);
  EXPECT_EQ(room_on(account_, card_), 1000 - reserve_);
}

// The number of the last process is in the counter of the round: both ask at once, one of them gets the
// memory.
TEST_F(AccountTest, OfTwoAtTheEdgeExactlyOneIsServed) {
  constexpr int kRounds = 2000, kProcesses = 2;
  struct Shared {
    std::atomic<int> arrived[kRounds], served[kRounds], done[kRounds];
  };
  // Any shared memory does.
  auto* shared = reinterpret_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int p = 0; p < kProcesses; ++p) {
    if (fork() != 0) continue;
    const int slot = take_slot(account_);
    for (int round = 0; round < kRounds; ++round) {
      shared->arrived[round]++;
      while (shared->arrived[round] < kProcesses) sched_yield();
      const bool got = take(account_, slot, card_, 600);
      if (got) shared->served[round]++;
      shared->done[round]++;
      while (shared->done[round] < kProcesses) sched_yield();
      if (got) give_back(account_, slot, card_, 600);
    }
    _exit(0);
  }
  while (wait(nullptr) > 0) {
  }
  for (int round = 0; round < kRounds; ++round) ASSERT_EQ(shared->served[round], 1) << round;
  EXPECT_EQ(account_.cards[card_].peak_bytes, 600);
  munmap(shared, sizeof(Shared));
}

TEST_F(AccountTest, ProcessesKilledAtAnyMomentLeaveNothing) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<pid_t> children;
    for (int p = 0; p < 2; ++p) {
      const pid_t child = fork();
      if (child == 0) {
        for (const int slot = take_slot(account_);;) {
          if (take(account_, slot, card_, 300)) give_back(account_, slot, card_, 300);
        }
      }
      children.push_back(child);
    }
    usleep(std::uniform_int_distribution<useconds_t>(0, 2000)(random));
    for (const pid_t child : children) kill(child, SIGKILL);
    for (const pid_t child : children) waitpid(child, nullptr, 0);
    reap(account_);
    ASSERT_EQ(room_on(account_, card_), 1000 - reserve_) << i;
  }
  EXPECT_LE(account_.cards[card_].peak_bytes, 1000 - reserve_);
}

TEST_F(AccountTest, AZombieCountsNothing) {
  const pid_t child = fork();
  if (child == 0) {
    take(account_, take_slot(account_), card_, 500);
    _exit(0);
  }
  siginfo_t facts{};
  waitid(P_PID, static_cast<id_t>(child), &facts, WEXITED | WNOWAIT);
  EXPECT_EQ(reap(account_), 1);
  EXPECT_EQ(sum_of(account_, card_).held, 0);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace headroom::guard
