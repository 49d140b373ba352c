// Marks tests that need a GPU: they are skipped without one, and fail without one if HEADROOM_REQUIRE_CUDA=1.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "device/gpus.h"

namespace headroom {

// Call this from SetUp(), where a skip or a fatal failure ends the test. Makes no context.
inline void require_cuda() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test.test_suite_name()) + "." + test.name();
  if (name.find("Cuda") == std::string::npos && name.find("cuda") == std::string::npos) {
    FAIL() << name << " needs Cuda in its name: ctest runs those tests one after the other";
  }
  try {
    make_cuda_device({});
  } catch (const InvalidArgument& error) {
    const char* required = std::getenv("HEADROOM_REQUIRE_CUDA");
    if (required != nullptr && std::string_view(required) == "1") {
      FAIL() << "HEADROOM_REQUIRE_CUDA=1: " << error.what();
    }
    GTEST_SKIP() << error.what();
  }
}

// The fixture of tests that only need a GPU: TEST_F(CudaTest, ...).
class CudaTest : public testing::Test {
 protected:
  void SetUp() override { require_cuda(); }
};

}  // namespace headroom
