// `headroom compare` as a user runs it.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "tests/run_shell.h"

namespace headroom {
namespace {

class CompareCommand : public testing::Test {
 protected:
  Outcome compare(const std::string& arguments) {
    return run_shell(folder_, "env -u TF_FORCE_GPU_ALLOW_GROWTH " HEADROOM_COMMAND " compare " + arguments);
  }
  const ScratchFolder folder_;
  const std::string trace_ = folder_.write("t.csv", "op,id,bytes\na,0,3145728\na,1,1048576\nf,0,0\nf,1,0\n");
};

TEST_F(CompareCommand, RunsNetsAndTracesUnderStrategiesAndSettings) {
  const Outcome outcome = compare("--net lenet --trace " + trace_ +
                                  " --device sim --batch 4 --steps 2 --runs 1 --strategy grab-all direct"
                                  " --settings plan=dynamic plan=packed --json --csv " +
                                  folder_ / "t1.csv" + " --html " + folder_ / "t.html");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json rows = nlohmann::json::parse(outcome.out)["rows"];
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[0]["workload"], "lenet, batch 4");
  EXPECT_EQ(rows[0]["strategy"], "grab-all");
  EXPECT_EQ(rows[0]["settings"], "plan=dynamic");
  EXPECT_EQ(rows[0]["outcome"], "library_failure") << "as on the 2 GB laptop";
  EXPECT_EQ(rows[3]["outcome"], "ok");
  EXPECT_EQ(rows[4]["workload"], trace_);
  EXPECT_EQ(rows[4]["outcome"], "ok");
  EXPECT_GT(rows[3]["overhead_bytes"], 0);
  EXPECT_EQ(rows[3]["peak_device_bytes"],
            rows[3]["peak_process_bytes"].get<int64_t>() + (int64_t{329} << 20));
  const bool any =
      std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row["is_pareto_optimal"]; });
  EXPECT_TRUE(any);
  EXPECT_GT(std::filesystem::file_size(folder_ / "t1.csv"), 0u);
  EXPECT_GT(std::filesystem::file_size(folder_ / "t.html"), 0u);
}

TEST_F(CompareCommand, AFullDiskIsOneLineBelowTheTable) {
  for (const char* output : {"--csv /dev/full", "--html /dev/full"}) {
    const Outcome outcome = compare("--trace " + trace_ + " --runs 1 --strategy direct " + output);
    EXPECT_EQ(outcome.code, 1) << output;
    EXPECT_NE(outcome.out.find("direct"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.errors, "headroom: /dev/full: cannot write it: No space left on device\n") << output;
  }
}

TEST_F(CompareCommand, RunExplainsATraceThatDoesNotFitAndItsNextCommandSucceeds) {
  const std::string command =
      HEADROOM_COMMAND " run --trace " + trace_ + " --device sim --limit 3MiB --strategy allow-growth";
  const Outcome outcome = run_shell(folder_, command);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.out.find("\nlimit: 4.00 MiB are needed, the limit is 3.00 MiB"), std::string::npos)
      << outcome.out;
  const auto report = nlohmann::json::parse(run_shell(folder_, command + " --json").out)["out_of_memory"];
  EXPECT_EQ(report["cause"], "limit");
  EXPECT_EQ(report["facts"]["limit_bytes"], 3 << 20);
  EXPECT_EQ(report["smallest"], "limit +2.00 MiB");
  const size_t next = outcome.out.rfind("\nnext: headroom ");
  ASSERT_NE(next, std::string::npos) << outcome.out;
  const std::string again = outcome.out.substr(next + std::string("\nnext: headroom ").size());
  EXPECT_EQ(run_shell(folder_, std::string(HEADROOM_COMMAND) + " " + again).code, 0) << again;
}

TEST_F(CompareCommand, PredictProposesTheStrategyThatAnExplainedRunFinds) {
  const std::string what = trace_ + " --strategy caching --device h200 --device-memory 609MiB";
  std::vector<std::string> proposed;
  for (const char* command : {"run --trace ", "predict "}) {
    const std::string out = run_shell(folder_, std::string(HEADROOM_COMMAND " ") + command + what).out;
    const size_t next = out.find("\nnext: headroom ");
    ASSERT_NE(next, std::string::npos) << out;
    const std::string line = out.substr(next + 1, out.find('\n', next + 1) - next - 1);
    proposed.push_back(line.substr(line.rfind("--strategy ")));
    EXPECT_EQ(run_shell(folder_, HEADROOM_COMMAND " " + line.substr(line.find("run "))).code, 0) << line;
  }
  EXPECT_EQ(proposed.front(), proposed.back());
}

TEST_F(CompareCommand, ABudgetThatNoStrategyKeepsExitsWithThreeAndNamesTheLeastOfEach) {
  const Outcome outcome = compare("--net mlp --batch 8 --memory 10MiB --strategy direct packed");
  EXPECT_EQ(outcome.code, 3) << outcome.errors;
  for (const char* name : {"direct", "packed"}) {
    EXPECT_NE(outcome.out.find(std::string(name) + ": 10.00 MiB is too small for every plan"),
              std::string::npos)
        << outcome.out;
  }
  EXPECT_NE(outcome.out.find("\nnext: headroom solve --net mlp --batch 8\n"), std::string::npos)
      << outcome.out;
}

TEST_F(CompareCommand, ABudgetThatOneStrategyKeepsExitsWithZero) {
  const Outcome outcome =
      compare("--net mlp --batch 8 --steps 1 --runs 1 --memory 287MiB --strategy caching packed");
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_NE(outcome.out.find("1 of 2 succeeded"), std::string::npos) << outcome.out;
}

TEST_F(CompareCommand, TriesEveryStrategyThatNeedsNoLimitByDefault) {
  const Outcome outcome = compare("--trace " + trace_ + " --runs 1");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  for (const Strategy& strategy : strategies()) {
    const bool is_there = outcome.out.find(" " + std::string(strategy.name) + " ") != std::string::npos;
    EXPECT_EQ(is_there, !strategy.needs_limit) << strategy.name << "\n" << outcome.out;
  }
  EXPECT_EQ(outcome.errors, "");
  EXPECT_NE(outcome.out.rfind("\nnext: "), std::string::npos);
}

// One question has one answer: libraries count, and strategies plan the trace if they can.
TEST_F(CompareCommand, ATraceTakesWhatItsPredictionSays) {
  const Outcome compared = compare(trace_ + " --device rtx-3090 --runs 1 --json");
  ASSERT_EQ(compared.code, 0) << compared.errors;
  const Outcome predicted =
      run_shell(folder_, HEADROOM_COMMAND " predict " + trace_ + " --device rtx-3090 --json");
  ASSERT_EQ(predicted.code, 0) << predicted.errors;
  const nlohmann::json rows = nlohmann::json::parse(compared.out)["rows"];
  const nlohmann::json predictions = nlohmann::json::parse(predicted.out)["strategies"];
  size_t found = 0;
  for (const nlohmann::json& row : rows) {
    for (const nlohmann::json& prediction : predictions) {
      if (prediction["strategy"] != row["strategy"]) continue;
      ++found;
      // Up to a page of the driver.
      EXPECT_NEAR(row["peak_reserved_bytes"].get<double>(), prediction["peak_reserved_bytes"].get<double>(),
                  2 << 20)
          << row;
      EXPECT_EQ(row["overhead_bytes"], (231 + 76) << 20) << row;
      if (row["strategy"] == "packed") {
        EXPECT_EQ(row["peak_reserved_bytes"], 4 << 20) << "planned for the trace";
      }
    }
  }
  EXPECT_EQ(found, strategies().size() - 1) << "all that need no limit";
}

// All three replay a recording once, up to the limit that it shows, with the context of its program.
TEST_F(CompareCommand, ARecordedFailureTakesWhatPredictAndReplaySay) {
  const std::string recording =
      HEADROOM_SOURCE_DIR "/tests/tools/report/snapshots/leak-python.pickle.gz --json";
  const auto rows_of = [&](const std::string& command, const char* key) {
    const std::string line = std::string(HEADROOM_COMMAND " ") + command + recording;
    return nlohmann::json::parse(run_shell(folder_, line).out)[key];
  };
  const nlohmann::json compared = rows_of("compare --runs 1 ", "rows");
  const nlohmann::json replayed = rows_of("replay ", "results");
  const nlohmann::json predicted = rows_of("predict ", "strategies");
  size_t found = 0;
  for (const nlohmann::json& prediction : predicted) {
    const auto is_same = [&](const nlohmann::json& row) { return row["strategy"] == prediction["strategy"]; };
    const auto row = std::find_if(compared.begin(), compared.end(), is_same);
    const auto replay = std::find_if(replayed.begin(), replayed.end(), is_same);
    if (row == compared.end() || replay == replayed.end()) continue;
    ++found;
    EXPECT_EQ((*row)["outcome"] == "ok", prediction["fits"]) << *row;
    EXPECT_EQ((*replay)["fits"], prediction["fits"]) << *replay;
    EXPECT_EQ((*row)["overhead_bytes"], (527 + 76) << 20) << *row;
    if (!prediction["fits"]) continue;
    EXPECT_EQ((*replay)["peak_reserved_bytes"], prediction["peak_reserved_bytes"]) << *replay;
    EXPECT_EQ((*row)["peak_reserved_bytes"], prediction["peak_reserved_bytes"]) << *row;
  }
  EXPECT_GE(found, 8u);
}

TEST_F(CompareCommand, ARecordingIsPlayedAgainWhereStepsSaySo) {
  const std::string grown = folder_.write("g.csv", "op,id,bytes\na,0,3145728\na,1,4194304\nf,0,0\n");
  const auto driver_calls = [&](const std::string& steps) {
    const Outcome outcome = compare(grown + " --device h200 --strategy direct --runs 1 --json" + steps);
    return nlohmann::json::parse(outcome.out)["rows"][0]["driver_seconds"].get<double>();
  };
  const double once = driver_calls("");
  EXPECT_EQ(driver_calls(" --steps 1"), once);
  EXPECT_GT(driver_calls(" --steps 10"), 5 * once);
}

TEST_F(CompareCommand, TakesNetsBesideATrace) {
  const Outcome outcome =
      compare(trace_ + " --net lenet --batch 4 --steps 1 --runs 1 --strategy direct --json");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["rows"].size(), 2u) << outcome.out;
}

TEST_F(CompareCommand, BadInputIsOneLineAndExitCodeTwo) {
  const std::pair<std::string, std::string> cases[] = {
      {"--net unett", "did you mean 'unet'"},
      {"--strategy cachin", "did you mean 'caching'"},
      {"--settings packed", "OPTION=VALUE"},
      {"--settings plan=packt", "did you mean 'packed'"},
      {"--settings plam=packed", "did you mean '--plan'"},
      {"--trace " + trace_ + ".missing", "No such file"},
      {"--runs 0", "runs"},
      {"--record " + folder_ / "r.trace", "use headroom run to record one"},
      {"--html /no/such/folder/t.html", "/no/such/folder/t.html"},
      {"--html " + folder_ / "both" + " --csv " + folder_ / "both", "two outputs would go to it"},
      {"--device sim:h20", "did you mean"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = compare(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.errors.find(expected), std::string::npos) << outcome.errors;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
}

}  // namespace
}  // namespace headroom
