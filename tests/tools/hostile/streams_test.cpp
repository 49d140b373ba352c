// Inputs and outputs that are no plain files: closed, full, pipes, links in a circle, without an end. Every
// command, by its arguments.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.h"
#include "tests/run_shell.h"

namespace headroom {
namespace {

const std::string kSeeds = HEADROOM_SOURCE_DIR "/tests/fuzz/seeds/";

// Runs headroom, or train_mnist where there is no command. With bash, which has pipes as files: $S/seed,
// <(command), >(command).
Outcome in_bash(const ScratchFolder& folder, const std::string& arguments) {
  const std::string script = folder / "script";
  std::ofstream(script) << "S=" << kSeeds << "; cd " << folder.path()
                        << "; unset TF_FORCE_GPU_ALLOW_GROWTH; timeout 1200 "
                        << (arguments.starts_with("--") ? HEADROOM_TRAIN_MNIST : HEADROOM_COMMAND) << " "
                        << arguments << '\n';
  return run_shell(folder, "bash " + script);
}

// A call of each command that ends well on a machine without a GPU, or with the code given.
struct Call {
  std::string arguments;
  int code = 0;
};
const std::vector<Call> kCalls = {
    {"explain $S/servers.log"},
    {"report $S/trace.csv"},
    {"report $S/trace.csv --json"},
    {"diff $S/trace.csv $S/trace.csv"},
    {"assert $S/trace.csv --max-peak 1GiB"},
    {"predict --net mlp"},
    {"predict $S/trace.csv --device sim --json"},
    {"fit --net mlp --verify=false --most 64"},
    {"models"},
    {"show $S/image.onnx"},
    {"solve --net mlp --memory 480MiB --points 0"},
    {"compare $S/trace.csv --runs 1 --device sim --strategy caching"},
    {"replay $S/trace.csv --strategy caching"},
    {"run --net mlp --batch 2 --steps 1"},
    {"train --model $S/image.onnx --steps 1 --batch 1"},
    {"repro C5"},
    {"repro --list"},
    {"strategies"},
    {"devices"},
    {"help"},
    {"help predict"},
    {"predict --help"},
    {"predict --print-config"},
};

TEST(LostOutput, IsAFailureOfEveryCommand) {
  const ScratchFolder folder;
  for (const Call& call : kCalls) {
    ASSERT_EQ(in_bash(folder, call.arguments).code, 0) << call.arguments;
    for (const char* lost : {" >/dev/full", " >&-"}) {
      const Outcome outcome = in_bash(folder, call.arguments + lost);
      EXPECT_EQ(outcome.code, 1) << call.arguments << lost << outcome.errors;
      EXPECT_NE(outcome.errors.find("headroom"), std::string::npos) << call.arguments << lost;
    }
  }
}

TEST(LostOutput, CallsAreOfEveryCommand) {
  const ScratchFolder folder;
  const std::string help = in_bash(folder, "help").out;
  const std::set<std::string> no_gpu = {"who", "doctor", "trace"};  // need a GPU or Python
  std::set<std::string> called;
  for (const Call& call : kCalls) called.insert(call.arguments.substr(0, call.arguments.find(' ')));
  int commands = 0;
  for (size_t at = help.find("\n  "); at != std::string::npos; at = help.find("\n  ", at + 1)) {
    const std::string name = help.substr(at + 3, help.find_first_of(" \n", at + 3) - at - 3);
    if (name.empty() || no_gpu.contains(name)) continue;
    ++commands;
    EXPECT_TRUE(called.contains(name)) << name;
  }
  EXPECT_GT(commands, 10);
}

// No command of a program can follow here.
TEST(TwoDashes, EndTheOptions) {
  const ScratchFolder folder;
  for (const char* arguments :
       {"explain -- $S/servers.log", "explain --json -- $S/servers.log", "show -- $S/image.onnx",
        "models -- $S/image.onnx", "strategies --", "devices --", "explain -- <(cat $S/servers.log)"}) {
    EXPECT_EQ(in_bash(folder, arguments).code, 0) << arguments;
  }
  std::filesystem::copy_file(kSeeds + "servers.log", folder / "-dash");
  EXPECT_EQ(in_bash(folder, "explain -- -dash").code, 0);
  EXPECT_EQ(in_bash(folder, "strategies -- -dash").code, 2);
  EXPECT_EQ(in_bash(folder, "report --").code, 2) << "a command follows";
}

// Each input as a pipe gives what the file gives.
TEST(Pipes, AreReadOnceByEveryCommand) {
  const ScratchFolder folder;
  const std::vector<std::string> calls = {
      "explain FILE:servers.log",
      "report FILE:trace.csv",
      "report FILE:trace.csv.gz",
      "report FILE:snapshot.pickle --html page.html",
      "report FILE:run3.trace --against FILE:run1.trace",
      "diff FILE:trace.csv FILE:rmm.csv",
      "assert FILE:trace.csv --max-peak 1GiB",
      "predict FILE:snapshot.pickle --device sim:h200",
      "predict --model FILE:image.onnx --batch 1",
      "predict --net mlp --config FILE:settings.toml",
      "fit FILE:trace.csv --least-memory",
      "fit --model FILE:image.onnx --verify=false --most 8",
      "solve FILE:trace.csv --memory 1GiB",
      "solve FILE:text.onnx --memory 1GiB --points 0",
      "compare FILE:trace.csv --runs 1 --device sim --json",
      "compare --model FILE:image.onnx --batch 1 --runs 1 --steps 1 --strategy caching",
      "replay FILE:trace.csv --capacity 1GiB --strategy caching",
      "run --trace FILE:trace.csv --device sim",
      "run --model FILE:image.onnx --batch 1 --steps 1",
      "train --model FILE:image.onnx --steps 1 --batch 1",
      "show FILE:image.onnx",
      "explain --rules FILE:own.rules $S/servers.log",
  };
  for (const std::string& call : calls) {
    std::string from_file = call, from_pipe = call;
    for (size_t at; (at = from_file.find("FILE:")) != std::string::npos;) from_file.replace(at, 5, "$S/");
    for (size_t at; (at = from_pipe.find("FILE:")) != std::string::npos;) {
      const size_t end = std::min(from_pipe.find(' ', at), from_pipe.size());
      from_pipe.insert(end, ")");
      from_pipe.replace(at, 5, "<(cat $S/");
    }
    const Outcome file = in_bash(folder, from_file), pipe = in_bash(folder, from_pipe);
    EXPECT_EQ(pipe.code, file.code) << from_pipe << pipe.errors << file.errors;
    EXPECT_NE(file.code, 1) << from_file << file.errors;
    // All but names and times; JSON has no names in its structure.
    EXPECT_EQ(std::count(pipe.out.begin(), pipe.out.end(), '\n'),
              std::count(file.out.begin(), file.out.end(), '\n'))
        << from_pipe << '\n'
        << pipe.out << '\n'
        << file.out;
  }
}

TEST(Pipes, TakeEveryOutput) {
  const ScratchFolder folder;
  const std::vector<std::pair<std::string, std::string_view>> calls = {
      {"report $S/trace.csv --html OUT", "<!"},
      {"report $S/trace.csv --chrome OUT", "{"},
      {"report $S/trace.csv --format perfetto --output OUT", ""},
      {"compare $S/trace.csv --runs 1 --device sim --strategy caching --csv OUT", ""},
      {"compare $S/trace.csv --runs 1 --device sim --strategy caching --html OUT", "<!"},
      {"solve --net mlp --memory 480MiB --points 0 --html OUT", "<!"},
      {"show $S/image.onnx --html OUT", "<!"},
      {"run --net mlp --batch 2 --steps 1 --record OUT", "headroom-trace "},
      {"--epochs 1 --steps 2 --batch 4 --save OUT", ""},
      {"--epochs 1 --steps 2 --batch 4 --log OUT", "epoch,step"},
      {"replay $S/trace.csv --strategy caching --capacity 1GiB --record OUT", "headroom-trace "},
  };
  for (const auto& [call, begin] : calls) {
    std::string piped = call;
    piped.replace(piped.find("OUT"), 3, ">(cat > written; touch done)");
    const Outcome outcome =
        in_bash(folder, piped + "; code=$?; while [ ! -e done ]; do sleep 0.05; done; exit $code");
    EXPECT_EQ(outcome.code, 0) << piped << outcome.errors;
    const std::string written = read_file(folder / "written", 1 << 24);
    EXPECT_FALSE(written.empty()) << piped;
    EXPECT_TRUE(written.starts_with(begin)) << piped << written.substr(0, 100);
    std::filesystem::remove(folder / "done");
  }
}

TEST(Links, InACircleAreAnError) {
  const ScratchFolder folder;
  std::filesystem::create_symlink("b", folder / "a");
  std::filesystem::create_symlink("a", folder / "b");
  for (const char* call :
       {"explain a", "report a", "diff a a", "predict a", "fit a --least-memory", "show a",
        "solve a --memory 1GiB", "compare a", "replay a", "run --trace a", "train --model a",
        "predict --net mlp --config a", "predict --model a", "report $S/trace.csv --html a",
        "report $S/trace.csv --chrome a", "compare $S/trace.csv --runs 1 --csv a",
        "run --net mlp --batch 2 --steps 1 --record a", "explain --rules a $S/servers.log"}) {
    const Outcome outcome = in_bash(folder, call);
    EXPECT_EQ(outcome.code, 2) << call << outcome.errors;
    EXPECT_NE(outcome.errors.find("Too many levels of symbolic links"), std::string::npos)
        << call << outcome.errors;
  }
}

TEST(Devices, WithoutAnEndAreRefused) {
  const ScratchFolder folder;
  for (const char* call :
       {"report /dev/zero", "diff /dev/zero /dev/zero", "predict /dev/zero", "fit /dev/zero --least-memory",
        "show /dev/zero", "solve /dev/zero --memory 1GiB", "compare /dev/zero", "replay /dev/zero",
        "run --trace /dev/zero", "train --model /dev/zero", "predict --net mlp --config /dev/zero",
        "predict --model /dev/zero", "run --model $S/image.onnx --weights /dev/zero",
        "explain --rules /dev/zero $S/servers.log"}) {
    const Outcome outcome = in_bash(folder, call);
    EXPECT_EQ(outcome.code, 2) << call << outcome.errors;
    EXPECT_NE(outcome.errors.find("/dev/zero"), std::string::npos) << call << outcome.errors;
  }
}

// Names with an escape of eight bits, marks that turn the direction, and characters without width.
TEST(Names, FromFilesReachNoTerminalRaw) {
  const ScratchFolder folder;
  const std::string bad =
      "x\xc2\x9b"
      "31m\xe2\x80\xae\xe2\x80\x8b\x1b[2J\x07";
  std::ofstream(folder / "a.trace") << "headroom-trace 4\ns,framework," << bad
                                    << "\ns,device,rtx-3090\nm,1,1,0\n"
                                    << "a,1000,4194304,0,0,1,0,0,0,4,0,0\nf,1000,0,1\n";
  std::ofstream(folder / "a.log")
      << "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 "
         "has a total capacity of 4.00 GiB of which 1.00 GiB is free. Process "
      << bad << " has 3.00 GiB memory in use.\n";
  std::ofstream(folder / (bad + ".csv")) << "op,id,bytes\na,1,4096\nf,1,0\n";
  for (const std::string& call :
       {std::string("report a.trace"), std::string("report a.trace --json"), std::string("predict a.trace"),
        std::string("explain a.log"), std::string("explain a.log --json"),
        std::string("replay *.csv --capacity 1GiB"), std::string("report *.csv"),
        std::string("predict *.csv --device sim"), std::string("predict *.csv --json"),
        std::string("compare *.csv --runs 1 --device sim --strategy caching"), std::string("show *.csv")}) {
    const Outcome outcome = in_bash(folder, call);
    const std::string all = outcome.out + outcome.errors;
    EXPECT_NE(all, "") << call;
    for (const char* raw : {"\x1b", "\xc2\x9b", "\xe2\x80\xae", "\xe2\x80\x8b", "\x07"}) {
      EXPECT_EQ(all.find(raw), std::string::npos) << call << '\n' << all;
    }
  }
}

}  // namespace
}  // namespace headroom
