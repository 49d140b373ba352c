// The file of plans: no GPU is needed.
#include "kernels/cuda/library/plan_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "runtime/base/errors.h"
#include "runtime/base/files.h"
#include "tests/scratch_folder.h"

namespace headroom::cuda {
namespace {

const PlanSet kPlans{1 << 20, {{"fast", 1.5, 4096}, {"lean", 2.25, 0}}};

TEST(PlanCache, TheFrontHoldsWhatNothingBeatsInBothTimeAndWorkspace) {
  const std::vector<PlanChoice> front =
      pareto_front({{"slow and large", 9, 100}, {"lean", 5, 0}, {"fast", 1, 50}, {"as fast, larger", 1, 60}});
  const std::vector<PlanChoice> expected = {{"fast", 1, 50}, {"lean", 5, 0}};
  EXPECT_EQ(front, expected);
  EXPECT_TRUE(pareto_front({}).empty());
}

TEST(PlanCache, WhatIsWrittenReadsBackTheSame) {
  const PlanTable table = {{"NVIDIA H200: matmul \"1x2\"\n", kPlans}, {"", {0, {{"only", 0.1, 0}}}}};
  EXPECT_EQ(parse_plans(plans_text(table)), table);
}

TEST(PlanCache, RefusesWhatItHasNotWritten) {
  const std::string good = plans_text({{"p", kPlans}});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::string wrong[] = {"",
                               "{",
                               "[]",
                               "null",
                               "{\"headroom_plans\": 1}",
                               good.substr(0, good.size() / 2),
                               with("\"headroom_plans\": 1", "\"headroom_plans\": 2"),
                               with("\"fast\"", "7"),
                               with("1.5", "-1.5"),
                               with("1.5", "1e999"),
                               with("1.5", "3.5"),  // no front any more
                               with("4096", "-4096"),
                               with("4096", "4096.5"),
                               with("4096", "18446744073709551615"),
                               with("4096", "4194304"),  // beyond the limit
                               with("1048576", "\"x\"")};
  for (const std::string& text : wrong) EXPECT_THROW(parse_plans(text), InvalidArgument) << text;
}

class PlanCacheFile : public testing::Test {
 protected:
  const ScratchFolder folder;
  const std::string path = folder.path() + "/deep/plans.json";
};

TEST_F(PlanCacheFile, KeepsWhatWasFoundForEachProblem) {
  EXPECT_FALSE(kept_plans(path, "a"));
  EXPECT_TRUE(keep_plans(path, "a", kPlans));
  const PlanSet other{0, {{"other", 3, 0}}};
  keep_plans(path, "b", other);
  EXPECT_EQ(kept_plans(path, "a"), kPlans);
  EXPECT_EQ(kept_plans(path, "b"), other);
  EXPECT_FALSE(kept_plans(path, "c"));
}

TEST_F(PlanCacheFile, AFileOfSomethingElseIsLeftAsItIs) {
  for (const char* content : {"not json", "{\"strategy\": \"direct\"}", " "}) {
    const std::string other = folder.write("other", content);
    EXPECT_FALSE(kept_plans(other, "a"));
    EXPECT_FALSE(keep_plans(other, "a", kPlans));
    EXPECT_EQ(read_file(other, 100), content);
  }
}

TEST_F(PlanCacheFile, AnotherFormatABrokenFileAndAnEmptyOneAreReplaced) {
  keep_plans(path, "a", kPlans);
  for (const char* content :
       {"{\"headroom_plans\": 99, \"problems\": {}}", "{\"headroom_plans\": 1, \"pro", ""}) {
    std::ofstream(path) << content;
    EXPECT_FALSE(kept_plans(path, "a"));
    keep_plans(path, "a", kPlans);
    EXPECT_EQ(kept_plans(path, "a"), kPlans);
  }
}

TEST_F(PlanCacheFile, WhereNothingCanBeWrittenNothingIsKept) {
  EXPECT_FALSE(keep_plans("/proc/no/such/folder/plans.json", "a", kPlans));
  EXPECT_FALSE(keep_plans("", "a", kPlans));
  EXPECT_FALSE(kept_plans("/proc/no/such/folder/plans.json", "a"));
  EXPECT_FALSE(kept_plans("", "a"));
}

TEST_F(PlanCacheFile, WritersAtOnceLeaveAWholeFile) {
  keep_plans(path, "shared", kPlans);
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 20; ++i) {
        keep_plans(path, "problem of " + std::to_string(writer), kPlans);
        // Another may have forgotten an entry, but what is there is whole.
        EXPECT_NO_THROW(parse_plans(read_file(path, 1 << 20)));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(kept_plans(path, "shared"), kPlans);
}

class PlanCachePath : public testing::Test {
 protected:
  void TearDown() override {
    for (const auto& [name, value] : saved_) set(name, value ? value->c_str() : nullptr);
  }
  static void set(const char* name, const char* value) {
    value != nullptr ? setenv(name, value, 1) : unsetenv(name);
  }

 private:
  static std::optional<std::string> get(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  const std::vector<std::pair<const char*, std::optional<std::string>>> saved_ = {
      {"HEADROOM_PLAN_CACHE", get("HEADROOM_PLAN_CACHE")},
      {"XDG_CACHE_HOME", get("XDG_CACHE_HOME")},
      {"HOME", get("HOME")}};
};

TEST_F(PlanCachePath, FollowsTheEnvironment) {
  set("HEADROOM_PLAN_CACHE", nullptr);
  set("XDG_CACHE_HOME", "/cache");
  set("HOME", "/home/me");
  EXPECT_EQ(plan_cache_path(), "/cache/headroom/plans.json");
  set("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(plan_cache_path(), "/home/me/.cache/headroom/plans.json");
  set("HOME", nullptr);
  EXPECT_EQ(plan_cache_path(), "");
  set("HEADROOM_PLAN_CACHE", "/elsewhere/file");
  EXPECT_EQ(plan_cache_path(), "/elsewhere/file");
  set("HEADROOM_PLAN_CACHE", "off");
  set("HOME", "/home/me");
  EXPECT_EQ(plan_cache_path(), "");
}

}  // namespace
}  // namespace headroom::cuda
