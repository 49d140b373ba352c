// `headroom predict` as a user runs it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "allocators/strategies/strategy.h"
#include "tests/run_shell.h"
#include "tests/shared_data.h"

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
    for (const char* key :
         {"strategy", "fits", "margin_bytes", "total_bytes", "peak_reserved_bytes", "reason"}) {
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

TEST(PredictCommand, TheNextCommandFindsWhatFitsWhereNoBatchDoes) {
  const ScratchFolder folder;
  for (const char* question : {"--net unet --width 8 --batch 64", "--net mlp --limit 1MiB"}) {
    const Outcome outcome = predict(question);
    EXPECT_EQ(outcome.code, 3) << outcome.errors;
    const std::string lead = "\nnext: headroom ";
    const size_t next = outcome.out.rfind(lead);
    ASSERT_NE(next, std::string::npos) << outcome.out;
    std::string command = outcome.out.substr(next + lead.size());
    command.pop_back();  // the line's end
    EXPECT_EQ(run_shell(folder, HEADROOM_COMMAND " " + command + " --verify=false").code, 0) << command;
  }
}

// It carries no scope of a limit that it leaves out, and solve takes the limit as the budget that it leaves.
TEST(PredictCommand, TheNextCommandsUnderALimitRun) {
  const ScratchFolder folder;
  const std::string trace = folder.write("t.csv", "op,id,bytes\na,0,31457280\na,1,1048576\nf,0,0\n");
  for (const char* limit : {" --limit 8MiB", " --limit 611MiB --limit-scope process", " --memory 611MiB"}) {
    const std::string arguments = trace + " --device h200 --strategy direct" + limit;
    const nlohmann::json predicted = nlohmann::json::parse(predict(arguments + " --json").out);
    EXPECT_EQ(predicted["fits"], false) << limit;
    const Outcome next = run_shell(folder, HEADROOM_COMMAND + predicted["next"].get<std::string>().substr(8));
    EXPECT_EQ(next.code, 0) << predicted["next"] << next.errors;
    const nlohmann::json solved =
        nlohmann::json::parse(run_shell(folder, HEADROOM_COMMAND " solve " + arguments + " --json").out);
    EXPECT_EQ(solved["memory_bytes"], 611 << 20) << limit;
  }
}

TEST(PredictCommand, ABudgetThatIsTooSmallNamesTheLeastAndExitsWithThree) {
  for (const char* memory : {"100MiB", "300MiB"}) {
    const Outcome outcome = predict(fmt::format("--net lenet --memory {}", memory));
    EXPECT_EQ(outcome.code, 3) << outcome.errors;
    EXPECT_NE(outcome.out.find("the minimum: --memory "), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("\nnext: headroom solve --net lenet"), std::string::npos) << outcome.out;
  }
  const Outcome outcome = predict("--net lenet --memory 300MiB --json");
  EXPECT_EQ(outcome.code, 3) << outcome.errors;
  EXPECT_GT(nlohmann::json::parse(outcome.out)["least_memory_bytes"], 300 << 20);
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

// A recording's own device is another one, so that the usual device must be named in the next command.
TEST(PredictCommand, TheUsualDeviceThatIsGivenForATraceIsTheOneOfItsFullName) {
  const std::string trace = HEADROOM_SOURCE_DIR "/tests/fuzz/seeds/run.trace ";
  for (const std::string size : {"", " --others 1900MiB"}) {
    const Outcome usual = predict(trace + "--device sim" + size);
    EXPECT_EQ(usual.out, predict(trace + "--device sim:laptop-2gb" + size).out);
    EXPECT_EQ(usual.code, size.empty() ? 0 : 3);
    const size_t next = usual.out.find("\nnext: ");
    EXPECT_NE(usual.out.find("--device sim:laptop-2gb", next), std::string::npos) << usual.out;
  }
  const std::string budget = predict(trace + "--device rtx-2060 --memory 700MiB").out;
  EXPECT_NE(budget.find("(published)"), std::string::npos) << budget;
  EXPECT_NE(budget.find(", budget of 700.00 MiB"), std::string::npos) << budget;
}

nlohmann::json prediction_of(const std::string& snapshot, const std::string& options = {}) {
  const Outcome outcome = predict(snapshot + " --json " + options);
  nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(outcome.code, json["fits"] == true ? 0 : 3) << outcome.errors;
  return json;
}

// PyTorch on an H200 with a memory fraction of about 4 GiB.
TEST(PredictCommand, ARecordedFailureIsPredictedAsOneOnItsDeviceAndNotOnALargerOne) {
  const std::string folder = HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/";
  for (const char* name : {"growing-batch-gpt2-python", "leak-all", "fragmentation-python",
                           "optimizer-first-step-python", "accumulated-losses-python"}) {
    const std::string snapshot = folder + name + ".pickle.gz";
    const nlohmann::json recorded = prediction_of(snapshot);
    EXPECT_EQ(recorded["fits"], false) << name;
    EXPECT_LT(recorded["margin_bytes"], 0) << name;
    EXPECT_EQ(recorded["device"], "sim:h200") << name;
    EXPECT_LT(recorded["recorded_limit"]["at_least_bytes"], 4.01 * (1 << 30)) << name;
    EXPECT_GT(recorded["recorded_limit"]["below_bytes"], 3.99 * (1 << 30)) << name;
    // The memory that another strategy held when it failed is not its need.
    const nlohmann::json& rows = recorded["strategies"];
    EXPECT_GT(rows[0]["total_bytes"], 0) << name;
    for (size_t i = 1; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i]["total_bytes"].is_null(), rows[i]["fits"] == false) << name << rows[i];
    }
    const nlohmann::json elsewhere = prediction_of(snapshot, "--device rtx-3090");
    EXPECT_EQ(elsewhere["fits"], true) << name;
    EXPECT_EQ(elsewhere["recorded_limit"], nullptr) << name;
  }
  const Outcome text = predict(folder + "growing-batch-gpt2-python.pickle.gz");
  EXPECT_NE(
      text.out.find("1.53 GiB were refused while 97.71 GiB of the device were free. It is at least 3.95 "
                    "GiB and below 4.90 GiB"),
      std::string::npos)
      << text.out;
  EXPECT_EQ(text.out.find(": \n"), std::string::npos) << "a place that nobody knows";
  EXPECT_EQ(text.errors, "");
  EXPECT_NE(predict(folder + "healthy-gpt2-python.pickle.gz").errors.find("does not name its device"),
            std::string::npos);
  const nlohmann::json survived = prediction_of(folder + "recovers-python.pickle.gz");
  EXPECT_EQ(survived["fits"], true);
}

TEST(PredictCommand, SharedSnapshotsFailAsRecorded) {
  const std::string folder = (shared_data() / "snapshots").string();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no snapshots in " << folder;
  // Their logs show the allowed memory: 9.79 and 4.19 GiB.
  const nlohmann::json oom = prediction_of(folder + "/gpt2_oom.pickle.gz");
  EXPECT_EQ(oom["fits"], false);
  EXPECT_EQ(oom["device"], "sim:h200");
  EXPECT_NEAR(oom["recorded_limit"]["at_least_bytes"].get<double>() / (1 << 30), 9.79, 0.01);
  EXPECT_EQ(prediction_of(folder + "/gpt2_oom.pickle.gz", "--device rtx-3090")["fits"], true);
  const nlohmann::json leak = prediction_of(folder + "/resnet50_leak.pickle.gz");
  EXPECT_EQ(leak["fits"], false);
  EXPECT_NEAR(leak["recorded_limit"]["at_least_bytes"].get<double>() / (1 << 30), 4.19, 0.01);
}

// The simulated pool of the driver packs without gaps.
TEST(PredictCommand, AllCommandsSayThatTheDriversPoolIsALowerBound) {
  const std::string trace = HEADROOM_SOURCE_DIR "/tests/fuzz/seeds/trace.csv";
  const std::string note = fmt::format(
      "\nstream-ordered: a lower bound; on a GPU it has reserved up to {:.2f} of the largest live "
      "set\n",
      find_strategy("stream-ordered").gpu_reserved_ratio);
  for (const std::string& command :
       {"predict " + trace, std::string("predict --net mlp"), "fit --least-memory " + trace,
        "compare --runs 1 " + trace, "replay " + trace}) {
    const ScratchFolder folder;
    const auto run = [&](const std::string& options) {
      return run_shell(folder, HEADROOM_COMMAND " " + command + options).out;
    };
    const std::string marked = run(" --strategy stream-ordered");
    EXPECT_NE(marked.find(note), std::string::npos) << command << marked;
    EXPECT_NE(run(" --strategy stream-ordered --json").find("\"reserved_is_lower_bound\": true"),
              std::string::npos)
        << command;
    EXPECT_EQ(run(" --strategy caching --json")
                  .find("\"strategy\": \"caching\",\n"
                        "  \"reserved_is_lower_bound\": true"),
              std::string::npos)
        << command;
  }
  const Outcome fit = run_shell(ScratchFolder(), HEADROOM_COMMAND
                                " fit --net mlp --most 64 --verify=false --strategy "
                                "pytorch,backend:cudaMallocAsync");
  EXPECT_NE(fit.out.find("pytorch,backend:cudaMallocAsync: a lower bound"), std::string::npos) << fit.out;
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

TEST(PredictCommand, PredictsEachDeviceOfEveryReplicaOfAPlacedNet) {
  const std::string placed =
      "--net mlp --device sim:four-2080ti --place mlp/dense2=/GPU:1 --device-policy silent --json";
  const Outcome alone = predict(placed), two = predict(placed + " --replicas 2");
  ASSERT_EQ(two.code, 0) << two.errors;
  const nlohmann::json json = nlohmann::json::parse(two.out);
  ASSERT_EQ(json["devices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const nlohmann::json& device = json["devices"][i];
    EXPECT_EQ(device["name"], "/device:GPU:" + std::to_string(i));
    EXPECT_EQ(device["peak_allocated_bytes"], json["devices"][i % 2]["peak_allocated_bytes"]);
  }
  EXPECT_EQ(json["copies"], 2 * nlohmann::json::parse(alone.out)["copies"].get<int>());
}

TEST(PredictCommand, BadInputIsOneLineAndExitCodeTwo) {
  const std::pair<std::string, std::string> cases[] = {
      {"--net mlp --device sim --replicas 2", "2 replicas need as many logical GPUs, device sim has 1"},
      {"--net mlp --device sim:four-2080ti --replicas 2 --place mlp/dense2=/GPU:3", "4 devices each need 8"},
      {"--net mlp --device sim:four-2080ti --replicas 2 --place mlp/dense2=/CPU:0", "one CPU for all"},
      {"--net unett", "did you mean 'unet'"},
      {"/dev/null", "the file is empty"},
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
