// The library that PyTorch loads, used as PyTorch uses it: found by name, on a simulated GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/scratch_folder.h"
#include "tools/torch/headroom_torch.h"

namespace {

template <typename F>
F* function(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

// A process has the library once; each device in it takes the strategy that is set when it is first used, so
// that each test takes devices of its own.
class TorchPlugin : public testing::Test {
 protected:
  void open(const char* strategy) {
    setenv("HEADROOM_TORCH_DEVICE", "sim:h200", 1);
    setenv("HEADROOM_STRATEGY", strategy, 1);
    void* library = dlopen(HEADROOM_TORCH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    malloc_ = function<decltype(headroom_malloc)>(library, "headroom_malloc");
    free_ = function<decltype(headroom_free)>(library, "headroom_free");
    record_stream_ = function<decltype(headroom_record_stream)>(library, "headroom_record_stream");
    empty_cache_ = function<decltype(headroom_empty_cache)>(library, "headroom_empty_cache");
    memory_fraction_ = function<decltype(headroom_memory_fraction)>(library, "headroom_memory_fraction");
    statistics_ = function<decltype(headroom_statistics)>(library, "headroom_statistics");
    for (void* found : {reinterpret_cast<void*>(malloc_), reinterpret_cast<void*>(free_),
                        reinterpret_cast<void*>(record_stream_), reinterpret_cast<void*>(empty_cache_),
                        reinterpret_cast<void*>(memory_fraction_), reinterpret_cast<void*>(statistics_)}) {
      ASSERT_NE(found, nullptr);
    }
  }
  nlohmann::json statistics(int device = 0) {
    std::vector<char> text(statistics_(device, nullptr, 0));
    if (text.empty()) return nullptr;
    statistics_(device, text.data(), text.size());
    return nlohmann::json::parse(text.data());
  }

  decltype(headroom_malloc)* malloc_ = nullptr;
  decltype(headroom_free)* free_ = nullptr;
  decltype(headroom_record_stream)* record_stream_ = nullptr;
  decltype(headroom_empty_cache)* empty_cache_ = nullptr;
  decltype(headroom_memory_fraction)* memory_fraction_ = nullptr;
  decltype(headroom_statistics)* statistics_ = nullptr;
};

constexpr ssize_t kMiB = 1 << 20;

TEST_F(TorchPlugin, ServesStreamsAndDevicesAndEmptiesItsCache) {
  open("caching");
  EXPECT_TRUE(statistics().is_null());
  void* const stream = reinterpret_cast<void*>(7);
  void* a = malloc_(3 * kMiB, 0, nullptr);
  void* b = malloc_(3 * kMiB, 0, stream);
  void* c = malloc_(kMiB, 1, nullptr);
  EXPECT_NE(a, b);
  record_stream_(a, stream);
  free_(a, 3 * kMiB, 0, nullptr);
  free_(b, 3 * kMiB, 0, stream);
  free_(c, kMiB, 1, nullptr);
  const nlohmann::json now = statistics();
  EXPECT_EQ(now["strategy"], "caching");
  EXPECT_EQ(now["requested_bytes"], 0);
  EXPECT_EQ(now["requested_peak_bytes"], 6 * kMiB);
  EXPECT_EQ(now["reserved_bytes"], 40 * kMiB) << "20 MiB for each stream, as in PyTorch";
  EXPECT_EQ(statistics(1)["reserved_bytes"], 2 * kMiB);
  empty_cache_();
  EXPECT_EQ(statistics()["reserved_bytes"], 0);
  EXPECT_EQ(statistics(1)["reserved_bytes"], 0);
}

TEST_F(TorchPlugin, ARecordingIsWholeWhenTheProgramEnds) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  // The child, a process of its own, takes the parent's folder.
  std::optional<headroom::ScratchFolder> folder;
  if (std::getenv("HEADROOM_TEST_RECORDING") == nullptr) {
    setenv("HEADROOM_TEST_RECORDING", (folder.emplace() / "run.trace").c_str(), 1);
  }
  const std::string recording = std::getenv("HEADROOM_TEST_RECORDING");
  const auto run = [&] {
    open(("caching+record=" + recording).c_str());
    for (int i = 0; i < 10; ++i) free_(malloc_(kMiB, 0, nullptr), kMiB, 0, nullptr);
    std::exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
  std::ifstream file(recording);
  int frees = 0;
  for (std::string line; std::getline(file, line);) frees += line.starts_with("f,");
  EXPECT_EQ(frees, 10);
  unsetenv("HEADROOM_TEST_RECORDING");
}

TEST_F(TorchPlugin, AFractionThatIsSetFirstIsALimit) {
  open("caching");
  memory_fraction_(0.001, 2);  // 143 MiB
  EXPECT_ANY_THROW(malloc_(200 * kMiB, 2, nullptr));
  EXPECT_NE(malloc_(100 * kMiB, 2, nullptr), nullptr);
}

TEST_F(TorchPlugin, AMalformedStrategyIsAnExceptionThatNamesIt) {
  open("cachin");
  try {
    malloc_(1, 3, nullptr);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'caching'?"), std::string::npos) << error.what();
  }
}

TEST_F(TorchPlugin, WhatAGraphHasUsedGoesToNobodyElseUntilItsPoolIsReleased) {
  int device = 4;
  for (const char* strategy : {"caching", "mapped"}) {
    open(strategy);
    void* library = dlopen(HEADROOM_TORCH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    auto* begin =
        function<decltype(headroom_begin_allocate_to_pool)>(library, "headroom_begin_allocate_to_pool");
    auto* end = function<decltype(headroom_end_allocate_to_pool)>(library, "headroom_end_allocate_to_pool");
    auto* release = function<decltype(headroom_release_pool)>(library, "headroom_release_pool");
    void* const stream = reinterpret_cast<void*>(9);
    const auto is_captured = [&](CUstream_st* asked) { return static_cast<void*>(asked) == stream; };

    begin(device, {0, 1}, is_captured);
    void* temporary = malloc_(3 * kMiB, device, stream);
    void* beside = malloc_(3 * kMiB, device, nullptr);
    free_(temporary, 3 * kMiB, device, stream);
    void* result = malloc_(3 * kMiB - 100, device, stream);
    EXPECT_EQ(result, temporary) << "reused within the capture";
    void* second = malloc_(5 * kMiB, device, stream);
    free_(second, 5 * kMiB, device, stream);
    end(device, {0, 1});

    void* later = malloc_(5 * kMiB, device, stream);
    EXPECT_NE(later, second) << "the graph writes there when it is replayed";
    begin(device, {0, 1}, is_captured);
    EXPECT_EQ(malloc_(5 * kMiB, device, stream), second) << "a graph that shares the pool";
    end(device, {0, 1});
    free_(second, 5 * kMiB, device, stream);

    release(device, {0, 1});
    EXPECT_NE(malloc_(5 * kMiB, device, stream), second) << "the other graph is still there";
    release(device, {0, 1});
    EXPECT_EQ(malloc_(5 * kMiB, device, stream), second);
    EXPECT_EQ(statistics(device)["requested_bytes"], (3 + 3 + 5 + 5 + 5) * kMiB);
    free_(result, 3 * kMiB - 100, device, stream);
    free_(beside, 3 * kMiB, device, nullptr);
    EXPECT_EQ(statistics(device)["requested_bytes"], (5 + 5 + 5) * kMiB);
    ++device;
  }
}

}  // namespace
