// What `headroom run` adds to a program beside the limit: recordings, verdicts, strategies, exit codes.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "guard/account.h"
#include "tests/guard/guard_fixture.h"

namespace headroom {
namespace {

TEST_F(Guard, ARecordingHasWhatTheDriverGaveAndWhatItRefused) {
  const std::string trace = folder_ / "run.trace", options = "--limit 1000MiB --record " + trace;
  run(options,
      program("direct init retain alloc 100 async 50 free-async create 64 unmap 64 array 30 fill 200"));
  const std::string text = read_file(trace, 1 << 20);
  for (const char* line :
       {"n,cuMemAlloc\n", ",104857600,0,0,", "n,cuMemCreate\n", "\no,209715200,", "\nd,1048576000,"}) {
    EXPECT_PRED2(has, text, line);
  }
  for (const char* reader : {" report --json ", " replay "}) {
    const Outcome outcome = run_shell(folder_, HEADROOM_COMMAND + std::string(reader) + trace);
    EXPECT_EQ(outcome.code, 0) << reader;
    EXPECT_EQ(has(outcome.out, "\"library_bytes\": 104857600"),
              std::string(reader) == " report --json ");  // the context
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

// The verdict on a program with a snapshot of tests/tools/report/snapshots and such facts.
class Facts : public Guard {
 protected:
  std::string verdict(const std::string& snapshot, const std::string& facts) const {
    const std::string pickle =
        HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/" + snapshot + "-python.pickle.gz";
    return run("", in_shell("cp " + pickle + " $HEADROOM_RUN_SNAPSHOT.77.pickle; cp " +
                            folder_.write("facts", facts) +
                            " $HEADROOM_RUN_SNAPSHOT.77.json; echo CUDA out of memory >&2; exit 1"))
        .errors;
  }
};

TEST_F(Facts, WhatAProgramKeepsIsNamedBesideItsSnapshot) {
  const std::string batches =
      "{\"kept\": [{\"name\": \"batches\", \"file\": \"train.py\", \"line\": 3, \"count\": 9, \"bytes\": "
      "900, "
      "\"graphs\": false}, ";
  const std::string total = verdict("accumulated-losses", batches +
                                                              "{\"name\": \"total\", \"file\": \"train.py\", "
                                                              "\"line\": 7, \"count\": 1, \"bytes\": 4, "
                                                              "\"graphs\": true}]}");
  EXPECT_PRED2(has, total, "\ntotal keeps 1 tensor with the graph behind it, at train.py:7\n");
  EXPECT_FALSE(has(total, "batches")) << total;
  // The bytes of a leak are those of the graph, where no list has as many.
  const std::string path = verdict(
      "leak", batches +
                  "{\"name\": \"path\", \"file\": \"train.py\", \"line\": 9, \"count\": 5, \"bytes\": 800, "
                  "\"graphs\": true}]}");
  EXPECT_PRED2(has, path, "\npath keeps 5 tensors with the graph behind them, at train.py:9\n");
  EXPECT_PRED2(has, path, "\nnext: keep values without their graph: .detach(), or under torch.no_grad()\n");
}

TEST_F(Facts, ACheckpointThatStaysIsToldBeforeASmallerStateOfAnOptimizer) {
  const auto loaded = [&](int64_t bytes) {
    return verdict("optimizer-first-step",
                   "{\"loaded\": {\"name\": \"ckpt\", \"line\": \"train.py:76\", \"bytes\": " +
                       std::to_string(bytes) + ", \"call\": \"torch.load\"}}");
  };
  EXPECT_PRED2(has, loaded(int64_t{1} << 40),
               "exhausted: ckpt still holds 1.00 TiB that torch.load returned,");
  EXPECT_PRED2(has, loaded(1 << 20), "the optimizer's first step allocates");
}

TEST_F(Facts, TheLargestWeightsThatAreTrainedAreNamed) {
  const std::string text =
      verdict("optimizer-first-step",
              "{\"trained\": {\"names\": \"lm_head\", \"bytes\": 3145728, \"total\": 4194304, "
              "\"line\": \"train.py:48\"}}");
  EXPECT_PRED2(has, text,
               "\nof the 4.00 MiB of weights that are trained, 3.00 MiB are lm_head, named at train.py:48\n");
}

TEST_F(Facts, TheOptimizerWhoseStateDoesNotFitIsNamedWhereItIsMade) {
  const std::string text =
      verdict("optimizer-first-step",
              "{\"trained\": {\"names\": \"\", \"bytes\": 0, \"total\": 4194304, \"optimizers\": "
              "4, \"class\": \"Adam\", \"made\": \"train.py:26\"}}");
  EXPECT_PRED2(has, text,
               "\nthe state is that of Adam and other optimizers, 4 in all, made at train.py:26\n");
}

TEST_F(Facts, ALongStepIsNoEvaluation) {
  EXPECT_PRED2(has, verdict("evaluation-keeps-graphs", "{}"), "next: evaluate under torch.no_grad()");
  const std::string text =
      verdict("evaluation-keeps-graphs", "{\"moment\": {\"backward\": true, \"lines\": []}}");
  EXPECT_PRED2(has, text, "of activations until its backward");
  EXPECT_FALSE(has(text, "no_grad")) << text;
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

TEST_F(Guard, AVerdictIsToldAgainFromAFile) {
  const std::string facts = folder_.write("facts", "{\"libraries\": {\"CuPy\": 943718400}, \"kept\": []}");
  const std::string pickle =
      HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/growing-batch-gpt2-python.pickle.gz";
  for (const std::string& copies :
       {"cp " + facts + " $HEADROOM_RUN_SNAPSHOT.77.json; ",
        "cp " + pickle + " $HEADROOM_RUN_SNAPSHOT.77.pickle; ", std::string("true; ")}) {
    const std::string first = run("--limit 1000MiB --failure " + folder_ / "failure.json",
                                  in_shell(copies + program("direct init retain alloc 850 alloc 400") +
                                           "; echo train.py: CUDA out of memory >&2; exit 1"))
                                  .errors;
    const Outcome again = run_shell(folder_, HEADROOM_COMMAND " run --failure " + folder_ / "failure.json");
    EXPECT_PRED2(has, first, again.out) << first;
    EXPECT_PRED2(has, again.out, "1 request was refused by the limit of 1000.00 MiB");
  }
  const Outcome other = run_shell(folder_, HEADROOM_COMMAND " run --failure " + facts);
  EXPECT_EQ(other.code, 2);
  EXPECT_PRED2(has, other.errors, "no file of headroom run --failure") << other.errors;
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
  EXPECT_EQ(run("--strategy hard-limit=1GiB", print).code, 2);
}

TEST_F(Guard, TheVerdictBeginsOnALineOfItsOwn) {
  const std::string bar = run("", "sh -c 'printf \"50%% done\" >&2; exit 1'").errors;
  EXPECT_PRED2(has, bar, "50% done\n") << bar;
  const std::string line = run("", "sh -c 'echo done >&2'").errors;
  EXPECT_PRED2(has, line, "done\nheadroom: ") << line;
}

TEST_F(Guard, AFailureIsExplained) {
  const std::string message =
      "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.80 GiB total capacity; "
      "5.00 GiB already allocated; 1.10 GiB free; 5.20 GiB reserved in total by PyTorch)";
  const Outcome outcome =
      run("--limit 1000MiB",
          in_shell(program("direct init retain alloc 2000; echo \"" + message + "\" >&2; exit 1")));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_PRED2(has, outcome.errors, "\nexhausted: 2.00 GiB were requested at once");
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

TEST_F(Guard, APieceThatAPoolMayNeedIsNotTakenForThatOfTheContext) {
  const std::string who = HEADROOM_COMMAND " who";
  const Outcome outcome =
      run("--limit 1000MiB",
          in_shell(program("direct init retain module sleep 300 async 4 async 4 async 4 async 4 "
                           "async 4 sleep 500 shell \"" +
                           who + "\"")),
          "HEADROOM_STANDIN_MODULE=50");
  EXPECT_PRED2(has, outcome.out, "150.0  1000.0") << outcome.out;
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
  // A process that outlives the command has no hook any more.
  EXPECT_EQ(run("",
                "python3 -c \"import os, shutil; shutil.rmtree(os.environ['PYTHONPATH'].split(':')[0]); "
                "import torch; print(torch.memory)\"",
                path)
                .out,
            "own\n<class 'torch.memory'>\n");
}

TEST_F(Guard, PythonsHookIsCompiledOnceAndNeverTakenFromAFolderThatOthersMayWrite) {
  if (run_shell(folder_, "python3 -c pass").code != 0) GTEST_SKIP() << "no python3";
  const std::string printed = run("", "python3 -c \"import os; print(os.environ['PYTHONPATH'])\"",
                                  "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=")
                                  .out;
  const std::string hook = printed.substr(0, printed.find('\n'));
  EXPECT_EQ(hook.find(folder_ / "cache"), 0u) << hook;
  EXPECT_TRUE(std::filesystem::exists(hook + "/__pycache__"));
  std::filesystem::remove_all(hook + "/__pycache__");
  const size_t bytes = std::filesystem::file_size(hook + "/sitecustomize.py");
  std::string planted = "print('planted')\n";
  planted.resize(bytes, '\n');
  folder_.write(hook.substr(folder_.path().size() + 1) + "/sitecustomize.py", planted);
  EXPECT_PRED2(has, run("", "python3 -c pass").out, "planted");  // the check below can fail
  std::filesystem::permissions(hook, std::filesystem::perms::all);
  EXPECT_EQ(run("", "python3 -c pass").out, "");  // written anew
  folder_.write(hook.substr(folder_.path().size() + 1) + "/sitecustomize.py", planted);
  std::filesystem::permissions(folder_ / "cache/headroom", std::filesystem::perms::all);
  EXPECT_EQ(run("", "python3 -c pass").out, "");  // others could replace it
}

TEST_F(Guard, AccountsOfRunsThatWereKilledAreRemovedWhateverTheirVersion) {
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  waitpid(ended, nullptr, 0);
  const std::string name = std::string(guard::kAccountFolder) + "/" + guard::kAccountPrefix;
  const std::string old = name + std::to_string(ended) + "-0", used = name + std::to_string(getpid()) + "-0";
  std::ofstream(old) << "an account of another version";
  std::ofstream(used) << "an account of another version";
  EXPECT_EQ(run("", "true").code, 0);
  EXPECT_TRUE(std::filesystem::exists(old)) << "a container may still use it";
  for (const std::string& file : {old, used})
    std::filesystem::last_write_time(file,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
  EXPECT_EQ(run("", "true").code, 0);
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::remove(used));
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
  const std::string no_interpreter = folder_.write("run.sh", "#!/no/such\n");
  std::filesystem::permissions(no_interpreter, std::filesystem::perms::owner_all);
  refused("--limit 1GiB", no_interpreter, 2, "No such file or directory");
  const Outcome outcome = run_shell(folder_, HEADROOM_COMMAND " run --limit 1GiB -- true");
  if (outcome.code != 0) {
    EXPECT_PRED2(has, outcome.errors, "no GPU: NVIDIA's driver (libcuda.so.1) is not installed");
  }
}

}  // namespace
}  // namespace headroom
