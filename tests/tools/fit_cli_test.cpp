// `headroom fit` and `headroom run` as a user runs them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/run_shell.h"

namespace headroom {
namespace {

constexpr const char* kTight = " --device laptop-2gb --device-memory 800MiB --context 260MiB ";

Outcome headroom(const std::string& arguments) {
  const ScratchFolder folder;
  return run_shell(folder, "env -u TF_FORCE_GPU_ALLOW_GROWTH " HEADROOM_COMMAND " " + arguments);
}

TEST(FitCommand, FindsABatchAndRunsItInItsOwnProcess) {
  const Outcome outcome =
      headroom("fit --net unet --strategy caching --steps 2 --margin 0 --json" + std::string(kTight));
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["verified"], true);
  EXPECT_GT(json["batch"], 1);
  ASSERT_EQ(json["runs"].size(), 1u);
  EXPECT_EQ(json["runs"][0]["outcome"], "ok");
  EXPECT_EQ(json["runs"][0]["steps"], 2);
  EXPECT_EQ(json["runs"][0]["peak_process_bytes"], json["predicted_total_bytes"]);
}

// The specification of fit's answers: the batch fits and the next one does not.
TEST(FitCommand, OnASimulatedDeviceItsAnswerIsThatOfPredict) {
  const std::string net = "--net unet --strategy caching" + std::string(kTight);
  const Outcome outcome = headroom("fit --verify=false --json " + net);
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["margin_bytes"], 0);
  EXPECT_EQ(json["verified"], false);
  EXPECT_TRUE(json["runs"].empty());
  const int batch = json["batch"];
  EXPECT_EQ(headroom("predict " + net + "--batch " + std::to_string(batch)).code, 0);
  EXPECT_EQ(headroom("predict " + net + "--batch " + std::to_string(batch + 1)).code, 3);
  EXPECT_EQ(headroom("fit --verify=false " + net).out.find("kept free"), std::string::npos);
  const Outcome margin = headroom("fit --verify=false --margin 4MiB " + net);
  EXPECT_NE(margin.out.find("\n4.00 MiB kept free; why not more: batch "), std::string::npos) << margin.out;
}

TEST(FitCommand, SaysIfItOnlyPredicts) {
  const Outcome outcome = headroom("fit --net residual --device sim:h200 --verify=false --record x");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(outcome.out.find("largest batch "), 0u) << outcome.out;
  EXPECT_NE(outcome.out.find("predicted, not run"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.rfind("\nnext: headroom compare --net residual"), std::string::npos);
  EXPECT_EQ(outcome.out.find("--record"), std::string::npos) << "compare refuses it";
}

// Parts of a batch fit at any size.
TEST(FitCommand, UnderABudgetTheBatchStaysWholeUnlessAsked) {
  const Outcome help = headroom("fit --help");
  const size_t at = help.out.find("--split-batch");
  ASSERT_NE(at, std::string::npos);
  EXPECT_NE(help.out.substr(at, 60).find("\"never\""), std::string::npos) << help.out.substr(at, 400);
  const Outcome outcome = headroom("fit --net lenet --memory 440MiB --most 4096 --verify=false");
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_NE(outcome.out.find("--split-batch needed"), std::string::npos) << outcome.out;
}

TEST(FitCommand, ReportsEachDeviceOfReplicasAndOfAPlacedNet) {
  const std::string halves =
      "--net mlp --device sim:card-6gb --virtual-devices 0:20MiB,24MiB --most 64 --json ";
  for (const char* several : {"--replicas 2", "--place mlp/dense2=/GPU:1 --device-policy silent"}) {
    const Outcome outcome = headroom("fit " + halves + several);
    ASSERT_EQ(outcome.code, 0) << outcome.errors;
    const nlohmann::json json = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(json["batch"], 64) << outcome.out;
    EXPECT_EQ(json["verified"], true);
    ASSERT_EQ(json["predicted_devices"].size(), 2u);
    for (const nlohmann::json& device : json["predicted_devices"]) {
      EXPECT_GT(device["peak_allocated_bytes"], device["variable_bytes"]) << several;
    }
  }
}

TEST(FitCommand, ExitsWithThreeIfNothingFits) {
  const Outcome outcome = headroom("fit --net unet --device laptop-2gb --device-memory 650MiB");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.out.find("nothing fits"), 0u) << outcome.out;
  EXPECT_EQ(headroom("fit --net unet --device laptop-2gb --device-memory 400MiB --margin 10GiB --json").code,
            3);
}

TEST(FitCommand, ABudgetThatKeepsNoBatchNamesTheLeastAndExitsWithThree) {
  for (const char* size : {"", "--batch 64 --least-memory "}) {
    const Outcome outcome = headroom(std::string("fit --net lenet ") + size + "--memory 300MiB");
    EXPECT_EQ(outcome.code, 3) << outcome.errors;
    EXPECT_NE(outcome.out.find("the minimum: --memory "), std::string::npos) << outcome.out;
  }
}

TEST(FitCommand, BadInputIsOneLineAndExitCodeTwo) {
  for (const char* arguments :
       {"--net unett", "--margin much", "--most 0", "--device cpu", "--net mlp --dim n=3",
        "--net mlp --weights w.safetensors", "--net mlp --limit 700MiB --memory 300MiB",
        "--least-memory --memory 1GiB " HEADROOM_SOURCE_DIR "/tests/fuzz/seeds/run.trace",
        "--model net.onnx " HEADROOM_SOURCE_DIR "/tests/fuzz/seeds/run.trace"}) {
    const Outcome outcome = headroom(std::string("fit ") + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
}

TEST(RunCommand, TheNextCommandAfterOutOfMemorySucceeds) {
  const Outcome failed = headroom("run --net mlp --batch 4096 --steps 1 --strategy hard-limit --limit 24MiB");
  EXPECT_EQ(failed.code, 3) << failed.errors;
  const std::string lead = "\nnext: headroom ";
  const size_t next = failed.out.find(lead);
  ASSERT_NE(next, std::string::npos) << failed.out;
  EXPECT_EQ(headroom(failed.out.substr(next + lead.size(), failed.out.size() - next - lead.size() - 1)).code,
            0)
      << failed.out;
}

TEST(RunCommand, ReplicasGetTheSameWeightsAndAFailureNamesACommandThatSucceeds) {
  const std::string two = "run --net mlp --batch 4 --steps 2 --replicas 2 --virtual-devices ";
  const Outcome outcome = headroom(two + "0:100MiB,100MiB --shard-optimizer --json");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json["replicas"].size(), 2u);
  EXPECT_EQ(json["replicas"][0]["device"], "/GPU:0");
  EXPECT_EQ(json["replicas"][0]["weights_checksum"], json["replicas"][1]["weights_checksum"]);
  EXPECT_EQ(json["devices"].size(), 2u);
  const Outcome failed = headroom(two + "0:100MiB,4MiB");
  EXPECT_EQ(failed.code, 3) << failed.errors;
  EXPECT_NE(failed.out.find("replica 1 on /GPU:1: out of memory"), std::string::npos) << failed.out;
  const std::string lead = "\nnext: headroom ";
  const std::string next = failed.out.substr(failed.out.find(lead) + lead.size());
  EXPECT_EQ(headroom(next.substr(0, next.find('\n'))).code, 0) << next;
  EXPECT_EQ(headroom("run --net mlp --batch 3 --replicas 2 --virtual-devices 0:1GiB,512MiB").code, 2);
  EXPECT_EQ(headroom("run --net mlp --device cpu --replicas 2").code, 2);
}

TEST(RunCommand, ReportsTheOutcome) {
  const nlohmann::json ok = nlohmann::json::parse(headroom("run --net mlp --batch 4 --json").out);
  EXPECT_EQ(ok["outcome"], "ok");
  EXPECT_EQ(ok["steps"], 10);
  EXPECT_GT(ok["overhead_bytes"], 0);
  const Outcome full = headroom("run --net unet --batch 80 --json" + std::string(kTight));
  EXPECT_EQ(full.code, 3);
  EXPECT_EQ(nlohmann::json::parse(full.out)["outcome"], "out_of_memory");
  const Outcome library = headroom("run --net lenet --batch 4 --strategy grab-all");
  EXPECT_EQ(library.code, 4);
  EXPECT_EQ(library.out.find("library_failure"), 0u) << library.out;
  EXPECT_EQ(headroom("run --net lenet --batch 4 --device cpu --steps 1").code, 0);
}

TEST(RunCommand, ReplaysATrace) {
  const ScratchFolder folder;
  const std::string trace = folder.write("t.csv", "op,id,bytes\na,0,3145728\na,1,1048576\nf,0,0\nf,1,0\n");
  const nlohmann::json json =
      nlohmann::json::parse(headroom("run --trace " + trace + " --strategy direct --json").out);
  EXPECT_EQ(json["outcome"], "ok");
  EXPECT_EQ(json["peak_reserved_bytes"], 4 << 20);
  EXPECT_EQ(json["overhead_bytes"], (527 + 76) << 20) << "context and libraries of an H200, as predicted";
  const Outcome planned = headroom("run --trace " + trace + " --strategy packed --json");
  ASSERT_EQ(planned.code, 0) << planned.errors;
  EXPECT_EQ(nlohmann::json::parse(planned.out)["peak_reserved_bytes"], 4 << 20) << "planned for the trace";
  const std::string in_budget = "run --trace " + trace + " --strategy direct --memory ";
  EXPECT_EQ(headroom(in_budget + "609MiB").code, 0);
  const Outcome refused = headroom(in_budget + "607MiB");
  EXPECT_EQ(refused.code, 3);
  const size_t next = refused.out.rfind("\nnext: headroom ");
  ASSERT_NE(next, std::string::npos) << refused.out;
  EXPECT_NE(refused.out.find("--memory", next), std::string::npos) << refused.out;
  EXPECT_EQ(headroom(refused.out.substr(next + std::string("\nnext: headroom ").size())).code, 0)
      << refused.out;
}

TEST(RunCommand, RefusesOptionsOfANetForATrace) {
  const ScratchFolder folder;
  const std::string trace = folder.write("t.csv", "op,id,bytes\na,0,3145728\nf,0,0\n");
  for (const char* command : {"run --trace ", "compare ", "predict ", "solve ", "fit --least-memory "}) {
    for (const char* option :
         {"--net unet", "--plan packed", "--optimizer sgd", "--batch 4", "--virtual-devices 0:1GiB"}) {
      if (std::string(command) == "compare " && std::string(option) == "--net unet") continue;  // beside it
      const Outcome outcome = headroom(command + trace + " " + option);
      EXPECT_EQ(outcome.code, 2) << command << option << outcome.out;
    }
  }
}

TEST(FitCommand, TheLeastMemoryOfABudgetIsThatOfTheStepPlannedForIt) {
  // A budget that does not change the step needs no larger device.
  const std::string net =
      "fit --least-memory --json --strategy direct --plan packed --net residual --device rtx-2060";
  const nlohmann::json free = nlohmann::json::parse(headroom(net).out);
  const nlohmann::json loose = nlohmann::json::parse(headroom(net + " --memory 1GiB").out);
  EXPECT_LE(loose["device_bytes"], free["device_bytes"]);
  const nlohmann::json tight = nlohmann::json::parse(headroom(net + " --memory 230MiB").out);
  EXPECT_LT(tight["device_bytes"], free["device_bytes"]);
  for (const nlohmann::json& found : {free, loose, tight}) {
    EXPECT_EQ(found["verified"], true);
    EXPECT_EQ(found["runs"][0]["peak_process_bytes"], found["predicted_total_bytes"]);
  }
}

// Pools keep to the budget on a smaller device as well, so that no device needs more than it.
TEST(FitCommand, TheLeastMemoryOfABudgetIsAtMostThatUnderEveryStrategy) {
  for (const char* strategy : {"pool", "caching", "allow-growth", "grab-all", "arena", "mapped"}) {
    const Outcome outcome =
        headroom(std::string("fit --least-memory --json --net unet --batch 32 --device rtx-2060 --memory "
                             "300MiB --verify=false --strategy ") +
                 strategy);
    ASSERT_EQ(outcome.code, 0) << strategy << outcome.out;
    EXPECT_LE(nlohmann::json::parse(outcome.out)["device_bytes"], 300 << 20) << strategy;
  }
}

TEST(FitCommand, ABudgetThatCannotBeKeptFitsOnNoDevice) {
  const Outcome outcome = headroom("fit --least-memory --net residual --memory 300MiB");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.out.find("nothing fits: "), 0u) << outcome.out;
  EXPECT_NE(outcome.out.find("the minimum: --memory "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\nnext: headroom solve --net residual"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace headroom
