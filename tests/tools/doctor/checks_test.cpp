#include "tools/doctor/checks.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headroom::doctor {
namespace {

Facts clean_machine() {
  PhysicalGpu gpu;
  gpu.ordinal = 0;
  gpu.name = "NVIDIA H200";
  Facts facts;
  facts.libraries = {{"libcuda", "/usr/lib/libcuda.so.580.65.06", "580.65.06"},
                     {"libcublas", "/usr/lib/libcublas.so.13.1.0", "13.1.0"},
                     {"libcublasLt", "/usr/lib/libcublasLt.so.13.1.0", "13.1.0"}};
  facts.driver_cuda = facts.runtime_cuda = 13000;
  facts.kernel_driver = "580.65.06";
  facts.gpus.gpus = {gpu};
  facts.caches = {{.path = "/home/me/.nv", .exists = true, .owner = {}}};
  return facts;
}

std::vector<std::string> problems(const Facts& facts) {
  std::vector<std::string> names;
  for (const Finding& finding : examine(facts)) {
    if (finding.level != Level::kProblem) continue;
    names.push_back(finding.check);
    EXPECT_NE(finding.fix, "") << finding.check;
  }
  return names;
}

TEST(DoctorChecks, AreSilentOnACleanMachineAndOnOneWithoutAGpu) {
  EXPECT_TRUE(problems(clean_machine()).empty());
  EXPECT_TRUE(problems({}).empty());
}

TEST(DoctorChecks, EachFaultIsItsOwnProblem) {
  using Names = std::vector<std::string>;
  Facts facts = clean_machine();
  facts.libraries.push_back({"libcublas", "/opt/env/libcublas.so.13.1.0", "13.1.0"});
  EXPECT_EQ(problems(facts), Names{"copies"});
  facts = clean_machine();
  facts.runtime_cuda = 14000;
  EXPECT_EQ(problems(facts), Names{"driver and toolkit"});
  facts.runtime_cuda = 13010;  // runs by minor version compatibility
  EXPECT_TRUE(problems(facts).empty());
  facts = clean_machine();
  facts.kernel_driver = "570.12";
  EXPECT_EQ(problems(facts), Names{"driver"});
  facts = clean_machine();
  facts.caches[0].owner = "root";
  EXPECT_EQ(problems(facts), Names{"kernel cache"});
  facts = clean_machine();
  facts.gpus.gpus[0].ordinal.reset();
  facts.visible_devices = "7";
  EXPECT_EQ(problems(facts), Names{"visible devices"});
  facts = clean_machine();
  facts.misspelled = {{"CUDA_VISIBLE_DIVICES", "CUDA_VISIBLE_DEVICES"}};
  EXPECT_EQ(problems(facts), Names{"variables"});
  facts = clean_machine();
  facts.libraries[2].version = "12.8.4";
  EXPECT_EQ(problems(facts), Names{"matching parts"});
}

TEST(DoctorLibraries, AreReadFromAProcessEachFileOnce) {
  const std::vector<LibraryFile> libraries = mapped_libraries(
      "7f00-7f01 r-xp 00000000 08:01 12 /usr/lib/libcublas.so.13.1.0.3\n"
      "7f01-7f02 rw-p 00001000 08:01 12 /usr/lib/libcublas.so.13.1.0.3\n"
      "7f02-7f03 r-xp 00000000 08:01 14 /usr/lib/libcublasLt.so.13.1.0.3\n"
      "7f04-7f05 rw-p 00000000 00:00 0 [heap]\n"
      "7f06-7f07 r-xp 00000000 08:01 13 /opt/my env/nvidia/libcublas.so.12\n"
      "garbage");
  ASSERT_EQ(libraries.size(), 3u);
  EXPECT_EQ(libraries[0].version, "13.1.0.3");
  EXPECT_EQ(libraries[2].path, "/opt/my env/nvidia/libcublas.so.12");
  EXPECT_EQ(duplicates(libraries), std::vector<std::string>{"libcublas"});
}

}  // namespace
}  // namespace headroom::doctor
