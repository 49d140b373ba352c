#include "examples/models/mnist/fingerprint.h"

#include <fmt/format.h>
#include <zlib.h>

#include "base/bytes.h"
#include "base/files.h"

namespace headroom {

std::string list_differences(const Fingerprint& own, const Fingerprint& other, std::string_view where) {
  std::string text;
  for (const auto& [name, value] : own) {
    const auto found = other.find(name);
    if (found != other.end() && found->second == value) continue;
    text += fmt::format("{}{} is {}, {} {}", text.empty() ? "" : "; ", name, value, where,
                        found == other.end() ? "missing" : found->second);
  }
  return text;
}

std::string checksum(std::span<const uint8_t> bytes) {
  const auto sum = crc32_z(crc32_z(0, nullptr, 0), bytes.data(), bytes.size());
  return fmt::format("{}:{:08x}", bytes.size(), sum);
}

std::string program_checksum() {
  const std::string file = read_file("/proc/self/exe", 4 * kGiB);
  return checksum({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
}

}  // namespace headroom
