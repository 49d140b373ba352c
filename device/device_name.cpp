#include "device/device_name.h"

#include <fmt/format.h>

#include <cstddef>

#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

constexpr std::string_view kTask = "/job:localhost/replica:0/task:0";

std::string_view word(DeviceType type) {
  return type == DeviceType::kCpu ? "CPU" : "GPU";
}

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw InvalidArgument(fmt::format("'{}' is not a device: {}", text, why));
}

// "gpu:1", "gpu".
DeviceName parse_kind(std::string_view part, std::string_view text) {
  const size_t colon = part.find(':');
  const std::string_view kind = part.substr(0, colon);
  DeviceName name;
  if (kind == "cpu") {
    name.type = DeviceType::kCpu;
  } else if (kind != "gpu") {
    refuse(text, fmt::format("there are CPU and GPU, as in /GPU:0 or {}/device:GPU:0", kTask));
  }
  if (colon == std::string_view::npos) return name;
  const std::string_view digits = part.substr(colon + 1);
  const std::optional<int> ordinal = parse_ordinal(digits);
  if (!ordinal) refuse(text, fmt::format("'{}' is not a number of a device", digits));
  name.ordinal = *ordinal;
  return name;
}

}  // namespace

std::string DeviceName::text() const {
  return fmt::format("/device:{}:{}", word(type), ordinal);
}

std::string DeviceName::short_text() const {
  return fmt::format("/{}:{}", word(type), ordinal);
}

std::string DeviceName::full_text() const {
  return fmt::format("{}{}", kTask, text());
}

std::optional<int> parse_ordinal(std::string_view digits) {
  return digits.starts_with('-') ? std::nullopt : parse_number<int>(digits);
}

DeviceName parse_device_name(std::string_view text) {
  const std::string small = lowered(text);
  std::string_view rest = small;
  if (rest.starts_with('/')) rest.remove_prefix(1);
  // Parts of the task may be left out, but not be in another order.
  for (const std::string_view part : {"job:localhost", "replica:0", "task:0"}) {
    const std::string_view key = part.substr(0, part.find(':') + 1);
    if (!rest.starts_with(key)) continue;
    const size_t end = rest.find('/');
    if (rest.substr(0, end) != part) {
      refuse(text, fmt::format("this process is {}, and no other can be reached", kTask));
    }
    if (end == std::string_view::npos) refuse(text, "it names a task, but no device of it");
    rest.remove_prefix(end + 1);
  }
  constexpr std::string_view kDevice = "device:";
  if (rest.starts_with(kDevice)) rest.remove_prefix(kDevice.size());
  return parse_kind(rest, text);
}

}  // namespace headroom
