// The file of algorithms: no GPU is needed.
#include "kernels/cuda/library/algorithm_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "tests/scratch_folder.h"

namespace headroom::cuda {
namespace {

const AlgorithmSet kAlgorithms{1 << 20, {{"fast", 1.5, 4096}, {"lean", 2.25, 0}}};

TEST(AlgorithmCache, TheFrontHoldsTheParetoOptimalChoices) {
  const std::vector<AlgorithmChoice> front =
      pareto_front({{"slow and large", 9, 100}, {"lean", 5, 0}, {"fast", 1, 50}, {"as fast, larger", 1, 60}});
  const std::vector<AlgorithmChoice> expected = {{"fast", 1, 50}, {"lean", 5, 0}};
  EXPECT_EQ(front, expected);
  EXPECT_TRUE(pareto_front({}).empty());
}

TEST(AlgorithmCache, ReadsBackWhatItWrites) {
  const AlgorithmTable table = {{"NVIDIA H200: matmul \"1x2\"\n", kAlgorithms},
                                {"", {0, {{"only", 0.1, 0}}}}};
  EXPECT_EQ(parse_algorithms(algorithms_text(table)), table);
}

TEST(AlgorithmCache, RefusesOtherText) {
  const std::string good = algorithms_text({{"p", kAlgorithms}});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::string wrong[] = {"",
                               "{",
                               "[]",
                               "null",
                               "{\"headroom_algorithms\": 1}",
                               good.substr(0, good.size() / 2),
                               with("\"headroom_algorithms\": 1", "\"headroom_algorithms\": 2"),
                               with("\"fast\"", "7"),
                               with("1.5", "-1.5"),
                               with("1.5", "1e999"),
                               with("1.5", "3.5"),  // no front any more
                               with("4096", "-4096"),
                               with("4096", "4096.5"),
                               with("4096", "18446744073709551615"),
                               with("4096", "4194304"),  // beyond the limit
                               with("1048576", "\"x\"")};
  for (const std::string& text : wrong) EXPECT_THROW(parse_algorithms(text), InvalidArgument) << text;
}

class AlgorithmCacheFile : public testing::Test {
 protected:
  const ScratchFolder folder;
  const std::string path = folder.path() + "/deep/algorithms.json";
};

TEST_F(AlgorithmCacheFile, KeepsTheAlgorithmsOfEachProblem) {
  EXPECT_FALSE(kept_algorithms(path, "a"));
  EXPECT_TRUE(keep_algorithms(path, "a", kAlgorithms));
  const AlgorithmSet other{0, {{"other", 3, 0}}};
  keep_algorithms(path, "b", other);
  EXPECT_EQ(kept_algorithms(path, "a"), kAlgorithms);
  EXPECT_EQ(kept_algorithms(path, "b"), other);
  EXPECT_FALSE(kept_algorithms(path, "c"));
}

// Runs under two limits alternate: neither may lose the other's timings.
TEST_F(AlgorithmCacheFile, ALowerLimitAddsToWhatAHigherOneFound) {
  keep_algorithms(path, "a", {1 << 20, {{"fast", 1.5, 4096}, {"lean", 2.25, 1024}}});
  keep_algorithms(path, "a", {512, {{"leaner", 2, 256}, {"leanest", 3, 0}}});
  const std::optional<AlgorithmSet> kept = kept_algorithms(path, "a");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->limit_bytes, 1 << 20);
  std::vector<std::string> names;
  for (const AlgorithmChoice& choice : kept->choices) names.push_back(choice.algorithm);
  EXPECT_EQ(names, (std::vector<std::string>{"fast", "lean", "leaner", "leanest"}));

  const AlgorithmSet wider{1 << 21, {{"fastest", 1, 1 << 21}}};
  keep_algorithms(path, "a", wider);
  EXPECT_EQ(kept_algorithms(path, "a"), wider);

  const AlgorithmSet narrower{512, {{"leaner", 2, 256}}};
  keep_algorithms(path, "a", narrower, true);  // the cached choice is refused by now
  EXPECT_EQ(kept_algorithms(path, "a"), narrower);
}

TEST_F(AlgorithmCacheFile, LeavesOtherFilesUnchanged) {
  for (const char* content : {"not json", "{\"strategy\": \"direct\"}", " "}) {
    const std::string other = folder.write("other", content);
    EXPECT_FALSE(kept_algorithms(other, "a"));
    EXPECT_FALSE(keep_algorithms(other, "a", kAlgorithms));
    EXPECT_EQ(read_file(other, 100), content);
  }
}

TEST_F(AlgorithmCacheFile, ReplacesOtherFormatsAndBrokenOrEmptyFiles) {
  keep_algorithms(path, "a", kAlgorithms);
  for (const char* content :
       {"{\"headroom_algorithms\": 99, \"problems\": {}}", "{\"headroom_algorithms\": 1, \"pro", ""}) {
    std::ofstream(path) << content;
    EXPECT_FALSE(kept_algorithms(path, "a"));
    keep_algorithms(path, "a", kAlgorithms);
    EXPECT_EQ(kept_algorithms(path, "a"), kAlgorithms);
  }
}

TEST_F(AlgorithmCacheFile, KeepsNothingWhereItCannotWrite) {
  EXPECT_FALSE(keep_algorithms("/proc/no/such/folder/algorithms.json", "a", kAlgorithms));
  EXPECT_FALSE(keep_algorithms("", "a", kAlgorithms));
  EXPECT_FALSE(kept_algorithms("/proc/no/such/folder/algorithms.json", "a"));
  EXPECT_FALSE(kept_algorithms("", "a"));
}

TEST_F(AlgorithmCacheFile, ConcurrentWritersLeaveAWholeFile) {
  keep_algorithms(path, "shared", kAlgorithms);
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 20; ++i) {
        keep_algorithms(path, "problem of " + std::to_string(writer), kAlgorithms);
        // Another thread may have lost an entry, but the file is complete.
        EXPECT_NO_THROW(parse_algorithms(read_file(path, 1 << 20)));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(kept_algorithms(path, "shared"), kAlgorithms);
}

class AlgorithmCachePath : public testing::Test {
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
      {"HEADROOM_ALGORITHM_CACHE", get("HEADROOM_ALGORITHM_CACHE")},
      {"XDG_CACHE_HOME", get("XDG_CACHE_HOME")},
      {"HOME", get("HOME")}};
};

TEST_F(AlgorithmCachePath, FollowsTheEnvironment) {
  set("HEADROOM_ALGORITHM_CACHE", nullptr);
  set("XDG_CACHE_HOME", "/cache");
  set("HOME", "/home/me");
  EXPECT_EQ(algorithm_cache_path(), "/cache/headroom/algorithms.json");
  set("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(algorithm_cache_path(), "/home/me/.cache/headroom/algorithms.json");
  set("HOME", nullptr);
  EXPECT_EQ(algorithm_cache_path(), "");
  set("HEADROOM_ALGORITHM_CACHE", "/elsewhere/file");
  EXPECT_EQ(algorithm_cache_path(), "/elsewhere/file");
  set("HEADROOM_ALGORITHM_CACHE", "off");
  set("HOME", "/home/me");
  EXPECT_EQ(algorithm_cache_path(), "");
}

}  // namespace
}  // namespace headroom::cuda
