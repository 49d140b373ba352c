// Programs in C under `headroom run --limit`: each way to the driver, each kind of memory, processes that
// race, fork and die.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "guard/account.h"
#include "tests/guard/guard_fixture.h"

namespace headroom {
namespace {

// A limit of 1000 MiB less a context of 100 MiB and a reserve of 62 leaves room for 13 blocks of 64 MiB.
constexpr char kFilled[] = "fill 2\nblocks 13\n";

TEST_F(Guard, EveryWayToTheDriverIsLimited) {
  for (const char* how : {"direct", "dlsym", "dlsym-default", "proc", "proc:11040", "proc:12000", "proc2",
                          "proc2:12080", "deep", "deep-dlsym"}) {
    const Outcome outcome = run("--limit 1000MiB", program(std::string(how) + " init retain fill 64"));
    EXPECT_EQ(outcome.code, 0) << how << outcome.errors;
    EXPECT_PRED2(has, outcome.out, kFilled) << how;
    EXPECT_LE(peak_mib(), 1000) << how;
  }
}

TEST_F(Guard, AProgramThatIsNotLinkedWithTheDriverIsLimited) {
  for (const char* how : {"dlsym", "proc2"}) {
    const Outcome outcome =
        run("--limit 1000MiB", GUARD_PROGRAM "_unlinked " + std::string(how) + " init retain fill 64");
    EXPECT_PRED2(has, outcome.out, kFilled) << how << outcome.errors;
  }
}

TEST_F(Guard, FunctionsThatTheDriverDoesNotExportAreLimited) {
  const Outcome outcome =
      run("--limit 1000MiB", program("proc2 init retain fill 64"), "HEADROOM_STANDIN_HIDDEN=1");
  EXPECT_PRED2(has, outcome.out, kFilled);
  EXPECT_LE(peak_mib(), 1000);
}

// RMM's pools passed HAMi-core's check, a refused handle was handed out, and arrays and graphs were not
// counted.
TEST_F(Guard, EveryKindOfMemoryIsRefusedWithTheCodeOfTheDriver) {
  for (const std::string kind :
       {"alloc 900", "managed 900", "pitch 900", "async 900", "pool 900", "create 900", "array 900",
        "cube 900", "mipmaps 900", "graph 900 launch", "stack 900000"}) {
    const Outcome outcome = run("--limit 1000MiB", program("direct init retain " + kind));
    const std::string name = kind.starts_with("graph") ? "launch" : kind.substr(0, kind.find(' '));
    EXPECT_PRED2(has, outcome.out, name + " 2\n") << outcome.errors;
    EXPECT_LE(peak_mib(), 1000) << kind;
  }
}

TEST_F(Guard, EveryKindOfMemoryComesBack) {
  for (const std::string kind : {"alloc 800 free", "async 800 free-async sync", "create 800 unmap 800",
                                 "array 800 unarray", "graph 800 launch trim", "context alloc 700 destroy"}) {
    std::string words = "direct init retain ";
    for (int i = 0; i < 3; ++i) words += kind + " ";
    const Outcome outcome = run("--limit 1000MiB", program(words + "fill 64"));
    EXPECT_PRED2(has, outcome.out, kFilled) << kind << "\n" << outcome.out;
    EXPECT_LE(peak_mib(), 1000) << kind;
  }
}

TEST_F(Guard, PagesThatAPoolKeepsCountUntilTheyAreNeeded) {
  const Outcome outcome =
      run("--limit 1000MiB", program("direct init retain keep async 600 free-async sync info alloc 600"));
  EXPECT_PRED2(has, outcome.out, "free 22");  // 237 or 238 by the pool's pieces
  EXPECT_PRED2(has, outcome.out, "alloc 0\n");
  EXPECT_LE(peak_mib(), 1000);
}

TEST_F(Guard, APoolThatGrowsBesideItsGapsStaysBelowTheLimit) {
  for (const std::string kept : {"", "keep "}) {
    const Outcome outcome =
        run("--limit 1000MiB", program("direct init retain " + kept + "churn 5000 alloc 600"));
    EXPECT_PRED2(has, outcome.out, "refused 1\nchurn 0\nalloc 0\n");
    EXPECT_LE(peak_mib(), 1000) << kept;
    const Outcome both =
        run("--limit 1000MiB", program("direct both init retain " + kept + "churn 5000 wait"));
    EXPECT_PRED2(has, both.out, "churn 0\n");
    EXPECT_LE(peak_mib(), 1000) << kept;
  }
}

TEST_F(Guard, PoolsThatAreGoneAreNotMissingInThePeak) {
  std::string commands = "direct init retain ";
  for (int i = 0; i < 8; ++i) commands += "pool 4 drop-pool ";
  const Outcome outcome = run("--limit 1000MiB", program(commands + "alloc 600"));
  EXPECT_PRED2(has, outcome.out, "drop-pool 0\nalloc 0\n");
  const size_t at = outcome.errors.find("peak ");
  ASSERT_NE(at, std::string::npos) << outcome.errors;
  EXPECT_GE(std::atof(outcome.errors.c_str() + at + 5), 700) << outcome.errors;
}

TEST_F(Guard, PoolsOfTheHostsMemoryDoNotCount) {
  const Outcome outcome =
      run("--limit 1000MiB", program("direct init retain host-pool 900 host-pool 900 drop-pool alloc 600"));
  EXPECT_PRED2(has, outcome.out, "host-pool 0\nhost-pool 0\ndrop-pool 0\nalloc 0\n");
}

TEST_F(Guard, SmallBlocksThatFindGapsTooSmallStayBelowTheLimit) {
  EXPECT_PRED2(has, run("--limit 1000MiB", program("direct init retain gaps")).out, "again 1\ngaps 1\n");
  EXPECT_GT(peak_mib(), 900);
  EXPECT_LE(peak_mib(), 1000);
}

TEST_F(Guard, PhysicalMemoryLivesAsLongAsItsMappingsAndHandles) {
  EXPECT_PRED2(has, run("--limit 1000MiB", program("direct init retain create 500 create 500")).out,
               "create 0\ncreate 2\n");
  EXPECT_PRED2(has, run("--limit 1000MiB", program("direct init retain create 500 unmap 500 create 500")).out,
               "unmap 0\ncreate 0\n");
  EXPECT_PRED2(has,
               run("--limit 1000MiB", program("direct init retain create 500 hold unmap 500 create 500")).out,
               "unmap 0\ncreate 2\n");
  EXPECT_LE(peak_mib(), 1000);
}

TEST_F(Guard, AGraphLaunchedAgainTakesNoMore) {
  const Outcome outcome = run(
      "--limit 1000MiB", program("direct init retain graph 600 launch launch launch alloc 300 alloc 100"));
  EXPECT_PRED2(has, outcome.out, "launch 0\nlaunch 0\nlaunch 0\nalloc 2\nalloc 0\n");
  EXPECT_LE(peak_mib(), 1000);
}

TEST_F(Guard, ProgramsSeeTheLimitedCard) {
  const Outcome outcome = run("--limit 1000MiB", program("dlsym init retain alloc 200 info total nvml"));
  EXPECT_PRED2(has, outcome.out, "free 637\ntotal 1000\ntotal 1000\nnvml total 1000\nnvml free 700\n");
}

TEST_F(Guard, WithoutALimitNothingChanges) {
  const Outcome outcome = run("", program("direct init retain info total alloc 5000"));
  EXPECT_EQ(outcome.out, "init 0\nretain 0\nfree 8092\ntotal 8192\ntotal 8192\nalloc 0\n");
  EXPECT_PRED2(has, outcome.errors, "headroom: peak 4.98 GiB of 8.00 GiB (");
}

TEST_F(Guard, EachGpuHasItsOwnLimit) {
  const std::string two = "HEADROOM_STANDIN_CARDS=2 ";
  const std::string limits = "--limit 500MiB,1=1000MiB";
  Outcome outcome = run(limits, program("direct init retain fill 64 device 1 retain fill 64"), two);
  EXPECT_PRED2(has, outcome.out, "blocks 5\nretain 0\nfill 2\nblocks 13\n");
  EXPECT_LE(peak_mib(0), 500);
  EXPECT_LE(peak_mib(1), 1000);
  EXPECT_PRED2(has, outcome.errors, " of 500.00 MiB on GPU 0, ");
  EXPECT_PRED2(has, outcome.errors, " of 1000.00 MiB on GPU 1 ");
  outcome = run(limits, GUARD_PROGRAM "_unlinked proc init device 0 retain fill 64",
                two + "CUDA_VISIBLE_DEVICES=1,0");
  EXPECT_PRED2(has, outcome.out, "blocks 13\n");
  outcome = run("--limit GPU-68656164-726f-6f6d-2073-74616e646901=1000MiB",
                program("direct init device 1 retain fill 64"), two);
  EXPECT_PRED2(has, outcome.out, "blocks 13\n");
  outcome = run("--limit 7=1GiB", program("direct init"), two);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_PRED2(has, outcome.errors, "no GPU 7; this machine has 0 (GPU-");
}

TEST_F(Guard, MemoryOfAStreamIsOfItsCard) {
  const Outcome outcome =
      run("--limit 1000MiB",
          program("direct init device 2 retain stream device 3 retain alloc 600 async 600 async 600"),
          "HEADROOM_STANDIN_CARDS=4");
  EXPECT_PRED2(has, outcome.out, "alloc 0\nasync 0\nasync 2\n");
  EXPECT_LE(peak_mib(2), 1000);
}

TEST_F(Guard, AllProcessesOfATreeShareTheLimit) {
  const Outcome outcome = run(
      "--limit 1000MiB", in_shell(program("direct init retain alloc 300 both init retain alloc 300 wait")));
  EXPECT_PRED2(has, outcome.out, "alloc 2\n");
  EXPECT_LE(peak_mib(), 1000);
}

TEST_F(Guard, ThreadsRaceWithoutOvershoot) {
  const Outcome outcome = run("--limit 1000MiB", program("direct init retain threads 200 fill 64"));
  EXPECT_PRED2(has, outcome.out, kFilled);
  EXPECT_LE(peak_mib(), 1000);
}

// HAMi-core #273.
TEST_F(Guard, ProcessesRaceWithoutOvershoot) {
  const Outcome outcome = run("--limit 1000MiB", program("direct both init retain race 500 20000 wait"));
  EXPECT_EQ(outcome.code, 0);
  const size_t first = outcome.out.find("won 20000\n");
  EXPECT_NE(outcome.out.find("won 20000\n", first + 1), std::string::npos) << outcome.out;
  EXPECT_LE(peak_mib(), 1000);
}

// HAMi #2500, HAMi-core #86 and #72: the lock, and the dead process's share.
TEST_F(Guard, TheShareOfAKilledProcessIsBackAtOnce) {
  std::string script;
  for (int i = 0; i < 10; ++i) script += program("direct init retain alloc 800 kill") + "; ";
  const Outcome outcome = run("--limit 1000MiB", in_shell(script + program("direct init retain fill 64")));
  EXPECT_PRED2(has, outcome.out, kFilled);
  EXPECT_LE(peak_mib(), 1000);
}

TEST_F(Guard, AProcessThatBecomesAnotherProgramKeepsNothing) {
  const Outcome outcome =
      run("--limit 1000MiB", program("direct init retain alloc 800 exec init retain fill 64"));
  EXPECT_PRED2(has, outcome.out, kFilled);
}

TEST_F(Guard, AChildAfterForkCountsNothingOfItsParent) {
  const Outcome outcome = run("--limit 1000MiB", program("direct fork init retain alloc 500 free alloc 500"));
  EXPECT_PRED2(has, outcome.out, "alloc 0\nfree 0\nalloc 0\nchild 0\n");
}

// A call that the driver refuses leaves the account as it was.
TEST_F(Guard, AFailedCallTakesNothing) {
  for (const std::string kind :
       {"alloc 100", "managed 100", "pitch 100", "async 100", "create 100", "array 100", "cube 100",
        "mipmaps 100", "graph 100 launch", "stack 4096", "context"}) {
    const Outcome outcome =
        run("--limit 1000MiB", program("direct init retain " + kind + " fill 64"), "HEADROOM_STANDIN_FAIL=2");
    EXPECT_PRED2(has, outcome.out, " 2\nfill 2\nblocks 13\n") << kind;
  }
}

TEST_F(Guard, GrowthThatNobodyAskedForCounts) {
  for (const char* settings :
       {"HEADROOM_STANDIN_LAZY=40", "HEADROOM_STANDIN_LAZY=40 HEADROOM_STANDIN_MODULE=30",
        "HEADROOM_STANDIN_HIDES=1", "HEADROOM_STANDIN_CONTEXT=600"}) {
    const Outcome outcome =
        run("--limit 1000MiB", program("direct init retain module code fill 2"), settings);
    EXPECT_PRED2(has, outcome.out, "fill 2\n") << settings;
    EXPECT_LE(peak_mib(), 1000) << settings;
  }
}

TEST_F(Guard, ManyProcessesThatGrowAtOnceStayBelow) {
  std::string script;
  for (int i = 0; i < 12; ++i) script += program("direct init retain module code sleep 300") + " & ";
  for (const char* settings : {"HEADROOM_STANDIN_CONTEXT=100 HEADROOM_STANDIN_MODULE=12",
                               "HEADROOM_STANDIN_CONTEXT=110 HEADROOM_STANDIN_MODULE=8",
                               "HEADROOM_STANDIN_CONTEXT=50 HEADROOM_STANDIN_MODULE=16"}) {
    run("--limit 1000MiB", in_shell(script + "wait"), settings);
    EXPECT_LE(peak_mib(), 1000) << settings;
    std::filesystem::remove(folder_ / "cards");
  }
}

TEST_F(Guard, AProgramWithoutTheLibraryIsSeen) {
  const std::string clean = "env -u LD_PRELOAD " + program("direct init retain alloc 2000 sleep 1500");
  const std::string hidden = "HEADROOM_STANDIN_HIDES=1 HEADROOM_STANDIN=" + folder_ / "hidden";
  EXPECT_PRED2(has, run("", clean).errors, "took 2.05 GiB without the limit: it was started");
  EXPECT_PRED2(has, run("", clean, hidden).errors, "used the GPU without");
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(has(run("", "sleep 0.01", hidden).errors, "without"));
}

TEST_F(Guard, ALimitBelowTheContextIsSaidInOneLine) {
  const Outcome outcome = run("--limit 400MiB", in_shell(program("direct init retain") + "; exit 1"),
                              "HEADROOM_STANDIN_CONTEXT=527");
  EXPECT_PRED2(has, outcome.out, "retain 2\n");
  EXPECT_PRED2(has, outcome.errors,
               "a process needs at least 527.00 MiB on this card before it allocates anything");
}

TEST_F(Guard, AboveSoftTheNeighborKeepsRoom) {
  const std::string options = "--soft 1000MiB --limit 4GiB --leave 2GiB";
  EXPECT_PRED2(has, run(options, program("direct init retain alloc 3000")).out, "alloc 0\n");
  const ScratchFolder other;
  const std::string crowded = "HEADROOM_STANDIN_NEIGHBOR=4000 HEADROOM_STANDIN=" + other / "cards";
  EXPECT_PRED2(has, run(options, program("direct init retain alloc 800 alloc 3000 alloc 1000"), crowded).out,
               "alloc 0\nalloc 2\nalloc 0\n");
}

}  // namespace
}  // namespace headroom
