#include "base/process/process.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/errors.h"
#include "base/process/dialogue.h"
#include "base/process/idle_watch.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

TEST(RunChild, BothStreamsAndTheStatusComeBackHoweverMuchIsWritten) {
  const ChildResult ended = run_child(
      "/bin/sh",
      {"-c", "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; echo >&2; echo why >&2; exit 3"});
  ASSERT_TRUE(WIFEXITED(ended.status));
  EXPECT_EQ(WEXITSTATUS(ended.status), 3);
  EXPECT_EQ(ended.out.size(), 300'000u);
  EXPECT_EQ(ended.errors.size(), 300'005u);
  EXPECT_EQ(error_of(ended), "why");
}

TEST(RunChild, ReadsNothingOfWhatThisProcessReads) {
  EXPECT_EQ(run_child("/bin/cat", {}).out, "");
}

TEST(RunChild, AProgramThatIsNotThereIsAnErrorWithItsName) {
  try {
    run_child("/nowhere/headroom", {"run"});
    FAIL() << "was started";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/nowhere/headroom: No such file or directory");
  }
}

TEST(RunChild, TheNameOfTheCommandIsNoPartOfAnError) {
  EXPECT_EQ(error_of({0, "", "note: x\nheadroom: --batch: 'a' is not a whole number\n\n"}),
            "--batch: 'a' is not a whole number");
  EXPECT_EQ(error_of({0, "", ""}), "");
}

TEST(RunChild, EndsWithTheProcessThatStartedIt) {
  const ScratchFolder folder;
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // a child whose parent is gone is this process's
  const pid_t parent = fork();
  if (parent == 0) {
    run_child("/bin/sh", {"-c", "echo $$ > " + folder / "new" + " && mv " + folder / "new" + " " +
                                    folder / "pid" + " && exec sleep 30"});
    _exit(0);
  }
  pid_t child = 0;
  while (!(std::ifstream(folder / "pid") >> child)) usleep(1000);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it went on for its 30 seconds";
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Dialogue, EachLineIsAnswered) {
  Dialogue dialogue("/bin/sh", {"-c", "while read -r line; do echo \"<$line>\"; done"});
  std::string answer;
  for (const char* line : {"one", "", "three and more"}) {
    ASSERT_TRUE(dialogue.ask(line, answer));
    EXPECT_EQ(answer, "<" + std::string(line) + ">");
  }
  const ChildResult ended = dialogue.end();
  EXPECT_TRUE(WIFEXITED(ended.status));
}

TEST(Dialogue, AChildThatEndsIsNoAnswerAndSaysWhy) {
  Dialogue dialogue("/bin/sh", {"-c", "read -r line; echo why >&2; exit 3"});
  std::string answer;
  EXPECT_FALSE(dialogue.ask("x", answer));
  EXPECT_FALSE(dialogue.ask(std::string(1 << 20, 'x'), answer));
  const ChildResult ended = dialogue.end();
  EXPECT_EQ(WEXITSTATUS(ended.status), 3);
  EXPECT_EQ(error_of(ended), "why");
}

// Processes that wait take no time, so that a short patience is enough.
constexpr std::chrono::milliseconds kShort(50);

TEST(Dialogue, AChildThatWaitsForNothingIsAnError) {
  Dialogue dialogue("/bin/sh", {"-c", "read -r line; sleep 600"}, kShort);
  std::string answer;
  try {
    dialogue.ask("x", answer);
    FAIL() << "was answered";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "/bin/sh has computed nothing for 0.05 s: it waits for a network, a lock or another process");
  }
}

TEST(RunChild, OneThatWaitsForNothingIsEndedWhereThereIsAPatience) {
  EXPECT_THROW(run_child("/bin/sleep", {"600"}, {}, kShort), Error);
  EXPECT_EQ(run_child("/bin/sh", {"-c", "echo done"}, {}, kPatience).out, "done\n");
}

TEST(IdleWatch, TheTimeOfGrandchildrenCounts) {
  if (!ticks_of_tree(getpid())) GTEST_SKIP() << "this kernel does not list the children of processes";
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (volatile int count = 0; count == 0;) {
      }
    }
    pause();
    _exit(0);
  }
  while (ticks_of_tree(child).value_or(0) < 5) usleep(1000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(Dialogue, AProgramThatIsNotThereIsAnErrorWithItsName) {
  EXPECT_THROW(Dialogue("/nowhere/headroom", {}), Error);
}

}  // namespace
}  // namespace headroom
