// `headroom solve` for programs of PyTorch as a user runs it. A shell script stands for Python, which is
// asked again and again; the tracer's own answers are tested in trace/changes_test.py.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/run_with_python.h"

namespace headroom {
namespace {

constexpr const char* kAnswers = R"x(
head='headroom-trace 4
s,framework,PyTorch 2.11
s,strategy,caching
n,blocks.0.fc
n,blocks.1.fc
n,train.py:7
a,100000000,1073741824,0,0,1,0,0,3,1,0,0
m,1,1,1'
forward='a,200000000,2147483648,0,0,1,0,0,3,4,1,0
a,300000000,1073741824,0,0,1,0,0,3,4,1,0'
back='m,1,2,1
f,400000000,0,1
f,300000000,0,1'
while read -r line; do
  file=$(printf '%s' "$line" | sed 's/.*"output":"\([^"]*\)".*/\1/')
  case $line in
    *'"fused":true'*) echo '{"error":"train.py:9: no such argument"}'; continue ;;
    *'"offload":true'*) echo '{"error":"train.py:9: cannot be offloaded"}'; continue ;;
    *'"checkpoints":["blocks.0"]'*)
      printf '%s\n' "$head" "$forward" 'f,200000000,0,1' 'a,400000000,1073741824,0,0,1,0,0,3,4,2,0' \
        "$back" > "$file" ;;
    *) printf '%s\n' "$head" "$forward" 'a,400000000,1073741824,0,0,1,0,0,3,4,2,0' "$back" \
        'f,200000000,0,1' > "$file" ;;
  esac
  echo '{"us_per_step":1000,"model":"Net","name":"net","uses_cache":false,"normalizes_batches":true,' \
    '"modules":[{"path":"blocks","us":0,"children":2},{"path":"blocks.0","us":1,"children":1},' \
    '{"path":"blocks.0.fc","us":50,"children":0},{"path":"blocks.1.fc","us":60,"children":0}]}'
done)x";

Outcome solve(const ScratchFolder& folder, const std::string& script, const std::string& arguments) {
  return run_with_python(folder, script, "solve " + arguments);
}

TEST(SolveCommand, SaysWhatToChangeInAProgramOfPyTorch) {
  const ScratchFolder folder;
  const Outcome outcome = solve(folder, kAnswers, "train.py:make_step --memory 5GiB --device rtx-3090");
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.errors;
  EXPECT_TRUE(
      outcome.out.starts_with("fits: train.py:make_step, in 5.00 GiB on rtx-3090: 1 checkpoint: takes "))
      << outcome.out;
  EXPECT_NE(
      outcome.out.find(
          "    net.blocks[0].forward = partial(checkpoint, net.blocks[0].forward, use_reentrant=False)"),
      std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("note: batch normalization"), std::string::npos);
  EXPECT_NE(outcome.out.find("\nnext: headroom predict train.py:make_step"), std::string::npos);
}

TEST(SolveCommand, JsonOfAProgramHasTheChangesAndAllTries) {
  const ScratchFolder folder;
  const Outcome outcome =
      solve(folder, kAnswers, "train.py:make_step --memory 5GiB --device rtx-3090 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["keeps"], true);
  EXPECT_EQ(json["checkpoints"], nlohmann::json({"blocks.0"}));
  EXPECT_LE(json["process_bytes"], json["memory_bytes"]);
  EXPECT_GT(json["process_bytes_without"], json["memory_bytes"]);
  EXPECT_GE(json["trials"].size(), 3u);
}

TEST(SolveCommand, ABudgetThatNoChangeKeepsGivesTheLeastAndThatIsKept) {
  const ScratchFolder folder;
  const Outcome outcome = solve(folder, kAnswers, "train.py:make_step --memory 2GiB --device rtx-3090");
  EXPECT_EQ(outcome.code, 3) << outcome.errors;
  const size_t at = outcome.out.find("next: headroom solve ");
  ASSERT_NE(at, std::string::npos) << outcome.out;
  const std::string next = outcome.out.substr(at + 21, outcome.out.find('\n', at) - at - 21);
  EXPECT_EQ(solve(folder, kAnswers, next).code, 0) << next;
}

constexpr const char* kSolvedRecording = R"(headroom-trace 4
s,framework,PyTorch 2.11
n,blocks.0.fc
n,blocks.1.fc
a,100000000,1073741824,0,0,1,0,0,0,1,0,0
m,1,1,1
a,200000000,2147483648,0,0,1,0,0,0,4,1,0
a,300000000,1073741824,0,0,1,0,0,0,4,1,0
a,400000000,1073741824,0,0,1,0,0,0,4,2,0
m,1,2,1
f,400000000,0,1
f,300000000,0,1
f,200000000,0,1
)";

TEST(SolveCommand, ARecordingIsEstimated) {
  const ScratchFolder folder;
  const std::string trace = folder.write("run.trace", kSolvedRecording);

  const Outcome outcome = solve(folder, "exit 9", trace + " --memory 5GiB --device rtx-3090");
  EXPECT_NE(outcome.out.find("estimated from the recording"), std::string::npos)
      << outcome.out << outcome.errors;
  EXPECT_TRUE(outcome.code == 0 || outcome.code == 3);
}

TEST(SolveCommand, NamesTheDeviceOfASnapshotThatIsSolvedForNoOther) {
  const ScratchFolder folder;
  const std::string snapshot =
      std::string(HEADROOM_SOURCE_DIR) + "/tests/tools/report/snapshots/leak-python.pickle.gz";
  const Outcome outcome = solve(folder, "exit 9", snapshot + " --memory 100GiB");
  EXPECT_NE(outcome.out.find("in 98.14 GiB on sim:h200"), std::string::npos) << outcome.out << outcome.errors;
}

TEST(SolveCommand, WritesAPageWithTheCurveOrTheLinesToPaste) {
  const ScratchFolder folder;
  const std::string trace = folder.write("run.trace", kSolvedRecording), page = folder / "solved.html";
  const auto page_of = [&](const std::string& arguments) {
    const Outcome outcome = solve(folder, kAnswers, arguments + " --html " + page);
    EXPECT_EQ(outcome.code, 0) << outcome.errors;
    return read_file(page, 1 << 20);
  };
  EXPECT_NE(page_of("--net attention --batch 8 --points 2 --memory 300MiB").find("<svg"), std::string::npos);
  const std::string html = page_of("train.py:make_step --memory 5GiB --device rtx-3090");
  EXPECT_NE(html.find("partial(checkpoint, net.blocks[0].forward, use_reentrant=False)\n"), std::string::npos)
      << html;
  EXPECT_NE(html.find("<pre><code>"), std::string::npos);
  EXPECT_EQ(html.find("<svg"), std::string::npos) << "no curve";
  EXPECT_EQ(solve(folder, "exit 9", "--net mlp --memory 1GiB --html /no/such/folder/t.html").code, 2);
}

TEST(SolveCommand, ALeakFitsInNoMemory) {
  const ScratchFolder folder;
  const std::string snapshot =
      std::string(HEADROOM_SOURCE_DIR) + "/tests/tools/report/snapshots/leak-python.pickle.gz";
  const Outcome outcome = solve(folder, "exit 9", snapshot + " --memory 100GiB");
  EXPECT_EQ(outcome.code, 3) << outcome.errors;
  EXPECT_NE(outcome.out.find("Leak: "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("no amount of memory is enough"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("fits: "), std::string::npos) << outcome.out;
  const Outcome in_json = solve(folder, "exit 9", snapshot + " --memory 100GiB --json");
  EXPECT_EQ(in_json.code, 3);
  const nlohmann::json json = nlohmann::json::parse(in_json.out);
  EXPECT_EQ(json["keeps"], false);
  EXPECT_NE(json["error"], "");
}

TEST(SolveCommand, PredictAgreesAndTheNextCommandKeepsTheBudget) {
  const ScratchFolder folder;
  const std::string trace = folder.write("run.trace", kSolvedRecording);
  for (const int gib : {4, 6, 20}) {
    const std::string arguments = fmt::format("{} --memory {}GiB --device rtx-3090", trace, gib);
    const nlohmann::json solved = nlohmann::json::parse(solve(folder, "exit 9", arguments + " --json").out);
    const Outcome predicted = run_with_python(folder, "exit 9", "predict " + arguments);
    EXPECT_EQ(predicted.code == 0, solved["trials"][0]["keeps"] == true)
        << gib << predicted.out << predicted.errors;
  }
  const Outcome outcome = solve(folder, "exit 9", trace + " --memory 20GiB --device rtx-3090");
  EXPECT_NE(outcome.out.find(" --memory 20GiB"), std::string::npos) << outcome.out;
}

TEST(SolveCommand, AProgramThatCannotBeTracedIsOneLine) {
  const ScratchFolder folder;
  const Outcome refused =
      solve(folder, "read -r line; echo '{\"error\":\"train.py:9: nonzero needs a value\"}'; cat > /dev/null",
            "train.py:make_step");
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.errors, "headroom: train.py:9: nonzero needs a value\n");
  const Outcome ended =
      solve(folder, "echo \"$0: No module named headroom\" >&2; exit 1", "train.py:make_step");
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.errors.find("has no package headroom: run `"), std::string::npos) << ended.errors;
  const Outcome odd = solve(folder, "read -r line; echo '[]'; cat > /dev/null", "train.py:make_step");
  EXPECT_EQ(odd.code, 1);
  EXPECT_NE(odd.errors.find("is not understood"), std::string::npos) << odd.errors;
}

// Runs the solver for a program of this project, which needs no Python.
Outcome headroom(const ScratchFolder& folder, const std::string& arguments) {
  return run_shell(folder, HEADROOM_COMMAND " " + arguments);
}

TEST(SolveCommand, ABudgetThatTheContextAloneTookOnceIsKept) {
  const ScratchFolder folder;
  const std::string budget = "--net mlp --batch 8 --device h200 --memory 527MiB";
  EXPECT_EQ(headroom(folder, "solve --points 0 " + budget).code, 0);
  EXPECT_EQ(headroom(folder, "run --steps 1 " + budget).code, 0);
}

TEST(SolveCommand, TriesNumbersOfPartsThatDivideAnOddBatch) {
  const ScratchFolder folder;
  const Outcome outcome =
      headroom(folder, "solve --net residual --batch 493 --memory 467MiB --points 0 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.errors;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["parts"], 17) << "493 is 17 x 29";
}

TEST(SolveCommand, NamesTheLeastWhereTheDeviceHasLess) {
  const ScratchFolder folder;
  const Outcome outcome =
      headroom(folder, "solve --net residual --batch 4099 --memory 600MiB --split-batch never --points 0");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.out.find("the minimum exceeds the free memory of the device: "), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("\nnext: headroom fit --net residual"), std::string::npos) << outcome.out;
}

TEST(SolveCommand, TheNextCommandRunsThePlanThatWasSolved) {
  const ScratchFolder folder;
  const std::string arguments = "--net mnist --batch 256 --device rtx-3060 --plan dynamic --memory 150MiB";
  const nlohmann::json solved =
      nlohmann::json::parse(headroom(folder, "solve --points 0 --json " + arguments).out);
  const Outcome shown = headroom(folder, "solve --points 0 " + arguments);
  const std::string next = "\nnext: headroom ";
  const size_t at = shown.out.find(next);
  ASSERT_NE(at, std::string::npos) << shown.out;
  const std::string words =
      shown.out.substr(at + next.size(), shown.out.find('\n', at + 1) - at - next.size());
  const nlohmann::json ran = nlohmann::json::parse(headroom(folder, words + " --json").out);
  EXPECT_EQ(ran["planned_process_bytes"], solved["process_bytes"]) << words;
  EXPECT_EQ(ran["repeated_nodes"], solved["repeated_nodes"]) << words;
}

TEST(SolveCommand, RefusesAnotherLimitAsARunDoes) {
  const ScratchFolder folder;
  for (const char* limit : {"--limit 10MiB", "--memory-fraction 0.01"}) {
    const std::string arguments = std::string(" --net mlp --memory 300MiB ") + limit;
    const Outcome solved = headroom(folder, "solve --points 0" + arguments);
    EXPECT_EQ(solved.code, 2) << solved.out;
    EXPECT_EQ(solved.errors, headroom(folder, "run --steps 1" + arguments).errors);
  }
}

TEST(SolveCommand, NormsInEightBitsAreSaidAndGoIntoTheNextCommand) {
  const ScratchFolder folder;
  const std::string arguments = " --net residual --batch 256 --memory 600MiB --compress-norms";
  const Outcome shown = headroom(folder, "solve --points 0" + arguments);
  EXPECT_NE(shown.out.find("\ncompress-norms "), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("gradients of batch norms read 8 bits"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("next: headroom run" + arguments), std::string::npos) << shown.out;
  const nlohmann::json solved =
      nlohmann::json::parse(headroom(folder, "solve --points 0 --json" + arguments).out);
  EXPECT_EQ(solved["compresses_norms"], true);
  EXPECT_EQ(solved["same_bits"], false);
}

TEST(SolveCommand, HostMemoryWithoutAnArenaIsNoted) {
  const ScratchFolder folder;
  const Outcome outcome = headroom(
      folder, "run --net mlp --device sim --steps 1 --plan dynamic --memory 400MiB --host-memory 1GiB");
  EXPECT_NE(outcome.errors.find("note: --host-memory does nothing with --plan dynamic"), std::string::npos)
      << outcome.errors;
}

TEST(SolveCommand, ARefusedRunIsAnObjectWhereJsonIsAskedFor) {
  const ScratchFolder folder;
  const Outcome outcome = headroom(folder, "run --net mlp --memory 10MiB --json");
  EXPECT_EQ(outcome.code, 3);
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["outcome"], "out_of_memory");
  EXPECT_NE(json["error"].get<std::string>().find("the minimum"), std::string::npos);
}

constexpr const char* kFourReplicas = " --replicas 4 --device sim:four-2080ti --batch 64";

TEST(SolveCommand, ReplicasTakeWhatARunOfThemTakes) {
  const ScratchFolder folder;
  for (const std::string& program : {std::string("--net residual --memory 446MiB"),
                                     std::string("--net mlp --shard-optimizer --memory 300MiB"),
                                     std::string("--net residual --shard-optimizer --memory 445MiB"),
                                     std::string("--net mnist --shard-optimizer --memory 446MiB")}) {
    const Outcome outcome = headroom(folder, "solve --points 0 --json " + program + kFourReplicas);
    ASSERT_EQ(outcome.code, 0) << program << outcome.out << outcome.errors;
    const nlohmann::json solved = nlohmann::json::parse(outcome.out);
    const Outcome run = headroom(folder, "run --steps 2 --json " + program + kFourReplicas);
    ASSERT_EQ(run.code, 0) << program << run.out << run.errors;
    const nlohmann::json ran = nlohmann::json::parse(run.out);
    EXPECT_EQ(solved["process_bytes"], ran["planned_process_bytes"]) << program;
    EXPECT_EQ(solved["process_bytes"], ran["peak_process_bytes"]) << program;
    EXPECT_EQ(solved["repeated_nodes"], ran["repeated_nodes"]) << program;
    EXPECT_EQ(solved["replicas"], 4) << program;
  }
}

TEST(SolveCommand, TheLeastOfReplicasIsKeptAndAPageLessIsNot) {
  const ScratchFolder folder;
  const std::string program = "--net mlp --shard-optimizer" + std::string(kFourReplicas);
  const Outcome refused = headroom(folder, "solve --points 0 --json --memory 10MiB " + program);
  EXPECT_EQ(refused.code, 3);
  const int64_t least = nlohmann::json::parse(refused.out)["least_memory_bytes"];
  ASSERT_GT(least, 0);
  EXPECT_EQ(headroom(folder, fmt::format("run --steps 1 --memory {} {}", least, program)).code, 0);
  EXPECT_EQ(headroom(folder, fmt::format("run --steps 1 --memory {} {}", least - (2 << 20), program)).code,
            3);
}

TEST(SolveCommand, SaysWhatShardingTheOptimizerBuysAndTheNextCommandNamesTheReplicas) {
  const ScratchFolder folder;
  const std::string program = "--net mlp --points 0" + std::string(kFourReplicas);
  const Outcome outcome = headroom(folder, "solve --memory 10MiB " + program);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.out.find("mlp, batch 64, 4 replicas, in 10.00 MiB"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\nwith --shard-optimizer the minimum: "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("--replicas 4"), std::string::npos) << outcome.out;
  const nlohmann::json json =
      nlohmann::json::parse(headroom(folder, "solve --json --memory 10MiB " + program).out);
  const int64_t least = json["with_shard_optimizer"]["least_memory_bytes"];
  EXPECT_LT(least, json["least_memory_bytes"]);
  const Outcome helped = headroom(folder, fmt::format("solve --memory {} {}", least, program));
  EXPECT_EQ(helped.code, 3);
  EXPECT_NE(helped.out.find("\nwith --shard-optimizer it takes "), std::string::npos) << helped.out;
  const Outcome sharded =
      headroom(folder, fmt::format("solve --memory {} --shard-optimizer {}", least, program));
  EXPECT_EQ(sharded.code, 0) << sharded.out;
  EXPECT_EQ(sharded.out.find("with --shard-optimizer"), std::string::npos) << sharded.out;
  EXPECT_NE(sharded.out.find("--shard-optimizer", sharded.out.find("next: headroom run")), std::string::npos)
      << sharded.out;
}

TEST(SolveCommand, AProgramOfPyTorchHasNoReplicas) {
  const ScratchFolder folder;
  for (const char* option : {"--replicas 2", "--shard-optimizer"}) {
    const Outcome outcome =
        solve(folder, "exit 9", fmt::format("train.py:make_step --memory 5GiB {}", option));
    EXPECT_EQ(outcome.code, 2) << option;
    EXPECT_EQ(outcome.errors,
              "headroom: replicas, shard-optimizer, place and virtual-devices need a net: a trace is played "
              "on one device\n");
  }
}

TEST(SolveCommand, OptionsOfABudgetWithoutOneGetANote) {
  const ScratchFolder folder;
  const Outcome outcome = headroom(folder, "predict --net mlp --split-batch cheaper --host-memory 1GiB");
  EXPECT_EQ(outcome.errors,
            "note: --split-batch does nothing without --memory\n"
            "note: --host-memory does nothing without --memory\n");
}

}  // namespace
}  // namespace headroom
