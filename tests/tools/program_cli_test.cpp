// Every command that takes a recording also takes a program of PyTorch and traces it as its options say.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "tests/tools/run_with_python.h"

namespace headroom {
namespace {

// Records its arguments.
constexpr const char* kNoteAndTrace = R"(printf '%s\n' "$*" >> words
while [ "$1" != --output ]; do shift; done
cat > "$2" <<'END'
headroom-trace 4
s,framework,PyTorch 2.11.0
s,device,rtx-3090
s,strategy,caching
n,aten::mm
n,train.py:7
n,fc
m,1,1,0
a,1000,4194304,0,0,1,1,0,2,4,3,0
m,1,2,1
a,3000,8388608,0,0,1,1,0,2,2,3,0
f,1000,0,1
f,3000,0,1
END
)";

constexpr std::string_view kProgram = "train.py:make_step";
constexpr std::string_view kTraced = "--batch 4 --steps 2 --device rtx-3090";

TEST(ProgramAsInput, IsTracedByEveryCommandAsItsOptionsSay) {
  for (const char* command : {"predict", "compare --runs 1", "replay", "report", "assert --max-peak 1GiB",
                              "diff train.py:make_old"}) {
    const ScratchFolder folder;
    const Outcome outcome =
        run_with_python(folder, kNoteAndTrace, fmt::format("{} {} {}", command, kProgram, kTraced));
    ASSERT_EQ(outcome.code, 0) << command << ": " << outcome.errors;
    const std::string words = asked_of_package(folder);
    EXPECT_TRUE(words.starts_with("trace train.py:make_")) << command << ": " << words;
    EXPECT_NE(words.find(" train.py:make_step --steps 2 --device rtx-3090 "), std::string::npos)
        << command << ": " << words;
    EXPECT_NE(words.find(" --batch 4 --progress\n"), std::string::npos) << command << ": " << words;
  }
}

// Answers requests with a trace that takes a gigabyte for each part of a batch; the fourth has another
// answer.
constexpr const char* kAnswerRequests = R"x(printf '%s\n' "$*" >> words
while read -r line; do
  printf '%s\n' "$line" >> requests
  file=$(printf '%s' "$line" | sed 's/.*"output":"\([^"]*\)".*/\1/')
  batch=$(printf '%s' "$line" | sed 's/.*"batch":\([0-9]*\).*/\1/')
  if [ "$batch" -eq 4 ] && [ -e fourth ]; then . ./fourth; continue; fi
  printf '%s\n' 'headroom-trace 4' 's,framework,PyTorch 2.11.0' 's,strategy,caching' 'm,1,1,0' \
    "a,1000,$((batch * 1073741824)),0,0,1,0,0,0,4,0,0" 'f,1000,0,1' > "$file"
  echo '{"modules":[]}'
done
)x";

TEST(ProgramAsInput, IsTracedByThePackageOfTheTreeInWhichTheCommandWasBuilt) {
  const ScratchFolder folder;
  const std::filesystem::path command = HEADROOM_COMMAND;
  const auto package = (command.parent_path() / "../../../python/headroom/__main__.py").lexically_normal();
  if (!std::filesystem::exists(package)) GTEST_SKIP() << "built outside of the tree";
  ASSERT_EQ(run_with_python(folder, kNoteAndTrace, fmt::format("predict {} {}", kProgram, kTraced)).code, 0);
  EXPECT_TRUE(read_file(folder / "words", 10'000).starts_with(package.string() + " trace "));
}

// The command finds the batch itself.
TEST(ProgramAsInput, IsLoadedOnceByFitAndTracedWithEachBatch) {
  const ScratchFolder folder;
  const Outcome outcome =
      run_with_python(folder, kAnswerRequests, fmt::format("fit {} --steps 2 --device rtx-3090", kProgram));
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.out.starts_with("largest batch 23: train.py:make_step ")) << outcome.out;
  EXPECT_EQ(asked_of_package(folder), "trace train.py:make_step --steps 2 --device rtx-3090 --requests\n");
  const std::string requests = read_file(folder / "requests", 100'000);
  for (const char* batch : {"1", "23", "24"}) {
    EXPECT_NE(requests.find(fmt::format("\"batch\":{},", batch)), std::string::npos) << requests;
  }
}

TEST(ProgramAsInput, AMarginThatStopsFitIsSaid) {
  const ScratchFolder folder;
  const std::string fit = fmt::format("fit {} --device rtx-3090 --margin ", kProgram);
  const Outcome outcome = run_with_python(folder, kAnswerRequests, fit + "1GiB");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_NE(
      outcome.out.find("\n1.00 GiB kept free; why not more: batch 23 would leave less than 1.00 GiB free\n"),
      std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("leaves too little"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("  or: "), std::string::npos) << outcome.out;
  EXPECT_TRUE(run_with_python(folder, kAnswerRequests, fit + "0").out.starts_with("largest batch 23: "));
}

// Its kernels and workspaces are those of the card that it was traced for.
TEST(ProgramAsInput, ATraceForAnotherCardIsNoted) {
  const ScratchFolder folder;
  ASSERT_EQ(run_with_python(folder, kNoteAndTrace, "trace train.py:make_step -o run.trace").code, 0);
  const std::string note =
      "was traced for rtx-3090; on another card kernels and workspaces may differ: trace the program with "
      "--device h200\n";
  for (const char* command : {"predict run.trace", "fit run.trace --least-memory", "solve run.trace",
                              "compare run.trace --runs 1 --strategy direct", "replay run.trace",
                              "compare --trace run.trace --runs 1 --strategy direct"}) {
    const auto errors = [&](const char* device) {
      return run_with_python(folder, "exit 1", fmt::format("{}{}", command, device)).errors;
    };
    EXPECT_TRUE(errors(" --device h200").ends_with(note)) << command << errors(" --device h200");
    EXPECT_EQ(errors(" --device sim:rtx-3090"), "") << command;
    EXPECT_EQ(errors(""), "") << command;
  }
}

TEST(ProgramAsInput, ABatchOfZeroIsRefused) {
  const ScratchFolder folder;
  for (const char* command : {"trace", "predict", "fit", "solve", "compare", "replay", "report",
                              "assert --no-oom", "diff train.py:make_old"}) {
    const Outcome outcome =
        run_with_python(folder, "exit 1", fmt::format("{} {} --batch 0", command, kProgram));
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_EQ(outcome.errors, "headroom: --batch: 0 is below 1\n") << command;
  }
}

TEST(ProgramAsInput, ABatchThatTheProgramRefusesEndsFitsSearchAndIsTheReason) {
  const ScratchFolder folder;
  folder.write("fourth", R"x(echo '{"error":"train.py:9: RuntimeError: four"}')x");
  const Outcome outcome =
      run_with_python(folder, kAnswerRequests, fmt::format("fit {} --most 4 --device rtx-3090", kProgram));
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.out.starts_with("largest batch 3: ")) << outcome.out;
  EXPECT_NE(outcome.out.find("\nwhy not more: batch 4: train.py:9: RuntimeError: four\n"), std::string::npos)
      << outcome.out;
}

TEST(ProgramAsInput, APythonThatEndsWhileItTracesIsOneLineOfFit) {
  struct Row {
    const char* fourth;
    const char* errors;
  };
  constexpr Row kRows[] = {
      {R"x(echo '{"failure":"train.py:make_step: Python ended by signal 9 (Killed)"}')x",
       "headroom: train.py:make_step: Python ended by signal 9 (Killed)\n"},
      {"echo noise >&2; echo 'headroom trace: out of luck' >&2; exit 1", "headroom: out of luck\n"}};
  for (const Row& row : kRows) {
    const ScratchFolder folder;
    folder.write("fourth", row.fourth);
    const Outcome outcome =
        run_with_python(folder, kAnswerRequests, fmt::format("fit {} --most 4 --device rtx-3090", kProgram));
    EXPECT_EQ(outcome.code, 1) << outcome.out;
    EXPECT_EQ(outcome.errors, row.errors);
  }
}

TEST(ProgramAsInput, ALeakFillsTheCardThatItIsTracedFor) {
  const ScratchFolder folder;
  std::string script =
      "while [ \"$1\" != --output ]; do shift; done\ncat > \"$2\" <<'END'\n"
      "headroom-trace 4\ns,framework,PyTorch 2.11.0\ns,device,rtx-3090\nn,aten::mm\n"
      "n,train.py:7\nn,train.py:7 step\n";
  for (int step = 1; step <= 6; ++step) {
    script += fmt::format("m,{},1,0\na,{}000000,1073741824,0,0,1,1,0,2,4,0,3\nm,{},2,1\n", step, step, step);
  }
  const Outcome outcome = run_with_python(folder, script + "END\n", "report train.py:make_step --steps 6");
  EXPECT_NE(outcome.out.find("at this rate it fails after "), std::string::npos)
      << outcome.out << outcome.errors;
}

TEST(ProgramAsInput, NextCommandsTraceItAlike) {
  const ScratchFolder folder;
  for (const char* command : {"report", "assert --max-peak 1GiB", "diff train.py:make_old"}) {
    const Outcome outcome =
        run_with_python(folder, kNoteAndTrace, fmt::format("{} {} {}", command, kProgram, kTraced));
    EXPECT_NE(outcome.out.find("\nnext: headroom report train.py:make_step --batch 4 --steps 2 --device "
                               "rtx-3090"),
              std::string::npos)
        << command << outcome.out << outcome.errors;
  }
  const Outcome replayed =
      run_with_python(folder, kNoteAndTrace, fmt::format("replay {} {}", kProgram, kTraced));
  EXPECT_NE(replayed.out.find("\nnext: headroom replay train.py:make_step --device rtx-3090 --batch 4 "
                              "--steps 2 --minimum\n"),
            std::string::npos)
      << replayed.out;
}

// 64 is the usual batch of nets, which programs do not have.
TEST(ProgramAsInput, NextCommandsNameTheBatchWhateverItIs) {
  for (const char* batch : {"64", "63"}) {
    const ScratchFolder folder;
    const Outcome predicted = run_with_python(
        folder, kNoteAndTrace,
        fmt::format("predict {} --batch {} --device rtx-3090 --device-memory 320MiB", kProgram, batch));
    ASSERT_EQ(predicted.code, 3) << predicted.errors;
    EXPECT_NE(predicted.out.find(fmt::format("headroom solve {} --batch {} ", kProgram, batch)),
              std::string::npos)
        << predicted.out;
    // The command finds the batch itself.
    EXPECT_NE(predicted.out.find(fmt::format("headroom fit {} --device", kProgram)), std::string::npos)
        << predicted.out;
    const Outcome fitted = run_with_python(folder, kAnswerRequests,
                                           fmt::format("fit {} --most {} --device h200", kProgram, batch));
    ASSERT_EQ(fitted.code, 0) << fitted.errors;
    EXPECT_NE(fitted.out.find(fmt::format("\nnext: headroom predict {} --batch {} ", kProgram, batch)),
              std::string::npos)
        << fitted.out;
  }
}

TEST(ProgramAsInput, ChecksOfADeviceAreForRecordings) {
  const ScratchFolder folder;
  for (const char* check : {"--no-oom", "--no-retries", "--max-reserved 1GiB", "--max-driver-calls 1"}) {
    const Outcome outcome =
        run_with_python(folder, kNoteAndTrace, fmt::format("assert {} {}", kProgram, check));
    EXPECT_EQ(outcome.code, 2) << check;
    EXPECT_NE(outcome.errors.find("it is a simulation, not a run: `headroom predict` says whether it fits"),
              std::string::npos)
        << outcome.errors;
  }
}

TEST(ProgramAsInput, AFileWithoutAFunctionIsToldTheFunctionsThatItHas) {
  const ScratchFolder folder;
  folder.write("gpt2.py", R"(import torch


def tokenizer(): pass
def make_step(batch):
    def inner(x):
        return x

    return inner


def _private(batch): pass
def evaluate(model, data): pass
def make_large(batch=4, width=2): pass
class Net:
    def forward(self): pass
)");
  folder.write("empty.py", "import torch\n");
  for (const char* command : {"trace", "predict", "fit", "fit --least-memory", "solve", "report", "replay",
                              "compare", "diff a.csv", "assert --no-oom"}) {
    const auto errors = [&](const char* input) {
      const Outcome outcome =
          run_with_python(folder, "exit 1", fmt::format("{} {} --batch 1", command, input));
      EXPECT_EQ(outcome.code, 2) << command;
      return outcome.errors;
    };
    EXPECT_EQ(errors("gpt2.py"),
              "headroom: gpt2.py: give its command, as -- python gpt2.py, or the function that builds the "
              "program and returns one training step, "
              "gpt2.py:make_step or gpt2.py:make_large or gpt2.py:tokenizer\n")
        << command;
    EXPECT_EQ(errors("gpt2.py:"), errors("gpt2.py"));
    EXPECT_EQ(errors("empty.py"),
              "headroom: empty.py: give its command, as -- python empty.py, or the function that builds the "
              "program and returns one training step, "
              "as empty.py:make_step (docs/trace.md)\n")
        << command;
    EXPECT_EQ(errors("none.py"), "headroom: none.py: cannot open it: No such file or directory\n") << command;
  }
}

TEST(ProgramAsInput, AFileOfManyFunctionsSaysHowManyMoreThereAre) {
  const ScratchFolder folder;
  folder.write("train.py",
               "def a(): pass\ndef b(): pass\ndef c(): pass\ndef d(): pass\ndef e(): pass\n"
               "def f(): pass\ndef g(): pass\n");
  EXPECT_EQ(run_with_python(folder, "exit 1", "trace train.py").errors,
            "headroom: train.py: give its command, as -- python train.py, or the function that builds the "
            "program and returns one training step, "
            "train.py:a or train.py:b or train.py:c or train.py:d or train.py:e (and 2 more)\n");
}

TEST(ProgramAsInput, OptionsOfProgramsAreRefusedForRecordings) {
  const ScratchFolder folder;
  folder.write("run.csv", "op,id,bytes\na,1,4096\nf,1,4096\n");
  for (const char* command :
       {"predict", "fit --least-memory", "replay", "report", "assert --no-oom", "diff run.csv", "solve"}) {
    const Outcome outcome = run_with_python(folder, "exit 1", fmt::format("{} run.csv --batch 4", command));
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_EQ(
        outcome.errors,
        "headroom: --batch is for programs, as train.py:make_step; run.csv is recorded as it ran: leave "
        "it out\n")
        << command;
  }
  EXPECT_EQ(run_with_python(folder, "exit 1", "report run.csv --device rtx-3090").code, 2);
  // Options of other commands in the environment are not an error.
  const Outcome outcome =
      run_shell(folder, "cd " + folder.path() +
                            " && HEADROOM_BATCH=4 HEADROOM_DEVICE=h200 " HEADROOM_COMMAND " report run.csv");
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
}

}  // namespace
}  // namespace headroom
