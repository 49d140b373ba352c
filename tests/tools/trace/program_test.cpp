#include "tools/trace/program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/files.h"
#include "device/host/profiles.h"

namespace headroom {
namespace {

TEST(IsProgram, IsAFunctionInAPythonFile) {
  for (const char* text : {"train.py:make_step", "a/b.py:f", "./x.y.py:_2"})
    EXPECT_TRUE(is_program(text)) << text;
  for (const char* text :
       {"", "train.py", "train.py:", ".py:f", "train:f", "train.py:a.b", "train.py:1", "a.csv"}) {
    EXPECT_FALSE(is_program(text)) << text;
  }
}

// The tracer has a row of its own for each profile: multiprocessors, which a simulated device does not need.
TEST(TracedGpus, AreTheProfilesOfDevices) {
  const std::string table = read_file(HEADROOM_SOURCE_DIR "/python/headroom/torch/gpus.py", 1 << 20);
  for (const DeviceProfile& profile : device_profiles()) {
    EXPECT_NE(table.find(fmt::format("Gpu(\"{}\", ", profile.name)), std::string::npos) << profile.name;
  }
}

}  // namespace
}  // namespace headroom
