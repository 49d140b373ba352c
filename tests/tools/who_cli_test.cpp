// Runs `headroom who` as a user does.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "device/gpus.h"
#include "tests/run_shell.h"

namespace headroom {
namespace {

Outcome who(const std::string& arguments) {
  const ScratchFolder folder;
  return run_shell(folder, HEADROOM_COMMAND " who " + arguments);
}

int64_t sum_of(const nlohmann::json& device) {
  int64_t bytes = device["free_bytes"].get<int64_t>() + device["unaccounted_bytes"].get<int64_t>();
  for (const auto& part : device["ours"]) bytes += part.get<int64_t>();
  for (const auto& holder : device["others"])
    bytes += holder["bytes"].is_null() ? 0 : holder["bytes"].get<int64_t>();
  return bytes;
}

TEST(HeadroomWho, TheSharesOfEveryDeviceAddUp) {
  for (const char* arguments : {"--json --device sim", "--json --device sim:card-6gb --strategy grab-all"}) {
    const Outcome outcome = who(arguments);
    ASSERT_EQ(outcome.code, 0) << outcome.errors;
    const nlohmann::json json = nlohmann::json::parse(outcome.out);
    ASSERT_FALSE(json["devices"].empty());
    for (const auto& device : json["devices"]) EXPECT_EQ(sum_of(device), device["total_bytes"]) << device;
  }
}

TEST(HeadroomWho, WatchPrintsOneLineOfJsonPerUpdate) {
  const Outcome outcome = who("--device sim --watch --every 0.1 --times 2 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  ASSERT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
  EXPECT_EQ(nlohmann::json::parse(outcome.out.substr(0, outcome.out.find('\n')))["devices"].size(), 1u);
}

// Uses a real GPU if there is one. If there is no driver, nothing is made up.
TEST(HeadroomWho, SaysThatThereIsNoGpuAndProposesASimulatedOne) {
  const bool has_gpu = list_gpus().problem.empty() && !list_gpus().gpus.empty();
  const Outcome json = who("--json"), text = who("--allocate 64MiB");
  ASSERT_EQ(json.code, has_gpu ? 0 : 4) << json.errors;
  const auto printed = nlohmann::json::parse(json.out);
  for (const auto& device : printed["devices"]) {
    EXPECT_EQ(sum_of(device), device["total_bytes"]) << device;
    EXPECT_FALSE(device["simulated"]);
  }
  if (has_gpu) return;
  EXPECT_EQ(text.code, 4);
  EXPECT_TRUE(text.out.starts_with("no GPU")) << text.out;
  EXPECT_TRUE(text.out.ends_with("\nnext: headroom who --device sim --allocate 64MiB\n")) << text.out;
}

TEST(HeadroomWho, InAPipeWatchPrintsALineEachTime) {
  const Outcome outcome = who("--device sim --watch --every 0.1 --times 3");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3) << outcome.out;
  EXPECT_NE(outcome.out.find(" sim: 760.00 MiB of 1.96 GiB used, 38 %"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
}

TEST(HeadroomWho, StartsWithTheSummaryAndEndsWithTheNextCommand) {
  const Outcome outcome = who("--device sim --allocate 64MiB");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(outcome.out.find("sim (simulated laptop-2gb): "), 0u);
  EXPECT_NE(outcome.out.rfind("\nnext: headroom predict --device sim\n"), std::string::npos);
}

TEST(HeadroomWho, OutOfMemoryExitsWithThreeAndBadOptionsAreOneLine) {
  EXPECT_EQ(who("--device sim --allocate 5GiB").code, 3);
  for (const char* arguments : {"--device cpu", "--device sim --strategy nonesuch", "--strategy nonesuch",
                                "--device sim --others 9GiB", "--watch --every 0", "--device cuda:99"}) {
    const Outcome outcome = who(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
}

}  // namespace
}  // namespace headroom
