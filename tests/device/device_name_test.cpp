#include "device/device_name.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace headroom {
namespace {

TEST(DeviceNames, EveryFormNamesTheSameDevice) {
  const DeviceName gpu{DeviceType::kGpu, 1};
  for (const char* text : {"/job:localhost/replica:0/task:0/device:GPU:1", "/device:GPU:1", "/GPU:1",
                           "/gpu:1", "GPU:1", "device:gpu:1", "/task:0/device:GPU:1"}) {
    EXPECT_EQ(parse_device_name(text), gpu) << text;
  }
  EXPECT_EQ(parse_device_name("/device:CPU:0"), (DeviceName{DeviceType::kCpu, 0}));
  EXPECT_EQ(parse_device_name("/GPU"), (DeviceName{DeviceType::kGpu, 0}));
}

TEST(DeviceNames, AreReadBackAsTheyAreWritten) {
  const DeviceName gpu{DeviceType::kGpu, 12};
  EXPECT_EQ(gpu.text(), "/device:GPU:12");
  EXPECT_EQ(gpu.short_text(), "/GPU:12");
  EXPECT_EQ(gpu.full_text(), "/job:localhost/replica:0/task:0/device:GPU:12");
  for (const std::string& text : {gpu.text(), gpu.short_text(), gpu.full_text()}) {
    EXPECT_EQ(parse_device_name(text), gpu) << text;
  }
}

TEST(DeviceNames, WhatNamesNoDeviceIsRefusedWithTheReason) {
  const auto refusal = [](const char* text) {
    try {
      parse_device_name(text);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  for (const char* text :
       {"", "/", "/TPU:0", "/device:0", "/device:GPU:0/", "/GPU:0/CPU:0", "//GPU:0", "GPU0"}) {
    EXPECT_TRUE(
        refusal(text).starts_with(std::string("'") + text + "' is not a device: there are CPU and GPU") ||
        refusal(text).find("is not a number of a device") != std::string::npos)
        << text << ": " << refusal(text);
  }
  for (const char* text : {"/GPU:", "/GPU:-1", "/GPU:x", "/GPU:1x", "/GPU:99999999999", "/GPU:1:2"}) {
    EXPECT_NE(refusal(text).find("is not a number of a device"), std::string::npos) << text;
  }
  for (const char* text :
       {"/job:worker/replica:0/task:0/device:GPU:0", "/task:1/GPU:0", "/replica:1/GPU:0"}) {
    EXPECT_NE(refusal(text).find("this process is /job:localhost/replica:0/task:0"), std::string::npos)
        << text;
  }
  EXPECT_NE(refusal("/job:localhost").find("no device of it"), std::string::npos);
}

}  // namespace
}  // namespace headroom
