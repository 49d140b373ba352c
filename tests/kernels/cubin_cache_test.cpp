#include "kernels/cuda/generated/cubin_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/scratch_folder.h"

namespace headroom::cuda {
namespace {

TEST(CubinCache, KeepsMachineCodeAndIgnoresFilesThatAreDamagedOrNotItsOwn) {
  const ScratchFolder folder;
  const std::string place = folder.path() + "/kernels", key = key_of_text("source"),
                    other = key_of_text("sources");
  const std::string cubin(
      "\x7f"
      "ELF\0machine\ncode",
      17);
  EXPECT_EQ(kept_cubin(place, key), "");
  keep_cubin(place, key, cubin);
  EXPECT_EQ(kept_cubin(place, key), cubin);
  EXPECT_EQ(kept_cubin(place, other), "");
  EXPECT_EQ(std::filesystem::status(place).permissions(), std::filesystem::perms::owner_all);
  std::filesystem::copy(place + "/" + key, place + "/" + other);
  EXPECT_EQ(kept_cubin(place, other), "") << "of another source";
  std::filesystem::resize_file(place + "/" + key, std::filesystem::file_size(place + "/" + key) - 1);
  EXPECT_EQ(kept_cubin(place, key), "") << "cut off";
  for (const char* content : {"", "\n", "not ours", "headroom_kernel 1\n"}) {
    std::ofstream(place + "/" + key, std::ios::trunc) << content;
    EXPECT_EQ(kept_cubin(place, key), "") << content;
  }
  keep_cubin(place, key, cubin);
  EXPECT_EQ(kept_cubin(place, key), cubin);
}

TEST(CubinCache, DoesNothingWithoutAFolder) {
  keep_cubin("", "key", "code");
  EXPECT_EQ(kept_cubin("", "key"), "");
}

}  // namespace
}  // namespace headroom::cuda
