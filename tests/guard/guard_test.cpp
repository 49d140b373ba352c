// Programs in C under `headroom run --limit`, against the stand-in driver, whose own books say what was
// taken.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "guard/account.h"
#include "guard/standin/cards.h"
#include "tests/run_shell.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr int64_t kMib = int64_t{1} << 20;

class Guard : public testing::Test {
 protected:
  // The program's commands under a limit. `settings` are variables of the environment: STANDIN_CONTEXT=200.
  Outcome run(const std::string& options, const std::string& program,
              const std::string& settings = {}) const {
    const std::string all = "HEADROOM_STANDIN=" + folder_ / "cards" +
                            " GUARD_DEEP_LIBRARY=" GUARD_DEEP " LD_LIBRARY_PATH=" GUARD_STANDIN " " +
                            settings + " ";
    return run_shell(folder_, all + HEADROOM_COMMAND " run " + options + " -- " + program);
  }
  static std::string program(const std::string& words) { return GUARD_PROGRAM " " + words; }
  static std::string in_shell(const std::string& script) { return "sh -c '" + script + "'"; }

  // The driver's own books.
  standin::Cards cards() const {
    standin::Cards all{};
    const std::string bytes = read_file(folder_ / "cards", 1 << 20);
    if (bytes.size() != sizeof all)
      ADD_FAILURE() << "no cards";
    else
      std::memcpy(static_cast<void*>(&all), bytes.data(), sizeof all);
    return all;
  }
  int64_t peak_mib(int card = 0) const { return cards().tree_peak[card] / kMib; }

  ScratchFolder folder_;
};

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
  }
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

TEST_F(Guard, AllProcessesOfATreeShareTheLimit) {
  const Outcome outcome = run(
      "--limit 1000MiB", in_shell(program("direct init retain alloc 400 both init retain alloc 400 wait")));
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

TEST_F(Guard, AProgramWithoutTheLibraryIsSeen) {
  const Outcome outcome =
      run("--limit 1000MiB", "env -u LD_PRELOAD " + program("direct init retain alloc 2000 sleep 300"));
  EXPECT_PRED2(has, outcome.errors, "took 2.05 GiB without the limit: it was started without LD_PRELOAD");
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

TEST_F(Guard, ARecordingHasWhatTheDriverGaveAndWhatItRefused) {
  const std::string trace = folder_ / "run.trace", options = "--limit 1000MiB --record " + trace;
  run(options,
      program("direct init retain alloc 100 async 50 free-async create 64 unmap 64 array 30 fill 200"));
  const std::string text = read_file(trace, 1 << 20);
  for (const char* line :
       {"n,cuMemAlloc\n", ",104857600,0,0,", "n,cuMemCreate\n", "\no,209715200,", "\nd,1048576000,"}) {
    EXPECT_PRED2(has, text, line);
  }
  for (const char* reader : {" report ", " replay "}) {
    EXPECT_EQ(run_shell(folder_, HEADROOM_COMMAND + std::string(reader) + trace).code, 0) << reader;
  }
}

TEST_F(Guard, ARecordingSurvivesItsProcess) {
  const std::string trace = folder_ / "run.trace", out = folder_ / "out";
  for (int i = 0; i < 20; ++i) {
    // Killed while it allocates, after its first block.
    const std::string killed = program("direct init retain alloc 10 race 10 100000000 >" + out) + " & ";
    const std::string waits =
        "until grep -q alloc " + out + "; do sleep 0.01; done; sleep 0.0" + std::to_string(i);
    run("--record " + trace, in_shell(": >" + out + "; " + killed + waits + "; kill -9 $!; wait"));
    const Outcome outcome = run_shell(folder_, HEADROOM_COMMAND " replay --strategy direct --json " + trace);
    EXPECT_EQ(outcome.code, 0) << i << outcome.errors;
  }
}

// PyTorch writes it when memory first runs out; the run's verdict is that of the snapshot.
TEST_F(Guard, TheSnapshotThatPyTorchWroteNamesTheCauseAndTheLine) {
  const std::string snapshot =
      HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/growing-batch-gpt2-python.pickle.gz";
  const std::string trace = folder_ / "run.trace";
  folder_.write("run.trace.1.pickle", "of a run of yesterday");
  std::filesystem::last_write_time(folder_ / "run.trace.1.pickle",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(24));
  const Outcome outcome =
      run("--record " + trace, in_shell("cp " + snapshot +
                                        " $HEADROOM_RUN_SNAPSHOT.77.pickle; "
                                        "echo torch.OutOfMemoryError: CUDA out of memory >&2; exit 1"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_PRED2(has, outcome.errors, "at train.py:220 (train.py:68)");
  EXPECT_PRED2(has, outcome.errors, "the batch was doubled since step 9");
  EXPECT_PRED2(has, outcome.errors, "\nnext: keep the batch at its size before");
  EXPECT_PRED2(has, outcome.errors, "\nnext: headroom report " + trace + ".77.pickle\n");
}

TEST_F(Guard, WhatAProgramKeepsIsNamedBesideItsSnapshot) {
  const std::string snapshot =
      HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/accumulated-losses-python.pickle.gz";
  const std::string facts = folder_.write(
      "facts",
      "{\"kept\": [{\"name\": \"batches\", \"file\": \"train.py\", \"line\": 3, \"count\": 9, \"bytes\": 900,"
      " \"graphs\": false}, {\"name\": \"total\", \"file\": \"train.py\", \"line\": 7, \"count\": 1, "
      "\"bytes\": 4,"
      " \"graphs\": true}]}");
  const Outcome outcome =
      run("", in_shell("cp " + snapshot + " $HEADROOM_RUN_SNAPSHOT.77.pickle; cp " + facts +
                       " $HEADROOM_RUN_SNAPSHOT.77.json; echo CUDA out of memory >&2; exit 1"));
  EXPECT_PRED2(has, outcome.errors, "\ntotal keeps 1 tensor with the graph behind it, at train.py:7\n");
  EXPECT_FALSE(has(outcome.errors, "batches")) << outcome.errors;
}

TEST_F(Guard, ALibraryBesidePyTorchThatHoldsTheMemoryIsNamed) {
  const std::string facts =
      folder_.write("facts", "{\"libraries\": {\"CuPy\": 943718400, \"JAX\": 1048576}}");
  const Outcome outcome =
      run("--limit 1000MiB",
          in_shell("cp " + facts + " $HEADROOM_RUN_SNAPSHOT.77.json; " +
                   program("direct init retain alloc 850") + "; echo CUDA out of memory >&2; exit 1"));
  EXPECT_PRED2(has, outcome.errors, "other-library: CuPy holds 900.00 MiB of this process") << outcome.errors;
  EXPECT_PRED2(has, outcome.errors, "next: cupy.get_default_memory_pool().free_all_blocks()");
}

TEST_F(Guard, GrabAllTakesTheLimitBeforeItIsAskedFor) {
  Outcome outcome = run("--limit 1000MiB --strategy grab-all",
                        program("direct init retain alloc 10 info alloc 800 free fill 64"));
  EXPECT_PRED2(has, outcome.out, "free 827\n");
  EXPECT_PRED2(has, outcome.out, "alloc 0\nfree 0\nfill 2\nblocks 12\n");
  EXPECT_GE(peak_mib(), 850);
  EXPECT_LE(peak_mib(), 1000);
  outcome = run("--limit 1000MiB --strategy grab-all", program("direct context alloc 10 destroy"));
  EXPECT_EQ(run("--strategy grab-all", program("direct")).code, 2);
}

TEST_F(Guard, AStrategySetsWhatFrameworksRead) {
  const std::string print = in_shell("echo $TF_FORCE_GPU_ALLOW_GROWTH $XLA_PYTHON_CLIENT_PREALLOCATE");
  const Outcome outcome = run("--strategy allow-growth", print);
  EXPECT_EQ(outcome.out, "true false\n");
  EXPECT_PRED2(has, outcome.errors,
               "; TF_FORCE_GPU_ALLOW_GROWTH=true; XLA_PYTHON_CLIENT_PREALLOCATE=false\n");
  EXPECT_EQ(run("--limit 1GiB --strategy grab-all", print).out, "false true\n");
  EXPECT_EQ(run("--limit 1GiB --strategy mapped", in_shell("echo $HEADROOM_RUN_STRATEGY")).out, "mapped\n");
  EXPECT_EQ(run("--strategy no-such", print).code, 2);
  EXPECT_EQ(run("--strategy hard-limit", print).code, 2);
}

TEST_F(Guard, AFailureIsExplained) {
  const std::string message =
      "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.80 GiB total capacity; "
      "5.00 GiB already allocated; 1.10 GiB free; 5.20 GiB reserved in total by PyTorch)";
  const Outcome outcome =
      run("--limit 1000MiB",
          in_shell(program("direct init retain alloc 2000; echo \"" + message + "\" >&2; exit 1")));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_PRED2(has, outcome.errors, "\nexhausted: 7.00 GiB are needed and 6.30 GiB are available");
  EXPECT_PRED2(has, outcome.errors,
               "1 request was refused by the limit of 1000.00 MiB, the last of them 1.95 GiB\n");
  EXPECT_PRED2(has, outcome.errors, "next: ");
  EXPECT_LE(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 11);
}

TEST_F(Guard, ARequestThatAFrameworkRefusedItselfIsComparedWithTheLimit) {
  const Outcome outcome =
      run("--limit 1000MiB",
          in_shell(program(
              "direct init retain alloc 10; echo \"jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of "
              "memory while trying to allocate 16.02GiB.\" >&2; exit 1")));
  EXPECT_PRED2(has, outcome.errors,
               "too-large-for-device: one request of 16.02 GiB cannot fit in the limit of 1000.00 MiB\n");
}

TEST_F(Guard, AFailureNamesTheProgramsOwnLine) {
  const std::string script =
      folder_.write("fail.sh",
                    "cat >&2 <<END\nTraceback (most recent call last):\n"
                    "  File \"/home/me/train.py\", line 31, in main\n    loss.backward()\n"
                    "  File \"/usr/lib/python3/dist-packages/torch/_tensor.py\", line 9, in backward\n"
                    "END\nexit 1\n");
  const Outcome outcome = run("--limit 1000MiB", "sh " + script);
  EXPECT_PRED2(has, outcome.errors, "\nat /home/me/train.py:31 in main\n");
}

TEST_F(Guard, WhoShowsWhatAGuardedProgramHolds) {
  const std::string who = HEADROOM_COMMAND " who";
  const Outcome outcome =
      run("--limit 1000MiB",
          in_shell(program("direct init retain alloc 300 async 50 free-async shell \"" + who + "\"")));
  EXPECT_PRED2(has, outcome.out, "guarded pid");
  EXPECT_PRED2(has, outcome.out, "1000.0");
  EXPECT_PRED2(has, outcome.out, "300.0");
}

TEST_F(Guard, CompareRunsAProgramUnderEachStrategy) {
  const std::string settings =
      "HEADROOM_STANDIN=" + folder_ / "cards" + " LD_LIBRARY_PATH=" GUARD_STANDIN " ";
  const Outcome outcome =
      run_shell(folder_, settings + HEADROOM_COMMAND
                             " compare --limit 1000MiB --strategies grab-all,allow-growth -- " GUARD_PROGRAM
                             " direct init retain alloc 100 free");
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_PRED2(has, outcome.out, "grab-all");
  EXPECT_PRED2(has, outcome.out, "allow-growth");
  EXPECT_PRED2(has, outcome.out, "  200.0");
}

TEST_F(Guard, PythonProgramsStartAsWithoutIt) {
  if (run_shell(folder_, "python3 -c pass").code != 0) GTEST_SKIP() << "no python3";
  std::filesystem::create_directories(folder_ / "own/torch");
  std::filesystem::create_directories(folder_ / "own/headroom");
  folder_.write("own/sitecustomize.py", "print('own')\n");
  folder_.write("own/torch/__init__.py",
                "class memory:\n  def _record_memory_history(**_): print('history')\n"
                "class cuda:\n  memory = memory\n  def _lazy_call(call): call()\n"
                "class _C:\n  def _cuda_attach_out_of_memory_observer(_): print('observer')\n");
  folder_.write("own/headroom/__init__.py", "");
  folder_.write("own/headroom/torch.py", "def use(strategy): print('uses', strategy)\n");
  const std::string python = "python3 -c \"import torch, sys; print(len(sys.path) > 0)\"";
  const std::string path = "PYTHONPATH=" + folder_ / "own";
  EXPECT_EQ(run("", python, path).out, "own\nhistory\nobserver\nTrue\n");
  EXPECT_EQ(run("--strategy mapped", python, path).out, "own\nuses mapped\nTrue\n");
}

// The hook looks through the program's own frames when memory runs out.
TEST_F(Guard, AVerdictNamesWhatKeepsTheMemoryAndItsLine) {
  if (run_shell(folder_, "python3 -c pass").code != 0) GTEST_SKIP() << "no python3";
  std::filesystem::create_directories(folder_ / "own/torch");
  folder_.write("own/torch/__init__.py", R"(
class Storage:
  nbytes, data_ptr = (lambda self: 64 << 20), (lambda self: id(self))
class Tensor:
  is_cuda, grad_fn = True, None
  def __init__(self): self.storage = Storage()
  def untyped_storage(self): return self.storage
class nn: Parameter = type("Parameter", (Tensor,), {})
class cuda:
  def _lazy_call(call): call()
  class memory: _record_memory_history = _dump_snapshot = lambda *_, **__: None
class _C:
  def _cuda_attach_out_of_memory_observer(call): _C.ran_out = call
)");
  const auto verdict = [&](const std::string& body) {
    const std::string program = folder_.write(
        "train.py", "import torch\n" + body +
                        "  torch._C.ran_out()\n"
                        "  raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 MiB')\n"
                        "main()\n");
    return run("--limit 1000MiB", "python3 " + program, "PYTHONPATH=" + folder_ / "own").errors;
  };
  const std::string text = verdict(
      "class Hooks:\n"
      "  def __init__(self): self.maps = {'a': []}\n"
      "  def see(self, output):\n"
      "    self.maps['a'].append(output)\n"  // line 5
      "def main():\n"
      "  hooks, weights = Hooks(), [torch.nn.Parameter() for _ in range(9)]\n"
      "  for _ in range(5): hooks.see(torch.Tensor())\n");
  EXPECT_PRED2(has, text, "leak: maps keeps 5 tensors, 320.00 MiB, at " + folder_ / "train.py:5") << text;
  EXPECT_PRED2(has, text, "memory ran out at " + folder_ / "train.py:") << text;
  EXPECT_FALSE(has(verdict("def main():\n  a, b = torch.Tensor(), [torch.Tensor()]\n"), "keeps"));
}

TEST_F(Guard, TheProgramKeepsItsExitCodeSignalsAndStdin) {
  EXPECT_EQ(run("", program("direct exit 7")).code, 7);
  EXPECT_EQ(run("", in_shell("kill -TERM $$") + "; test $? = 143").code, 0);
  EXPECT_EQ(run("", in_shell(program("direct kill")) + "; test $? = 137").code, 0);
  EXPECT_EQ(run("", "cat <<END\nhello\nEND").out, "hello\n");
  const Outcome outcome = run("", in_shell("echo out; echo err >&2"));
  EXPECT_EQ(outcome.out, "out\n");
  EXPECT_EQ(outcome.errors.substr(0, 4), "err\n");
  EXPECT_EQ(run("", in_shell("for i in 1 2 3; do echo out; echo err >&2; done") + " 2>&1").out.substr(0, 24),
            "out\nerr\nout\nerr\nout\nerr\n");
}

TEST_F(Guard, BadInputGetsOneLine) {
  const auto refused = [&](const std::string& options, const std::string& command, int code,
                           const char* text) {
    const Outcome outcome = run(options, command);
    EXPECT_EQ(outcome.code, code) << command;
    EXPECT_PRED2(has, outcome.errors, text);
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  };
  refused("--limit 1GiB", "", 2, "no command after --");
  refused("--limit 1GiB", "no-such-command", 2, "cannot run no-such-command: no such command");
  refused("--limit 1GiB", GUARD_PROGRAM "_static", 2, "it is linked statically");
  refused("--limit much", program("direct"), 2, "--limit");
  const Outcome outcome = run_shell(folder_, HEADROOM_COMMAND " run --limit 1GiB -- true");
  if (outcome.code != 0) {
    EXPECT_PRED2(has, outcome.errors, "no GPU: NVIDIA's driver (libcuda.so.1) is not installed");
  }
}

}  // namespace
}  // namespace headroom
