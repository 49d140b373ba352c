// Commands after --, which every command that takes a program traces as a person types them. PyTorch is not
// there in tests: a shell script stands for Python.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "tests/tools/run_with_python.h"

namespace headroom {
namespace {

// Records its arguments.
constexpr const char* kTracer = R"(printf '%s\n' "$*" >> words
while [ "$1" != --output ]; do shift; done
cat > "$2" <<'END'
headroom-trace 4
s,framework,PyTorch 2.11.0
s,device,rtx-3090
s,strategy,caching
m,1,1,0
a,1000,4194304,0,0,1,0,0,0,4,0,0
m,1,5,1
a,3000,8388608,0,0,1,0,0,0,2,0,0
f,1000,0,1
f,3000,0,1
END
)";

// Answers requests with a trace that takes a gigabyte for each part of a batch.
constexpr const char* kAnswer = R"x(printf '%s\n' "$*" >> words
while read -r line; do
  file=$(printf '%s' "$line" | sed 's/.*"output":"\([^"]*\)".*/\1/')
  batch=$(printf '%s' "$line" | sed 's/.*"batch":\([0-9]*\).*/\1/')
  printf '%s\n' 'headroom-trace 4' 's,framework,PyTorch 2.11.0' 's,strategy,caching' 'm,1,1,0' \
    "a,1000,$((batch * 1073741824)),0,0,1,0,0,0,4,0,0" 'f,1000,0,1' > "$file"
  echo '{"modules":[],"batch":"the batch is --bs (4 as typed)"}'
done
)x";

TEST(CommandAfterDashes, IsTracedByEveryCommandAndEndsTheNextOne) {
  const std::string traced = " --steps 2 --device rtx-3090 -- python train.py --lr 1e-4";
  for (const std::string command :
       {"trace", "predict", "compare --runs 1", "replay", "report", "assert --max-peak 1GiB",
        "diff train.py:make_old", "fit --least-memory"}) {
    const ScratchFolder folder;
    const Outcome outcome = run_with_python(folder, kTracer, command + traced);
    ASSERT_EQ(outcome.code, 0) << command << ": " << outcome.errors;
    const std::string words = asked_of_package(folder);
    EXPECT_NE(words.find("trace --steps 2 --device rtx-3090 --output "), std::string::npos)
        << command << words;
    EXPECT_TRUE(words.ends_with(" --quiet --progress -- python train.py --lr 1e-4\n")) << command << words;
    if (command == "trace") continue;  // the next one takes the trace
    const size_t next = outcome.out.find("\nnext: headroom ");
    ASSERT_NE(next, std::string::npos) << command << outcome.out;
    EXPECT_NE(outcome.out.find(" -- python train.py --lr 1e-4\n", next), std::string::npos)
        << command << outcome.out;
  }
}

TEST(CommandAfterDashes, IsNamedWithoutThem) {
  const ScratchFolder folder;
  const Outcome outcome = run_with_python(folder, kTracer, "predict --json -- python 'my train.py'");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_NE(outcome.out.find("\"input\": \"python 'my train.py'\""), std::string::npos) << outcome.out;
  EXPECT_TRUE(read_file(folder / "words", 10'000).ends_with(" -- python my train.py\n"));
  const Outcome failed = run_with_python(folder, "kill -9 $$", "trace -- python train.py");
  EXPECT_TRUE(failed.errors.starts_with("headroom: python train.py: ")) << failed.errors;
}

TEST(CommandAfterDashes, ItsBatchIsAnOptionThatIsSaidAndMayBeNamed) {
  const ScratchFolder folder;
  const Outcome predicted =
      run_with_python(folder, std::string("echo 'headroom: note: the batch is --bs' >&2\n") + kTracer,
                      "predict --batch 8 --batch-option --bs --ranks 4 -- python train.py");
  ASSERT_EQ(predicted.code, 0) << predicted.errors;
  EXPECT_EQ(predicted.errors, "note: the batch is --bs\n");
  EXPECT_TRUE(
      read_file(folder / "words", 10'000)
          .ends_with(" --quiet --batch 8 --progress --ranks=4 --batch-option=--bs -- python train.py\n"));
  const Outcome fitted =
      run_with_python(folder, kAnswer, "fit --most 4 --device h200 --batch-option --bs -- torchrun train.py");
  ASSERT_EQ(fitted.code, 0) << fitted.errors;
  EXPECT_EQ(fitted.errors, "note: the batch is --bs (4 as typed)\n");
  EXPECT_TRUE(fitted.out.starts_with("largest batch 4: torchrun train.py ")) << fitted.out;
  EXPECT_NE(fitted.out.find("\nnext: headroom predict --batch 4 --device "), std::string::npos) << fitted.out;
  EXPECT_NE(fitted.out.find(" --batch-option --bs -- torchrun train.py\n"), std::string::npos) << fitted.out;
}

// A step that takes long is announced when it begins, not with the answer.
TEST(CommandAfterDashes, ComputesWhatTheOptionAllowsAndSaysSo) {
  const ScratchFolder folder;
  const std::string says = "echo 'headroom: computes 1.2 GiB on the CPU, about 40 s' >&2\n";
  for (const std::string command :
       {"trace", "predict", "compare --runs 1", "replay", "report", "assert --max-peak 1GiB",
        "diff train.py:make_old", "fit --least-memory"}) {
    const Outcome outcome =
        run_with_python(folder, says + kTracer, command + " --compute all -- python train.py");
    ASSERT_EQ(outcome.code, 0) << command << ": " << outcome.errors;
    EXPECT_NE(outcome.errors.find("note: computes 1.2 GiB on the CPU, about 40 s\n"), std::string::npos)
        << command << outcome.errors;
    const std::string words = read_file(folder / "words", 10'000);
    EXPECT_NE(words.find(" --compute=all -- python train.py\n"), std::string::npos) << command << words;
  }
  const std::string answer = R"(echo '{"said":"computes 3 GiB"}')";
  std::string asked = kAnswer;
  asked.insert(asked.find("  file="), "  " + answer + "\n");
  const Outcome fitted =
      run_with_python(folder, asked, "fit --most 2 --device h200 --compute never -- python train.py");
  ASSERT_EQ(fitted.code, 0) << fitted.errors;
  EXPECT_TRUE(fitted.errors.starts_with("note: computes 3 GiB\n")) << fitted.errors;
  EXPECT_NE(fitted.out.find(" --compute never "), std::string::npos) << fitted.out;
  const Outcome refused = run_with_python(folder, kTracer, "predict --compute much -- python train.py");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.errors.find("auto, never"), std::string::npos) << refused.errors;
}

TEST(CommandAfterDashes, ItsRandomWeightsGiveARange) {
  const ScratchFolder folder;
  std::string tracer = kTracer;
  tracer.insert(
      tracer.find("m,1,1,0"),
      "s,assumed,some sizes follow from what the model computes\ns,seed_peaks,8388608 12582912 9437184\n");
  const Outcome text = run_with_python(folder, tracer, "predict -- python train.py");
  EXPECT_NE(
      text.out.find("some sizes follow from what the model computes; over 3 seeds it requests 8.00 MiB to "
                    "12.00 MiB, of which this is the most\n"),
      std::string::npos)
      << text.out;
  const Outcome json = run_with_python(folder, tracer, "predict --json -- python train.py");
  EXPECT_NE(json.out.find("\"most_bytes\": 12582912"), std::string::npos) << json.out;
}

// The Python that a command names is the one that has PyTorch.
TEST(CommandAfterDashes, IsTracedByItsOwnPython) {
  const ScratchFolder folder;
  const std::string script = std::string("#!/bin/sh\necho \"$0 $*\" > who\n") + kTracer;
  const auto write = [&](const char* name, const std::string& text) {
    chmod(folder.write(name, text).c_str(), 0700);
  };
  std::filesystem::create_directory(folder / "bin");
  std::filesystem::create_directory(folder / "env");
  for (const char* name : {"bin/python3.11", "bin/python3", "env/python"}) write(name, script);
  write("bin/torchrun", "#!" + folder.path() + "/env/python\n");
  write("bin/tune", "#!/bin/sh\n'''exec' " + folder.path() + "/env/python \"$0\" \"$@\"\n");
  write("bin/uv", "#!/bin/sh\nshift\nPATH=" + folder.path() + "/env:$PATH \"$@\"\n");
  write("bin/tool", "#!/bin/sh\n");
  struct Row {
    const char *command, *python;
  };
  constexpr Row kRows[] = {{"python3.11 train.py", "bin/python3.11 "},
                           {"torchrun train.py", "env/python "},
                           {"tune run", "env/python "},
                           {"env A=1 python3 train.py", "bin/python3 "},
                           {"A=1 python3 train.py", "bin/python3 "},
                           {"uv run python train.py", "env/python "},
                           {"uv run train.py", "env/python "},
                           {"train.ipynb", "bin/python3 "},
                           {"train.py --lr 1", "bin/python3 "}};
  const auto run = [&](const std::string& command) {
    return run_shell(folder, "cd " + folder.path() + " && env -u HEADROOM_PYTHON PATH=" + folder.path() +
                                 "/bin:$PATH " HEADROOM_COMMAND " trace -- " + command);
  };
  for (const Row& row : kRows) {
    const Outcome outcome = run(row.command);
    ASSERT_EQ(outcome.code, 0) << row.command << outcome.errors;
    const std::string who = read_file(folder / "who", 10'000);
    EXPECT_TRUE(who.starts_with(folder / row.python)) << row.command << who;
  }
  EXPECT_EQ(
      run("tool").errors,
      "headroom: tool is not a program of Python: give the command of Python that it runs, as -- python "
      "train.py\n");
  EXPECT_EQ(run("no-such-command").errors, "headroom: cannot run no-such-command: no such command\n");
  EXPECT_EQ(run("").errors, "headroom: no command after --; give one, as -- python train.py\n");
}

TEST(CommandAfterDashes, WithoutThePackageNamesHowItsPythonIsStarted) {
  const ScratchFolder folder;
  const std::string python = folder.path() + "/python";
  chmod(folder.write("python", "#!/bin/sh\necho \"No module named headroom\" >&2; exit 1\n").c_str(), 0700);
  const Outcome outcome = run_shell(
      folder, "env -u HEADROOM_PYTHON " HEADROOM_COMMAND " trace -- env A=1 " + python + " train.py");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.errors.find("/env A=1 " + python + " -m pip install ."), std::string::npos)
      << outcome.errors;
}

TEST(CommandAfterDashes, IsRunByCompareOnlyUnderItsStrategies) {
  const ScratchFolder folder;
  const Outcome outcome =
      run_with_python(folder, kTracer, "compare --runs 1 --strategies grab-all -- ./no-such-program");
  EXPECT_NE(outcome.code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "words"));
}

}  // namespace
}  // namespace headroom
