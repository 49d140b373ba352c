// Names of devices as TensorFlow writes them, read in every form and written in three. Knows no device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headroom {

enum class DeviceType : uint8_t { kCpu, kGpu };

// One device of this process, which is the only task of the only replica of the job "localhost".
struct DeviceName {
  DeviceType type = DeviceType::kGpu;
  int ordinal = 0;

  std::string text() const;        // "/device:GPU:1"
  std::string short_text() const;  // "/GPU:1"
  std::string full_text() const;   // "/job:localhost/replica:0/task:0/device:GPU:1"
  bool operator==(const DeviceName&) const = default;
};

// The number of a device; nothing for any other text.
std::optional<int> parse_ordinal(std::string_view digits);

// Parses any of the three forms, with or without the first '/', in any case; without a number it is the first
// of its kind: "/GPU:1", "gpu", "/device:CPU:0". Throws InvalidArgument with the reason: no such kind of
// device, no number, another job, replica or task.
DeviceName parse_device_name(std::string_view text);

}  // namespace headroom
