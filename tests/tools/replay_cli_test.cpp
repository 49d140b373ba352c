// `headroom replay` and `headroom strategies` as a user meets them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "allocators/strategies/strategy.h"
#include "base/bytes.h"
#include "tests/run_shell.h"
#include "tests/shared_data.h"

namespace headroom {
namespace {

constexpr const char* kTrace = "op,id,bytes\na,0,3145728\na,1,1048576\nf,0,0\na,2,4194304\nf,1,0\n";

class ReplayCommand : public testing::Test {
 protected:
  Outcome run(const std::string& arguments) {
    return run_shell(folder_, std::string(HEADROOM_COMMAND) + " " + arguments);
  }
  nlohmann::json results(const std::string& arguments) {
    const Outcome outcome = run("replay " + trace_ + " --json " + arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.errors;
    EXPECT_EQ(outcome.errors, "");
    return nlohmann::json::parse(outcome.out)["results"];
  }

  const ScratchFolder folder_;
  const std::string trace_ = folder_.write("small.csv", kTrace);
};

TEST_F(ReplayCommand, ARecordingThatCannotBeWrittenIsAnError) {
  const Outcome outcome = run("replay " + trace_ + " --strategy caching --record /dev/full");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.errors,
            "note: the trace is incomplete: /dev/full: cannot write it: No space left on device\n");
  EXPECT_NE(outcome.out.find("caching"), std::string::npos);
}

TEST_F(ReplayCommand, TriesEveryStrategyByDefault) {
  const nlohmann::json rows = results("");
  ASSERT_EQ(rows.size(), strategies().size());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i]["strategy"], strategies()[i].name);
}

TEST_F(ReplayCommand, JsonHasEveryFigureOfTheVerdict) {
  const nlohmann::json rows = results("--strategy direct --capacity 6MiB 4MiB --minimum");
  ASSERT_EQ(rows.size(), 2u);
  const nlohmann::json& fits = rows[0];
  const std::vector<std::string> keys = {"trace",
                                         "strategy",
                                         "capacity_bytes",
                                         "fits",
                                         "refusal",
                                         "failed_event",
                                         "peak_reserved_bytes",
                                         "reserved_is_lower_bound",
                                         "peak_requested_bytes",
                                         "peak_allocated_bytes",
                                         "fragmentation",
                                         "driver_calls",
                                         "ns_per_call",
                                         "minimum_capacity_bytes",
                                         "lower_bound_bytes",
                                         "out_of_memory"};
  for (const std::string& key : keys) EXPECT_TRUE(fits.contains(key)) << key;
  EXPECT_EQ(fits.size(), keys.size());
  EXPECT_EQ(fits["trace"], trace_);
  EXPECT_EQ(fits["capacity_bytes"], 6 * kMiB);
  EXPECT_EQ(fits["fits"], true);
  EXPECT_TRUE(fits["failed_event"].is_null());
  EXPECT_EQ(fits["peak_reserved_bytes"], 5 * kMiB);
  EXPECT_EQ(fits["peak_requested_bytes"], 5 * kMiB);
  EXPECT_EQ(fits["lower_bound_bytes"], 5 * kMiB);
  EXPECT_EQ(fits["driver_calls"], 5);
  EXPECT_EQ(fits["minimum_capacity_bytes"], 6 * kMiB);  // whole pages
  EXPECT_EQ(rows[1]["fits"], false);
  EXPECT_EQ(rows[1]["failed_event"], 2);  // 3 MiB take two pages of the driver, 1 MiB a third
  EXPECT_EQ(rows[1]["minimum_capacity_bytes"], 6 * kMiB);
}

TEST_F(ReplayCommand, MappedPagesCountAsDriverCalls) {
  const nlohmann::json row = results("--strategy mapped")[0];
  EXPECT_EQ(row["peak_reserved_bytes"], 6 * kMiB);
  EXPECT_EQ(row["driver_calls"], 3 + 4);  // three pages are made, and one is mapped twice
}

TEST_F(ReplayCommand, OneThatFailsIsExplainedAndTheNextCommandFits) {
  const Outcome failed = run("replay " + trace_ + " --strategy direct+limit=4MiB --capacity 64MiB");
  ASSERT_EQ(failed.code, 0) << failed.errors;
  EXPECT_NE(failed.out.find("\nat event 4: limit: 5.00 MiB are needed"), std::string::npos) << failed.out;
  const std::string lead = "\nnext: headroom ";
  const size_t next = failed.out.find(lead);
  ASSERT_NE(next, std::string::npos) << failed.out;
  const std::string command = failed.out.substr(next + lead.size());
  const Outcome changed = run(command.substr(0, command.find('\n')) + " --json");
  EXPECT_EQ(nlohmann::json::parse(changed.out)["results"][0]["fits"], true) << command;
  const nlohmann::json json = results("--strategy direct+limit=4MiB --capacity 64MiB")[0]["out_of_memory"];
  EXPECT_EQ(json["cause"], "limit");
  EXPECT_EQ(json["facts"]["limit_bytes"], 4 * kMiB);
  EXPECT_EQ(json["smallest"], "limit +2.00 MiB");
}

TEST_F(ReplayCommand, TheTableSaysTheVerdictFirstAndWhatToDoLast) {
  const Outcome outcome = run("replay " + trace_ + " --capacity 4MiB 1GiB");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_NE(outcome.out.find("largest live set 5.00 MiB"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\n0 of "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("OOM at event"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.rfind("\nnext: headroom replay "), std::string::npos);
  EXPECT_EQ(outcome.errors, "");  // no progress without a terminal
}

TEST_F(ReplayCommand, ASnapshotShowsSegmentsAndBlocksAfterAnEventOrAtTheOneThatFailed) {
  const auto snapshots = [&](const std::string& arguments) {
    const Outcome outcome = run("replay " + trace_ + " --json --strategy caching direct " + arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.errors;
    return nlohmann::json::parse(outcome.out)["snapshots"];
  };
  for (const nlohmann::json& at : snapshots("--snapshot-at 3")) {
    EXPECT_EQ(at["event"], 3);
    EXPECT_EQ(at["out_of_memory"], false);
    EXPECT_EQ(at["statistics"]["requested_bytes"]["current"], kMiB);
    EXPECT_EQ(at["statistics"]["requested_bytes"]["peak"], 4 * kMiB);
    int64_t active = 0;
    for (const nlohmann::json& segment : at["segments"]) {
      for (const nlohmann::json& block : segment["blocks"]) {
        if (block["state"] == "active") active += block["requested_bytes"].get<int64_t>();
      }
    }
    EXPECT_EQ(active, kMiB) << at["strategy"];
  }
  EXPECT_EQ(snapshots("--snapshot-at peak")[1]["segments"].size(), 2u);
  EXPECT_EQ(snapshots("--snapshot-at end")[1]["segments"].size(), 1u);
  const nlohmann::json failed = snapshots("--snapshot-at end --capacity 4MiB")[1];
  EXPECT_EQ(failed["event"], 2);
  EXPECT_EQ(failed["out_of_memory"], true);
  const Outcome text = run("replay " + trace_ + " --strategy caching --snapshot-at 1");
  EXPECT_EQ(text.out.find(trace_ + " with caching, after event 1: 20.00 MiB reserved"), 0u) << text.out;
  EXPECT_NE(text.out.find("next: headroom replay"), std::string::npos);
}

TEST_F(ReplayCommand, BadInputIsOneLineAndExitCodeTwo) {
  const std::string broken = folder_.write("broken.csv", "op,id,bytes\na,0,1\nf,0,0\nf,0,0\n");
  // A device that is smaller than a context.
  const std::string full = folder_.write(
      "full.trace", "headroom-trace 4\nd,67108864,1048576,0,0,1\na,1000,100,0,1,7,0,0,0,0,0,0\n");
  const std::pair<std::string, std::string> cases[] = {
      {"replay", "TRACE is required, or --net"},
      {"replay --strategy caching " + trace_,
       "TRACE is required, or --net: --strategy takes all words that follow it"},
      {"replay " + broken, "broken.csv:4: block 0 is freed twice"},
      {"replay " + folder_.path(), "is a folder"},
      {"replay " + trace_ + ".missing", "No such file"},
      {"replay " HEADROOM_COMMAND, "not a trace"},
      {"replay " + trace_ + " --strategy grab-al", "did you mean 'grab-all'"},
      {"replay " + trace_ + " --capacity much", "much"},
      {"replay " + trace_ + " --capacity 100", "less than one page of 2.00 MiB"},
      {"replay " + full, "a device of 64.00 MiB, of which other processes hold 0 B, and context"},
      {"replay " + trace_ + " --device cuda:0", "simulated"},
      {"replay " + trace_ + " --device sim:h20", "did you mean 'h200'"},
      {"replay " + trace_ + " --passes 0", "passes"},
      {"replay " + trace_ + " --snapshot-at 6", "from 1 to 5"},
      {"replay " + trace_ + " --snapshot-at now", "peak, end, or an event"},
      {"replay " + trace_ + " --snapshot-at 1 --capacity 1GiB 2GiB", "one capacity"},
      {"replay " + trace_ + " --strategy caching+fail=0 --snapshot-at 1", "counted from 1"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.errors.find(expected), std::string::npos) << outcome.errors;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
}

TEST_F(ReplayCommand, AStrategyThatCannotTakeTheTraceIsARow) {
  const std::string path = folder_.write("streams.csv",
                                         "Thread,Time,Action,Pointer,Size,Stream\n"
                                         "1,00:00:00.000000,allocate,0x100,1048576,0x0\n"
                                         "1,00:00:00.000001,allocate,0x200,1048576,0x7\n");
  const Outcome table = run("replay " + path + " --capacity 1GiB");
  EXPECT_EQ(table.code, 0) << table.errors;
  EXPECT_NE(table.out.find("fit into 1.00 GiB; refused: packed\n"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("packed refused: "), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("several streams"), std::string::npos) << table.out;
  const Outcome json = run("replay " + path + " --json --strategy packed direct");
  const nlohmann::json rows = nlohmann::json::parse(json.out)["results"];
  EXPECT_EQ(rows[0]["fits"], false);
  EXPECT_NE(rows[0]["refusal"].get<std::string>().find("several streams"), std::string::npos);
  EXPECT_EQ(rows[1]["fits"], true);
  EXPECT_TRUE(rows[1]["refusal"].is_null());
  const Outcome alone = run("replay " + path + " --strategy packed");
  EXPECT_EQ(alone.code, 2);
  EXPECT_NE(alone.errors.find("several streams"), std::string::npos) << alone.errors;
}

// The matrix itself is printed, so that a run of the tests shows it.
TEST_F(ReplayCommand, RealTracesFitEveryStrategyOnAnH200) {
  const std::string traces = (shared_data() / "traces").string();
  if (!std::filesystem::exists(traces + "/gnn.csv.gz")) GTEST_SKIP() << "no traces in " << traces;
  const Outcome table = run("replay " + traces + "/*.csv.gz");
  EXPECT_EQ(table.code, 0) << table.errors;
  std::fputs(table.out.c_str(), stdout);
  const Outcome json = run("replay --json " + traces + "/*.csv.gz");
  const nlohmann::json rows = nlohmann::json::parse(json.out)["results"];
  EXPECT_EQ(rows.size() % strategies().size(), 0u);
  for (const nlohmann::json& row : rows) {
    EXPECT_EQ(row["fits"], true) << row;
    EXPECT_EQ(row["peak_requested_bytes"], row["lower_bound_bytes"]) << row;
    EXPECT_GE(row["peak_reserved_bytes"], row["lower_bound_bytes"]) << row;
  }
}

TEST_F(ReplayCommand, StrategiesAreThoseOfTheArray) {
  const Outcome outcome = run("strategies --json");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json rows = nlohmann::json::parse(outcome.out)["strategies"];
  ASSERT_EQ(rows.size(), strategies().size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["name"], strategies()[i].name);
    EXPECT_EQ(rows[i]["summary"], strategies()[i].summary);
    EXPECT_TRUE(rows[i]["options"].is_array());
  }
  const Outcome table = run("strategies");
  for (const Strategy& strategy : strategies()) {
    EXPECT_NE(table.out.find(strategy.summary), std::string::npos) << strategy.name;
  }
}

}  // namespace
}  // namespace headroom
