// Uses our strategies through the C interface, as a program in C does: linked only to libheadroom.so.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allocators/headroom_strategy.h"

extern "C" int size_of_counts_in_c(void);

namespace {

constexpr int64_t kMiB = 1 << 20;

// Memory of the caller that counts allocations, and records which stream waits for which.
struct CallerMemory {
  int64_t free_bytes = 64 * kMiB;
  std::map<void*, int64_t> taken;
  std::vector<std::pair<void*, void*>> waits;

  headroom_driver driver() {
    return {
        .context = this,
        .reserve = [](void* self, int64_t bytes) { return static_cast<CallerMemory*>(self)->reserve(bytes); },
        .unreserve =
            [](void* self, void* pointer, int64_t bytes) {
              auto& memory = *static_cast<CallerMemory*>(self);
              EXPECT_EQ(memory.taken.at(pointer), bytes);
              memory.taken.erase(pointer);
              memory.free_bytes += bytes;
              std::free(pointer);
            },
        .reservable_bytes = [](void* self) { return static_cast<CallerMemory*>(self)->free_bytes; },
        .follow =
            [](void* self, void* stream, void* freed_on) {
              static_cast<CallerMemory*>(self)->waits.emplace_back(stream, freed_on);
            },
    };
  }
  void* reserve(int64_t bytes) {
    if (bytes > free_bytes) return nullptr;
    void* pointer = std::aligned_alloc(256, (static_cast<size_t>(bytes) + 255) / 256 * 256);
    taken[pointer] = bytes;
    free_bytes -= bytes;
    return pointer;
  }
};

struct Opened {
  Opened(const char* strategy, const char* device) {
    EXPECT_EQ(headroom_open(strategy, device, &allocator), HEADROOM_OK) << headroom_error();
  }
  Opened(const char* strategy, const headroom_driver& driver) {
    EXPECT_EQ(headroom_open_on(strategy, &driver, &allocator), HEADROOM_OK) << headroom_error();
  }
  ~Opened() { headroom_close(allocator); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  void* allocate(int64_t bytes, void* stream = nullptr) {
    void* pointer = nullptr;
    EXPECT_EQ(headroom_allocate(allocator, bytes, stream, &pointer), HEADROOM_OK) << headroom_error();
    return pointer;
  }
  headroom_counts counts() {
    headroom_counts all = {};
    EXPECT_EQ(headroom_count(allocator, &all, sizeof all), HEADROOM_OK);
    return all;
  }
  headroom_allocator* allocator = nullptr;
};

TEST(CInterface, HasOneLayoutInCAndInCpp) {
  EXPECT_EQ(size_of_counts_in_c(), static_cast<int>(sizeof(headroom_counts)));
}

TEST(CInterface, NamesTheStrategiesUntilNull) {
  std::vector<std::string> names;
  while (const char* name = headroom_strategy_name(static_cast<int>(names.size()))) names.emplace_back(name);
  EXPECT_EQ(headroom_strategy_name(-1), nullptr);
  EXPECT_NE(std::find(names.begin(), names.end(), "mapped"), names.end());
  for (const std::string& name : names) {
    const std::string text = name == "hard-limit" ? name + "=512MiB" : name;
    headroom_allocator* allocator = nullptr;
    const headroom_status status = headroom_open(text.c_str(), "sim:rtx-3090", &allocator);
    if (status == HEADROOM_OK) headroom_close(allocator);
    EXPECT_TRUE(status == HEADROOM_OK || status == HEADROOM_BAD_INPUT) << name << ": " << headroom_error();
  }
}

TEST(CInterface, BlocksOfTheCallersMemoryKeepTheirBytesAndAllIsGivenBack) {
  for (const char* strategy :
       {"direct", "pool", "caching", "arena", "allow-growth", "two-ended", "grab-all"}) {
    SCOPED_TRACE(strategy);
    CallerMemory memory;
    {
      Opened opened(strategy, memory.driver());
      std::mt19937 random(1);
      std::map<unsigned char*, std::pair<int64_t, unsigned char>> live;
      for (int i = 0; i < 600; ++i) {
        if (live.size() < 24 && random() % 3 != 0) {
          const int64_t bytes = 1 + random() % (200 << 10);
          auto* block = static_cast<unsigned char*>(opened.allocate(bytes));
          ASSERT_NE(block, nullptr);
          ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 256, 0U);
          std::memset(block, i % 251, static_cast<size_t>(bytes));
          live[block] = {bytes, static_cast<unsigned char>(i % 251)};
        } else if (!live.empty()) {
          const auto freed = std::next(live.begin(), random() % live.size());
          const auto [bytes, pattern] = freed->second;
          ASSERT_EQ(freed->first[0], pattern);
          ASSERT_EQ(freed->first[bytes - 1], pattern);
          ASSERT_EQ(headroom_deallocate(opened.allocator, freed->first, nullptr), HEADROOM_OK);
          live.erase(freed);
        }
      }
      const headroom_counts counts = opened.counts();
      EXPECT_EQ(counts.allocations - counts.deallocations, static_cast<int64_t>(live.size()));
      int64_t taken = 0;
      for (const auto& [pointer, bytes] : memory.taken) taken += bytes;
      EXPECT_EQ(counts.reserved_bytes, taken);
    }
    EXPECT_TRUE(memory.taken.empty()) << "live blocks go with the strategy";
    EXPECT_EQ(memory.free_bytes, 64 * kMiB);
  }
}

// A caller's driver that returns an address twice, or one that is not aligned, and one whose figure of free
// memory is any number: every strategy says so by a status, and none hands out memory twice.
TEST(CInterface, ADriverThatBreaksItsContractIsReported) {
  struct Driver {
    int64_t shift_bytes = 0, left_bytes = 0;
    char* base = nullptr;
  };
  constexpr int64_t kBytes = 64 * kMiB;
  std::vector<char> memory(kBytes + 4096);
  auto* const base =
      reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.data()) + 4095) / 4096 * 4096);
  for (const Driver shape :
       {Driver{0, 32 * kMiB, base}, Driver{3, 32 * kMiB, base}, Driver{0, INT64_MAX, base},
        Driver{0, -5, base}, Driver{0, 32 * kMiB, nullptr}}) {
    for (int i = 0; const char* name = headroom_strategy_name(i); ++i) {
      Driver context = shape;
      const headroom_driver driver = {
          .context = &context,
          .reserve = [](void* self, int64_t bytes) -> void* {
            const Driver& it = *static_cast<Driver*>(self);
            return it.base == nullptr || bytes > kBytes / 2 ? nullptr : it.base + it.shift_bytes;
          },
          .unreserve = [](void*, void*, int64_t) {},
          .reservable_bytes = [](void* self) { return static_cast<Driver*>(self)->left_bytes; },
          .follow = nullptr,
      };
      headroom_allocator* allocator = nullptr;
      if (headroom_open_on(name, &driver, &allocator) != HEADROOM_OK) continue;
      std::map<char*, int64_t> live;
      for (int64_t bytes = 1; bytes < 30 * kMiB; bytes *= 2) {
        void* block = nullptr;
        if (headroom_allocate(allocator, bytes, nullptr, &block) != HEADROOM_OK) break;
        const auto next = live.lower_bound(static_cast<char*>(block));
        EXPECT_TRUE(next == live.end() || static_cast<char*>(block) + bytes <= next->first) << name;
        EXPECT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= block)
            << name;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 256, 0u) << name;
        live[static_cast<char*>(block)] = bytes;
      }
      for (const auto& [block, bytes] : live)
        EXPECT_EQ(headroom_deallocate(allocator, block, nullptr), HEADROOM_OK);
      headroom_close(allocator);
    }
  }
}

TEST(CInterface, NoRoomIsAStatusThatNamesTheHolders) {
  CallerMemory memory;
  Opened opened("pool+limit=8MiB", memory.driver());
  void* const held = opened.allocate(6 * kMiB);
  void* block = &memory;
  EXPECT_EQ(headroom_allocate(opened.allocator, 3 * kMiB, nullptr, &block), HEADROOM_OUT_OF_MEMORY);
  EXPECT_EQ(block, nullptr);
  EXPECT_NE(std::string(headroom_error()).find("6.00 MiB allocated"), std::string::npos) << headroom_error();
  EXPECT_EQ(headroom_deallocate(opened.allocator, held, nullptr), HEADROOM_OK);
  EXPECT_NE(opened.allocate(3 * kMiB), nullptr) << "and the allocator is usable";
}

TEST(CInterface, BadInputIsRefusedWithOneLine) {
  headroom_allocator* allocator = nullptr;
  EXPECT_EQ(headroom_open("cachin", "cpu", &allocator), HEADROOM_BAD_INPUT);
  EXPECT_NE(std::string(headroom_error()).find("caching"), std::string::npos);
  for (const char* device :
       {"", "gpu", "sim:", "sim:no-such-card", "sim:rtx-3090:x", "sim:rtx-3090:-1", "cuda:x"}) {
    EXPECT_EQ(headroom_open("caching", device, &allocator), HEADROOM_BAD_INPUT) << device;
    EXPECT_EQ(std::string(headroom_error()).find('\n'), std::string::npos);
  }
  EXPECT_EQ(headroom_open(nullptr, "cpu", &allocator), HEADROOM_BAD_INPUT);
  EXPECT_EQ(allocator, nullptr);
  CallerMemory memory;
  headroom_driver driver = memory.driver();
  EXPECT_EQ(headroom_open_on("mapped", &driver, &allocator), HEADROOM_BAD_INPUT) << "needs pages";
  driver.reserve = nullptr;
  EXPECT_EQ(headroom_open_on("pool", &driver, &allocator), HEADROOM_BAD_INPUT);

  Opened opened("caching", "cpu");
  void* block = nullptr;
  EXPECT_EQ(headroom_allocate(opened.allocator, -1, nullptr, &block), HEADROOM_BAD_INPUT);
  EXPECT_EQ(headroom_deallocate(opened.allocator, &block, nullptr), HEADROOM_BAD_INPUT);
  EXPECT_EQ(headroom_record_use(opened.allocator, &block, nullptr), HEADROOM_BAD_INPUT);
  void* const once = opened.allocate(1);
  EXPECT_EQ(headroom_deallocate(opened.allocator, once, nullptr), HEADROOM_OK);
  EXPECT_EQ(headroom_deallocate(opened.allocator, once, nullptr), HEADROOM_BAD_INPUT) << "freed twice";
  EXPECT_EQ(opened.allocate(0), nullptr);
  EXPECT_EQ(headroom_deallocate(opened.allocator, nullptr, nullptr), HEADROOM_OK);
}

TEST(CInterface, AStreamThatFreesABlockWaitsForItsOtherUsers) {
  CallerMemory memory;
  void* const first = reinterpret_cast<void*>(1);
  void* const second = reinterpret_cast<void*>(2);
  Opened opened("caching", memory.driver());
  void* const block = opened.allocate(kMiB, first);
  EXPECT_EQ(headroom_record_use(opened.allocator, block, second), HEADROOM_OK);
  EXPECT_TRUE(memory.waits.empty());
  EXPECT_EQ(headroom_deallocate(opened.allocator, block, first), HEADROOM_OK);
  EXPECT_EQ(memory.waits, (std::vector<std::pair<void*, void*>>{{first, second}}));
}

TEST(CInterface, CountsFillNoMoreThanTheCallersStruct) {
  Opened opened("caching", "sim:rtx-3090");
  opened.allocate(3 * kMiB);
  headroom_counts counts;
  std::memset(&counts, 0x5a, sizeof counts);
  ASSERT_EQ(headroom_count(opened.allocator, &counts, 2 * sizeof(int64_t)), HEADROOM_OK);
  EXPECT_EQ(counts.requested_bytes, 3 * kMiB);
  EXPECT_EQ(counts.requested_peak_bytes, 3 * kMiB);
  EXPECT_EQ(counts.allocated_bytes, 0x5a5a5a5a5a5a5a5a) << "an older caller's struct ends before";
}

TEST(CInterface, ThreadsShareOneAllocatorAndHaveErrorsOfTheirOwn) {
  Opened opened("caching", "sim:rtx-3090");
  std::array<std::thread, 4> threads;
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i] = std::thread([&, i] {
      void* const stream = reinterpret_cast<void*>(i + 1);
      for (int round = 0; round < 500; ++round) {
        void* block = nullptr;
        ASSERT_EQ(headroom_allocate(opened.allocator, 4096 * static_cast<int64_t>(i + 1), stream, &block),
                  HEADROOM_OK);
        ASSERT_EQ(headroom_deallocate(opened.allocator, block, stream), HEADROOM_OK);
      }
      EXPECT_STREQ(headroom_error(), "");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(opened.counts().allocated_bytes, 0);
  EXPECT_EQ(opened.counts().allocations, 2000);
}

}  // namespace
