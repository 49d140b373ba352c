// `headroom predict` as a user runs it.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "allocators/strategies/strategy.h"
#include "tests/run_shell.h"

namespace headroom {
namespace {

Outcome predict(const std::string& arguments) {
  const ScratchFolder folder;
  return run_shell(folder, "env -u TF_FORCE_GPU_ALLOW_GROWTH " HEADROOM_COMMAND " predict " + arguments);
}

TEST(PredictCommand, JsonHasTheVerdictOfEveryStrategy) {
  const Outcome outcome = predict("--net unet --batch 16 --strategy caching --limit 1GiB --json");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["strategy"], "caching");
  EXPECT_GT(json["margin_bytes"], 0);
  int64_t sum = 0;
  for (const auto& [category, bytes] : json["by_category"].items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(json["total_bytes"], sum);
  EXPECT_NE(json["peak_op"], "");
  ASSERT_EQ(json["strategies"].size(), strategies().size());
  for (const nlohmann::json& row : json["strategies"]) {
    for (const char* key : {"strategy", "fits", "margin_bytes", "total_bytes", "by_category", "peak_op"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
  }
}

TEST(PredictCommand, ExitsWithThreeIfItDoesNotFit) {
  const Outcome outcome = predict("--net unet --batch 512");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.errors, "");
  EXPECT_EQ(outcome.out.find("does not fit: unet"), 0u) << outcome.out;
  EXPECT_NE(outcome.out.rfind("\nnext: headroom fit --net unet --batch 512"), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(predict("--net unet --batch 512 --json").out);
  EXPECT_EQ(json["fits"], false);
  EXPECT_LT(json["margin_bytes"], 0);
  EXPECT_GT(json["total_bytes"], 2002 << 20);
}

TEST(PredictCommand, TakesATraceAndASnapshot) {
  const std::string seeds = HEADROOM_SOURCE_DIR "/tests/fuzz/seeds/";
  for (const char* file : {"snapshot.pickle", "run.trace", "rmm.csv", "trace.csv.gz"}) {
    const Outcome outcome = predict(seeds + file + " --device rtx-3090 --json");
    ASSERT_EQ(outcome.code, 0) << file << outcome.errors;
    const nlohmann::json json = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(json["fits"], true) << file;
    int64_t sum = 0;
    for (const auto& [category, bytes] : json["by_category"].items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(json["total_bytes"], sum) << file;
    EXPECT_EQ(json["device_total_bytes"], 25'443'893'248) << file;
  }
  const Outcome small = predict(seeds + "snapshot.pickle --device rtx-3090 --device-memory 308MiB");
  EXPECT_EQ(small.code, 3) << small.errors;
  EXPECT_EQ(small.out.find("does not fit: "), 0u) << small.out;
  EXPECT_NE(small.out.find("\nnext: "), std::string::npos);
}

TEST(PredictCommand, PredictsEachDeviceOfAPlacedNet) {
  const std::string halves =
      "--net mlp --width 4 --device sim:card-6gb --strategy direct --place mlp/dense2=/GPU:1 "
      "--device-policy silent --virtual-devices ";
  const Outcome outcome = predict(halves + "0:70MiB,90MiB --json");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["fits"], true);
  EXPECT_GT(json["copies"], 0);
  ASSERT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["devices"][0]["name"], "/device:GPU:0");
  EXPECT_EQ(json["devices"][1]["name"], "/device:GPU:1");
  for (const nlohmann::json& device : json["devices"]) {
    EXPECT_GT(device["variable_bytes"], 0);
    EXPECT_GE(device["peak_allocated_bytes"], device["variable_bytes"]);
    EXPECT_GE(device["peak_reserved_bytes"], device["peak_allocated_bytes"]);
  }
  const Outcome full = predict(halves + "0:90MiB,40MiB");
  EXPECT_EQ(full.code, 3) << full.out;
  EXPECT_EQ(full.out.find("does not fit: mlp"), 0u) << full.out;
  EXPECT_NE(full.out.find(" on /device:GPU:1 ("), std::string::npos) << full.out;
}

TEST(PredictCommand, BadInputIsOneLineAndExitCodeTwo) {
  const std::pair<std::string, std::string> cases[] = {
      {"--net mlp --device sim --replicas 2", "2 replicas need as many logical GPUs, device sim has 1"},
      {"--net unett", "did you mean 'unet'"},
      {"--batch 0", "batch"},
      {"--device cpu", "sim:h200"},
      {"--device sim:h20", "did you mean 'sim:h200'"},
      {"--device sim:none", "sim:none"},
      {"--strategy hard-limit", "needs a limit"},
      {"--net mnist --width 2", "width"},
      {"--net unet --batch 9000000000000000000", "elements"},
      {"--device-memory 1GiB --others 2GiB", "others"},
      {"--device-memory 1GiB --strategy hard-limit=2GiB", "limit"},
      {"--net mlp --place dense2", "SCOPE=DEVICE"},
      {"--net mlp --place dense2=/GPU:9", "available devices are"},
      {"--net mlp --virtual-devices 0:1MiB,1MiB --place nosuch=/GPU:1", "nosuch"},
      {"--net mlp --virtual-devices 0:1MiB,1MiB --place dense2=/GPU:1", "same device"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = predict(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.errors.find(expected), std::string::npos) << outcome.errors;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
}

}  // namespace
}  // namespace headroom
