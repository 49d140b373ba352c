#include "tools/run/device_cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/files.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

// A folder with the files that the kernel has there; what is written to them is read back.
class DeviceCgroupTest : public testing::Test {
 protected:
  void have_regions(const std::string& regions) { folder_.write("dmem.capacity", regions); }
  std::optional<DeviceCgroup> make(const std::string& own) {
    return DeviceCgroup::make(
        [](const std::string& card) -> std::optional<DeviceLimit> {
          if (card != "0000:1b:00.0") return {};
          return DeviceLimit{8 << 20, 4 << 20};
        },
        folder_ / "", folder_.write("own", own));
  }
  std::string text(const std::string& name) { return read_file(folder_ / name, 1 << 20); }

  ScratchFolder folder_;
};

constexpr char kRegions[] =
    "drm/0000:03:00.0/vram0 8514437120\nnvidia/0000:1b:00.0/vidmem 85899345920\n"
    "nvidia/0000:2b:00.0/vidmem 85899345920\n";

TEST_F(DeviceCgroupTest, LimitsTheCardsOfTheDriverBesideTheOwnGroup) {
  have_regions(kRegions);
  std::filesystem::create_directories(folder_ / "user.slice/user-0.slice/session-1.scope");
  const std::optional<DeviceCgroup> group = make("0::/user.slice/user-0.slice/session-1.scope\n");
  ASSERT_TRUE(group);
  const std::string name = "user.slice/user-0.slice/headroom-" + std::to_string(getpid());
  EXPECT_EQ(group->processes_file(), folder_ / "" + name + "/cgroup.procs");
  EXPECT_EQ(text(name + "/dmem.max"), "nvidia/0000:1b:00.0/vidmem 8388608");
  EXPECT_EQ(text(name + "/dmem.min"), "nvidia/0000:1b:00.0/vidmem 4194304");
  for (const char* passes_on : {"", "user.slice/", "user.slice/user-0.slice/"})
    EXPECT_EQ(text(std::string(passes_on) + "cgroup.subtree_control"), "+dmem");
}

TEST_F(DeviceCgroupTest, IsLeftOutWhereKernelDriverOrRightsDoNotOfferIt) {
  EXPECT_FALSE(make("0::/\n"));  // no controller
  have_regions("drm/0000:03:00.0/vram0 8514437120\n");
  EXPECT_FALSE(make("0::/\n"));  // another driver
  have_regions("nvidia/0000:2b:00.0/vidmem 85899345920\n");
  EXPECT_FALSE(make("0::/\n"));  // no limit for that card
  have_regions(kRegions);
  EXPECT_FALSE(make("0::/no/such\n"));  // no folder to write to
  EXPECT_TRUE(make("0::/\n"));
}

}  // namespace
}  // namespace headroom
