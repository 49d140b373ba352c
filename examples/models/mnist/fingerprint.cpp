#include "examples/models/mnist/fingerprint.h"

#include <fmt/format.h>
#include <zlib.h>

#include "runtime/base/bytes.h"
#include "runtime/base/files.h"

namespace headroom {

std::string fingerprint(std::span<const uint8_t> bytes) {
  const auto sum = crc32_z(crc32_z(0, nullptr, 0), bytes.data(), bytes.size());
  return fmt::format("{}:{:08x}", bytes.size(), sum);
}

std::string program_fingerprint() {
  const std::string file = read_file("/proc/self/exe", 4 * kGiB);
  return fingerprint({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
}

}  // namespace headroom
