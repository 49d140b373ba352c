// headroom explain as a user meets it.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/run_shell.h"

namespace headroom {
namespace {

const std::string kFolder = HEADROOM_SOURCE_DIR "/tests/tools/explain/";
const std::string kColors = kFolder + "messy_pod_colours_crlf.log";
const std::string kUtf16 = kFolder + "messy_utf16.log";

const std::string kOthers =
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 31.75 GiB total capacity; 612.00 MiB already "
    "allocated; 10.50 MiB free; 622.00 MiB reserved in total by PyTorch)";

Outcome explain(const std::string& arguments) {
  const ScratchFolder folder;
  return run_shell(folder, HEADROOM_COMMAND " explain " + arguments);
}

Outcome explain_piped(const std::string& log, const std::string& arguments,
                      const std::string& variables = {}) {
  const ScratchFolder folder;
  return run_shell(
      folder, "printf '%s\\n' '" + log + "' | " + variables + " " HEADROOM_COMMAND " explain " + arguments);
}

TEST(HeadroomExplain, TheFirstThreeLinesAreTheCauseAndTwoSteps) {
  const Outcome outcome = explain_piped(kOthers, "-", "COLUMNS=200");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  std::istringstream lines(outcome.out);
  std::string cause, first, second;
  std::getline(lines, cause);
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_TRUE(cause.starts_with("other-process: ")) << outcome.out;
  EXPECT_NE(cause.find("30.13 GiB"), std::string::npos) << outcome.out;
  EXPECT_TRUE(first.starts_with("next: nvidia-smi")) << outcome.out;
  EXPECT_TRUE(second.starts_with("next: ")) << outcome.out;
}

// The log is a pipe that the test opens when the command does, so the signal comes while it reads.
TEST(HeadroomExplain, CtrlCEndsItWithOneLineAndCode130) {
  const ScratchFolder folder;
  const std::string log = folder / "log", errors = folder / "errors";
  ASSERT_EQ(mkfifo(log.c_str(), 0600), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(errors.c_str(), O_WRONLY | O_CREAT, 0600);
    dup2(file, STDERR_FILENO);
    std::signal(SIGINT, SIG_DFL);  // a shell's background job ignores it
    execl(HEADROOM_COMMAND, HEADROOM_COMMAND, "explain", log.c_str(), nullptr);
    _exit(1);
  }
  const int writer = open(log.c_str(), O_WRONLY);
  kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(writer);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_EQ(read_file(errors, 1000), "headroom: ended by SIGINT\n");
}

TEST(HeadroomExplain, JsonHasCauseConfidenceEvidenceAndNext) {
  const Outcome outcome = explain_piped(kOthers, "--json");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["cause"], "other-process");
  EXPECT_EQ(json["confidence"], "high");
  EXPECT_EQ(json["next"].size(), 2u);
  EXPECT_EQ(json["why"].size(), 2u);
  EXPECT_TRUE(json["possible"].empty());
  EXPECT_EQ(json["figures"]["requested"], 20 << 20);
  EXPECT_TRUE(json["phase"].empty());
  EXPECT_EQ(json["activity"], "");
  const auto facts = json["facts"].get<std::vector<std::string>>();
  for (const char* fact : {"sized", "undecided"})
    EXPECT_NE(std::find(facts.begin(), facts.end(), fact), facts.end()) << json["facts"];
  EXPECT_TRUE(json["already_on"].empty());
  bool has_request = false;
  for (const nlohmann::json& row : json["evidence"])
    has_request |= row["name"] == "requested" && row["bytes"] == 20 << 20;
  EXPECT_TRUE(has_request) << outcome.out;
}

TEST(HeadroomExplain, ReadsWhatIsPipedInWithoutAName) {
  for (const char* name : {"-", ""}) {
    const Outcome outcome = explain(std::string("--json ") + name + " <" + kColors);
    ASSERT_EQ(outcome.code, 0) << outcome.errors;
    EXPECT_EQ(nlohmann::json::parse(outcome.out)["cause"], "fragmentation");
  }
}

TEST(HeadroomExplain, ALogWithoutAFailureSaysSo) {
  const Outcome empty = explain("</dev/null");
  EXPECT_EQ(empty.code, 0) << empty.errors;
  EXPECT_TRUE(empty.out.starts_with("No failure found in this log: ")) << empty.out;
  const Outcome good = explain_piped("epoch 1 loss 0.3", "--json");
  EXPECT_EQ(nlohmann::json::parse(good.out)["cause"], "none");
}

TEST(HeadroomExplain, ExplainsEachOfSeveralLogs) {
  const Outcome text = explain(kColors + " " + kUtf16);
  ASSERT_EQ(text.code, 0) << text.errors;
  EXPECT_TRUE(text.out.starts_with(kColors + ":\nfragmentation: ")) << text.out;
  EXPECT_NE(text.out.find("\n\n" + kUtf16 + ":\nindex-out-of-range: "), std::string::npos) << text.out;
  const nlohmann::json json = nlohmann::json::parse(explain("--json " + kColors + " " + kUtf16).out);
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[1]["file"], kUtf16);
  EXPECT_EQ(json[1]["cause"], "index-out-of-range");
}

TEST(HeadroomExplain, FitsTheWidthAndShowsNoColorsInAPipe) {
  for (const size_t width : {60, 100, 200}) {
    const Outcome outcome = explain_piped(kOthers, "", "COLUMNS=" + std::to_string(width));
    ASSERT_EQ(outcome.code, 0) << outcome.errors;
    EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("next: ")) continue;  // commands stay whole, to be copied
      EXPECT_LE(line.size(), width) << line;
    }
  }
}

TEST(HeadroomExplain, BadInputIsOneLine) {
  for (const char* arguments : {"/nowhere/at/all.log", "/", "a.log b.log", "--jsn x.log"}) {
    const Outcome outcome = explain(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
  const Outcome program = explain("/bin/sh");
  EXPECT_EQ(program.code, 2) << program.out;
  EXPECT_NE(program.errors.find("is not a log: it is a program or library"), std::string::npos)
      << program.errors;
  const Outcome snapshot = explain(HEADROOM_SOURCE_DIR "/tests/fuzz/seeds/snapshot.pickle");
  EXPECT_EQ(snapshot.code, 2) << snapshot.out;
  EXPECT_NE(snapshot.errors.find("read by headroom report"), std::string::npos) << snapshot.errors;
}

TEST(HeadroomExplain, ReadsRulesOfOnesOwn) {
  const ScratchFolder folder;
  const std::string log = folder.write("a.log", "gizmo broke\n");
  const std::string rules =
      folder.write("own.txt", "crash: gizmo broke\nverdict crash hardware high: the gizmo is worn out\n");
  const Outcome outcome = explain("--rules " + rules + " --json " + log);
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["reason"], "The gizmo is worn out.");
  const Outcome wrong = explain("--rules " + log + " " + log);
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(wrong.errors, "headroom: " + log + ":1: expected 'words: text', found 'gizmo broke'\n");
}

TEST(HeadroomExplain, FilesThatAreNoLogsAreRefusedByTheirBeginning) {
  using namespace std::string_literals;
  const ScratchFolder folder;
  const std::string text(8192, 'x');  // as the strings of a large snapshot, which look like text
  const std::pair<std::string, const char*> cases[] = {
      {"(dp0\nVsegments\n" + text,
       "it is a pickle; memory snapshots and traces are read by headroom report "},
      {"}q\0(X\x08\0\0\0segments"s + text, "it is a pickle"},
      {"\x80\x02}q\x01" + text, "it is a pickle"},
      {"\x80\x05\x95" + text, "it is a pickle"},
      {"\x08\x07\x12\x07pytorch" + text, "it is an ONNX model; headroom run --model "},
      {"\x10\x20\0\0\0\0\0\0{\"weight\":"s + text, "it is a safetensors file"},
      {"PK\x03\x04" + text, "it is a ZIP archive"},
      {"\x28\xb5\x2f\xfd" + text, "it is compressed by zstd; unpack it first"},
      {"\xef\xbb\xbfop,id,bytes\n" + text, "it is a trace"},
      {"headroom-trace 4\n" + text,
       "it is a recording; memory snapshots and traces are read by headroom report "},
  };
  for (const auto& [content, expected] : cases) {
    const Outcome outcome = explain(folder.write("train.log", content));
    EXPECT_EQ(outcome.code, 2) << expected << outcome.out;
    EXPECT_NE(outcome.errors.find("train.log is not a log: "s + expected), std::string::npos)
        << outcome.errors;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
  const Outcome zipped =
      explain(HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/growing-batch-gpt2-python.pickle.gz");
  EXPECT_EQ(zipped.code, 2) << zipped.out;
  EXPECT_NE(zipped.errors.find("it is a pickle; memory snapshots"), std::string::npos) << zipped.errors;
}

TEST(HeadroomExplain, AProgramThatMeetsItsLimitIsToBeSolvedForThatLimit) {
  const ScratchFolder folder;
  const std::string log = folder.write(
      "train.log",
      "Traceback (most recent call last):\n"
      "  File \"/home/me/train.py\", line 31, in <module>\n"
      "    loss.backward()\n"
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.54 GiB. GPU 0 has a total capacity "
      "of 139.80 GiB of which 129.34 GiB is free. Including non-PyTorch memory, this process has 10.45 GiB "
      "memory in use. 9.79 GiB allowed; Of the allocated memory 9.40 GiB is allocated by PyTorch, and "
      "333.95 MiB is reserved by PyTorch but unallocated.\n");
  const Outcome outcome = run_shell(folder, HEADROOM_COMMAND " explain " + log);
  // The limit, 10,025 MiB, is on PyTorch's memory; the process holds 741 MiB more.
  EXPECT_NE(outcome.out.find("next: headroom solve --memory 10766MiB -- python /home/me/train.py\n"),
            std::string::npos)
      << outcome.out;
}

TEST(HeadroomExplain, AMessageWithoutItsProgramNamesTheCommandThatSolvesOne) {
  const ScratchFolder folder;
  const std::string message =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
      "23.69 GiB of which 106.00 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB "
      "memory "
      "in use. Of the allocated memory 23.00 GiB is allocated by PyTorch, and 10.00 MiB is reserved by "
      "PyTorch "
      "but unallocated.\n";
  const auto explained = [&](const std::string& log) {
    return run_shell(folder, HEADROOM_COMMAND " explain " + folder.write("train.log", log)).out;
  };
  EXPECT_NE(explained(message).find("\nnext: headroom solve --memory 24258MiB -- python train.py\n"),
            std::string::npos)
      << explained(message);
  const std::string in_pieces =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
      "23.69 GiB of which 1.06 GiB is free. Of the allocated memory 19.00 GiB is allocated by PyTorch, and "
      "3.20 GiB is reserved by PyTorch but unallocated.\n";
  EXPECT_NE(explained(in_pieces).find("\nnext: headroom solve --memory SIZE -- python train.py\n"),
            std::string::npos)
      << explained(in_pieces);
  EXPECT_EQ(explained("INFO vllm.engine: Initializing an LLM engine\n" + message).find("headroom solve"),
            std::string::npos)
      << "no training";
}

}  // namespace
}  // namespace headroom
