#include "tools/who/account.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/errors.h"
#include "sheet/writers.h"
#include "tools/who/formats.h"
#include "tools/who/held_device.h"
#include "tools/who/live.h"
#include "tools/who/process.h"

namespace headroom::who {
namespace {

// Expects total = free + ours + others + unaccounted, from the account's fields.
void expect_balanced(const Account& account) {
  EXPECT_EQ(account.total_bytes, account.free_bytes + account.ours.total_bytes() + account.others_bytes() +
                                     account.unaccounted_bytes());
}

TEST(WhoHoldsMemory, AShortfallIsNegativeAndNotHuge) {
  PhysicalGpu gpu;
  gpu.ordinal = 0;
  gpu.total_bytes = 10 * kGiB;
  gpu.free_bytes = 9 * kGiB;
  gpu.processes = std::vector<GpuProcess>{{.pid = -1, .bytes = 3 * kGiB}};  // claims more than is in use
  const Account account = account_of(gpu, {});
  expect_balanced(account);
  EXPECT_EQ(account.unaccounted_bytes(), -2 * kGiB);
  EXPECT_NE(to_json(to_sheet({{account}, {}, {}}), -1).find("\"unaccounted_bytes\":-2147483648"),
            std::string::npos);
  EXPECT_NE(to_text(to_sheet({{account}, {}, {}}), Terminal(0, false)).find("-2048.0"), std::string::npos);
}

TEST(WhoHoldsMemory, TheLargestProcessComesFirstAndThisOneIsNotAmongOthers) {
  PhysicalGpu gpu;
  gpu.total_bytes = 10 * kGiB;
  gpu.free_bytes = 4 * kGiB;
  gpu.processes = std::vector<GpuProcess>{
      {.pid = -1, .bytes = kGiB}, {.pid = getpid(), .bytes = 2 * kGiB}, {.pid = -2, .bytes = 3 * kGiB}};
  const Account account = account_of(gpu, {.context_bytes = 2 * kGiB});
  ASSERT_EQ(account.others.size(), 2u);
  EXPECT_EQ(account.others[0].pid, -2);
  EXPECT_EQ(account.unaccounted_bytes(), 0);
  expect_balanced(account);
}

TEST(WhoHoldsMemory, WhatTheDriverDoesNotTellIsUnaccountedAndSaid) {
  PhysicalGpu gpu;
  gpu.total_bytes = 10 * kGiB;
  gpu.free_bytes = 4 * kGiB;
  gpu.processes = std::vector<GpuProcess>{{.pid = -1, .bytes = {}}};
  const Account silent = account_of(gpu, {});
  EXPECT_EQ(silent.unaccounted_bytes(), 6 * kGiB);
  EXPECT_NE(to_json(to_sheet({{silent}, {}, {}}), -1).find("\"bytes\":null"), std::string::npos);
  gpu.processes.reset();
  EXPECT_NE(to_text(to_sheet({{account_of(gpu, {})}, {}, {}}), Terminal(0, false)).find("lists no processes"),
            std::string::npos);
}

TEST(WhoHoldsMemory, OfASimulatedGpuEveryByteIsSomebodys) {
  for (const DeviceProfile& profile : device_profiles()) {
    const HeldDevice device({.device = "sim:" + profile.name}, 100 * kMiB);
    ASSERT_EQ(device.failure(), "") << profile.name;
    const Account account = device.account();
    expect_balanced(account);
    EXPECT_EQ(account.unaccounted_bytes(), 0) << profile.name;
    EXPECT_EQ(account.ours.context_bytes, profile.kept_context_bytes());
    EXPECT_EQ(account.ours.libraries_bytes, profile.overhead_bytes() - profile.context_bytes);
    EXPECT_GE(account.ours.live_bytes, 100 * kMiB);
    EXPECT_EQ(account.others_bytes(), profile.others_bytes);
  }
}

TEST(WhoHoldsMemory, WhatCouldNotBeTakenIsSaidAndTheRestIsShown) {
  const HeldDevice device({.device = "sim", .strategy = "grab-all"}, 0);
  EXPECT_NE(device.failure(), "");
  EXPECT_EQ(device.exit_code(), kExitLibraryFailure);
  const Account account = device.account();
  expect_balanced(account);
  EXPECT_EQ(account.unaccounted_bytes(), 0);
  EXPECT_GT(account.ours.cached_bytes, kGiB);
}

TEST(WhoHoldsMemory, AStrangerIsNotTakenForTheProcessOfADriver) {
  EXPECT_EQ(find_process(-1).user, "");
  // This process exists and has no GPU: a container's number for another process.
  EXPECT_EQ(find_process(getpid()).command, "");
}

Account with_share(const char* device, int64_t used_bytes, std::vector<Holder> others = {}) {
  return {.device = device,
          .name = device,
          .uuid = device,
          .total_bytes = 8 << 20,
          .free_bytes = (8 << 20) - used_bytes,
          .others = std::move(others)};
}

TEST(LiveScreen, HasALineForEachGpuThatFitsTheTerminal) {
  LiveScreen screen;
  screen.add({.accounts = {with_share("cuda:0", 1 << 20),
                           with_share("cuda:1", 7 << 20, {{42, "ada", std::string(300, 'x'), 7 << 20}})},
              .problem = {},
              .failure = {}});
  for (const size_t width : {60, 100, 200}) {
    std::istringstream lines(screen.frame(Terminal(width, true), 0, "headroom who"));
    std::string line;
    for (int number = 0; std::getline(lines, line); ++number) {
      EXPECT_LE(characters(line), width) << line;
      if (number == 1) {
        EXPECT_TRUE(line.starts_with("cuda:0  [\x1b[32m#")) << line;
      }
      if (number == 2) {
        EXPECT_TRUE(line.starts_with("cuda:1  [\x1b[33m#")) << line;
      }
    }
  }
  const std::string frame = screen.frame(Terminal(80, false), 0, "headroom who");
  EXPECT_NE(frame.find("88 %"), std::string::npos) << frame;
  EXPECT_NE(frame.find("pid 42 ada: xxx"), std::string::npos) << frame;
}

TEST(LiveScreen, SortsWithSAndEndsWithQ) {
  LiveScreen screen;
  screen.add({.accounts = {with_share("cuda:0", 1 << 20), with_share("cuda:1", 7 << 20)},
              .problem = {},
              .failure = {}});
  const auto first = [&] {
    const std::string frame = screen.frame(Terminal(80, false), 0, "");
    return frame.find("cuda:0") < frame.find("cuda:1") ? "cuda:0" : "cuda:1";
  };
  EXPECT_STREQ(first(), "cuda:0");
  EXPECT_TRUE(screen.press('s'));
  EXPECT_STREQ(first(), "cuda:1") << "most used";
  EXPECT_TRUE(screen.press('s'));
  EXPECT_STREQ(first(), "cuda:0") << "most free";
  EXPECT_TRUE(screen.press(0)) << "no key";
  EXPECT_FALSE(screen.press('q'));
  EXPECT_FALSE(screen.press(3)) << "Ctrl-C";
}

TEST(LiveScreen, LeavesOutWhatIsBelowTheTerminal) {
  LiveScreen screen;
  screen.add(
      {.accounts = std::vector<Account>(20, with_share("cuda:0", 1 << 20)), .problem = {}, .failure = {}});
  const std::string frame = screen.frame(Terminal(80, false), 10, "");
  EXPECT_EQ(std::count(frame.begin(), frame.end(), '\n'), 10);
}

}  // namespace
}  // namespace headroom::who
