// Runs `headroom repro` as a user does: the reported figures are reproduced.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "tests/require_cuda.h"
#include "tests/run_shell.h"

namespace headroom {
namespace {

using Json = nlohmann::json;

Outcome repro(const std::string& arguments, const std::string& environment = {}) {
  const ScratchFolder folder;
  return run_shell(folder, "env " + environment + " " HEADROOM_COMMAND " repro " + arguments);
}

// Returns the measurements of scenarios, by id.
std::map<std::string, Json> measured_by(const std::string& arguments) {
  const Outcome outcome = repro(arguments + " --json");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.errors;
  std::map<std::string, Json> result;
  const Json json = Json::parse(outcome.out);
  for (const Json& row : json["scenarios"]) {
    EXPECT_EQ(row.size(), 6u) << row;
    EXPECT_TRUE(row["ok"]) << row;
    result[row["id"]] = row["measured"];
  }
  return result;
}

TEST(HeadroomRepro, SolveFindsARunForEachThatLacksMemoryAndRefusesTheLeak) {
  const Outcome all = repro("--all --solve --json");
  ASSERT_EQ(all.code, 0) << all.errors;
  std::map<std::string, Json> rows;
  const Json json = Json::parse(all.out);
  for (const Json& row : json["scenarios"]) rows[row["id"]] = row;
  for (const char* id : {"A1", "A4", "A5", "B2", "C9"}) {
    EXPECT_EQ(rows[id]["outcome"], "solved") << rows[id];
    EXPECT_LE(rows[id]["process_bytes"], rows[id]["memory_bytes"]) << id;
    EXPECT_NE(rows[id]["next"], "") << id;
  }
  for (const char* id : {"C5", "C8"}) EXPECT_EQ(rows[id]["outcome"], "refused") << rows[id];
  EXPECT_NE(rows["C8"]["text"].get<std::string>().find("a leak"), std::string::npos) << rows["C8"];
  EXPECT_EQ(rows["B1"]["outcome"], "not about memory");
  EXPECT_EQ(repro("C8 --solve").code, 3);
  EXPECT_EQ(repro("A1 --solve --fix").code, 2);
}

TEST(HeadroomRepro, TheDocsHaveTheSectionOfEachScenario) {
  std::ifstream file(HEADROOM_SOURCE_DIR "/docs/scenarios.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::string sections = repro("--list --markdown").out;
  EXPECT_GT(sections.size(), 5000u);
  for (size_t end = 0; (end = sections.find("\n\n###")) != std::string::npos; sections.erase(0, end + 2)) {
    EXPECT_NE(page.find(sections.substr(0, end + 1)), std::string::npos) << sections.substr(0, end);
  }
  EXPECT_NE(page.find(sections), std::string::npos) << sections;
}

TEST(HeadroomRepro, TheDocsHaveEveryStatementWithItsFigure) {
  std::ifstream file(HEADROOM_SOURCE_DIR "/docs/documents.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const Outcome tables = repro("--statements --markdown");
  ASSERT_EQ(tables.code, 0) << tables.errors;
  EXPECT_TRUE(page.ends_with(tables.out.substr(0, tables.out.find_last_not_of('\n') + 1) + "\n"))
      << "paste the output of headroom repro --statements --markdown into docs/documents.md";
  const Json rows = Json::parse(repro("--statements --json").out)["statements"];
  EXPECT_GE(rows.size(), 60u);
  std::map<std::string, int> truths;
  std::set<std::string> commands;
  for (const Json& row : rows) {
    ++truths[row["truth"]];
    EXPECT_NE(row["figure"], "") << row;
    commands.insert(row["command"]);
  }
  EXPECT_EQ(truths.size(), 3u) << "all true, or none, would need no table";
  const ScratchFolder folder;
  for (const std::string& command : commands) {
    if (command.empty() || command.find("doctor") != std::string::npos)
      continue;  // exits with 5 on a problem
    const Outcome shown = run_shell(folder, "PATH=$(dirname " HEADROOM_COMMAND "):$PATH; " + command);
    EXPECT_EQ(shown.code, 0) << command << "\n" << shown.errors;
  }
}

TEST(HeadroomRepro, EveryScenarioHasAProgramThatPythonCanRead) {
  const ScratchFolder folder;
  const bool has_python = run_shell(folder, "python3 --version").code == 0;
  std::string files;
  const Json list = Json::parse(repro("--list --json").out);
  for (const Json& row : list["scenarios"]) {
    const std::string id = row["id"];
    const size_t before = files.size();
    for (const std::string framework : {"tensorflow", "pytorch", "jax"}) {
      const Outcome program = repro(id + " --code " + framework);
      if (program.code != 0) {
        EXPECT_EQ(program.code, 2) << id;
        EXPECT_NE(program.errors.find("has no program in " + framework), std::string::npos) << program.errors;
        continue;
      }
      EXPECT_EQ(program.out.find("# " + id + ": "), 0u) << program.out;
      EXPECT_NE(program.out.find("\nimport "), std::string::npos) << id << " " << framework;
      files += " " + folder.write(id + "_" + framework + ".py", program.out);
    }
    EXPECT_GT(files.size(), before) << id << " has no program";
  }
  if (!has_python) return;
  const Outcome read = run_shell(
      folder, "python3 -c 'import ast, sys; [ast.parse(open(f).read(), f) for f in sys.argv[1:]]'" + files);
  EXPECT_EQ(read.code, 0) << read.errors;
}

TEST(HeadroomRepro, TheReportedFiguresComeOutOnSimulatedGpus) {
  std::map<std::string, Json> measured = measured_by("--all");
  EXPECT_EQ(measured["A1"]["cublas_line"], "failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED");
  EXPECT_EQ(measured["A1"]["cublas_lines"], 4);
  EXPECT_EQ(measured["A1"]["next_line"],
            "attempting to perform BLAS operation using StreamExecutor without BLAS support");
  EXPECT_EQ(
      measured["A1"]["message"],
      "InternalError:  Blas xGEMM launch failed : a.shape=[1,64,576], b.shape=[1,576,64], m=64, n=64, k=576");
  EXPECT_EQ(measured["A2"]["process_bytes"], 697 * kMiB);
  EXPECT_EQ(measured["A2"]["device_bytes"], 1026 * kMiB);
  EXPECT_EQ(measured["A3"]["process_bytes"], 1455 * kMiB);
  EXPECT_EQ(measured["A3"]["device_bytes"], 1784 * kMiB);
  EXPECT_EQ(measured["B2"]["message"],
            "failed initializing StreamExecutor for CUDA device ordinal 2: Internal: failed call to "
            "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: "
            "11554717696");
  const std::pair<const char*, int64_t> sizes[] = {{"C1", 448},  {"C2", 1362}, {"C3", 1364},
                                                   {"C4", 3422}, {"C6", 2278}, {"C7", 446}};
  for (const auto& [id, mib] : sizes) EXPECT_EQ(measured[id]["process_bytes"], mib * kMiB) << id;
  EXPECT_EQ(measured["C5"]["message"],
            "CUDA out of memory. Tried to allocate 916.00 MiB (GPU 0; 6.00 GiB total capacity; 4.47 GiB "
            "already allocated; 186.44 MiB free; 4.47 GiB reserved in total by PyTorch)");
}

TEST(HeadroomRepro, EveryFixHelps) {
  std::map<std::string, Json> measured = measured_by("--all --fix");
  EXPECT_EQ(measured.count("C1"), 0u) << "there is nothing to fix";
  EXPECT_EQ(measured["A1"]["outcome"], "ok");
  EXPECT_EQ(measured["C5"]["process_bytes"], 2278 * kMiB);
}

TEST(HeadroomRepro, OneScenarioShowsWhatItsUserSawAndHowToGoOn) {
  const Outcome outcome = repro("a1");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(outcome.out.find("A1 as expected on sim"), 0u);
  const std::string line = "  failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED\n";
  EXPECT_NE(outcome.out.find(line + line + line + line), std::string::npos);
  EXPECT_TRUE(outcome.out.ends_with("\nnext: headroom repro A1 --fix\n")) << outcome.out;
  const Outcome fixed = repro("A1 --fix");
  EXPECT_EQ(fixed.out.find("A1 as expected on sim with its fix"), 0u) << fixed.out;
}

TEST(HeadroomRepro, SettingsOfTheEnvironmentDoNotChangeAStory) {
  const Outcome outcome =
      repro("A1 C5 --json", "TF_FORCE_GPU_ALLOW_GROWTH=true HEADROOM_STRATEGY=mapped HEADROOM_LIMIT=1MiB");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.errors;
}

TEST(HeadroomRepro, ListsAllInTextAndJson) {
  const Outcome text = repro("--list"), json = repro("--list --json");
  ASSERT_EQ(json.code, 0) << json.errors;
  const Json rows = Json::parse(json.out)["scenarios"];
  EXPECT_GE(rows.size(), 22u);
  for (const Json& row : rows) {
    EXPECT_NE(text.out.find(row["title"].get<std::string>()), std::string::npos) << row;
    EXPECT_NE(row["story"], "");
  }
}

TEST(HeadroomRepro, BadInputIsOneLineAndExitCodeTwo) {
  const char* const commands[] = {"",
                                  "Z9",
                                  "A1 --all",
                                  "C1 --fix",
                                  "A1 --device cpu",
                                  "C9 --device cuda",
                                  "A7 --code jax",
                                  "A1 A2 --code tensorflow",
                                  "A1 --code caffe",
                                  "--al"};
  for (const char* arguments : commands) {
    const Outcome outcome = repro(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
}

TEST(HeadroomRepro, WithoutAVisibleGpuTheRealOneIsRefusedInOneLine) {
  const Outcome outcome = repro("A1 --device cuda", "CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
}

// If the command is built apart from the code for GPUs, the run continues there.
TEST(HeadroomRepro, AMachineWithoutAGpuIsTheReasonAndNotTheProgram) {
  const std::string hidden = "env CUDA_VISIBLE_DEVICES= " HEADROOM_COMMAND;
  const ScratchFolder folder;
  const Outcome repro = run_shell(folder, hidden + " repro B2 --device cuda --force");
  const Outcome run = run_shell(folder, hidden + " run --net mlp --device cuda");
  EXPECT_EQ(repro.code, 2);
  EXPECT_EQ(repro.errors, run.errors);
}

class HeadroomReproCuda : public CudaTest {};

TEST_F(HeadroomReproCuda, TheRealLibraryAndTheRealCardFail) {
  const Outcome outcome = repro("A1 B2 C5 --device cuda --json");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.errors;
}

}  // namespace
}  // namespace headroom
