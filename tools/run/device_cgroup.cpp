#include "tools/run/device_cgroup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace headroom {
namespace {

namespace fs = std::filesystem;

// The kernel takes one entry a write.
bool write_entry(const fs::path& file, const std::string& text) {
  std::ofstream output(file);
  output << text << std::flush;
  return output.good();
}

// The PCI addresses of the cards whose memory the driver lets the kernel count.
std::vector<std::string> cards_of(const fs::path& root) {
  constexpr std::string_view kPrefix = "nvidia/", kSuffix = "/vidmem";
  std::vector<std::string> cards;
  std::ifstream capacity(root / "dmem.capacity");
  for (std::string line; std::getline(capacity, line);) {
    const std::string region = line.substr(0, line.find(' '));
    if (!region.starts_with(kPrefix) || !region.ends_with(kSuffix)) continue;
    cards.push_back(region.substr(kPrefix.size(), region.size() - kPrefix.size() - kSuffix.size()));
  }
  return cards;
}

// The group of this process by /proc/self/cgroup: "user.slice/session-1.scope"; empty for the topmost.
fs::path own_group(const std::string& file) {
  std::ifstream input(file);
  for (std::string line; std::getline(input, line);) {
    if (line.starts_with("0::/")) return line.substr(4);
  }
  return {};
}

}  // namespace

std::optional<DeviceCgroup> DeviceCgroup::make(
    const std::function<std::optional<DeviceLimit>(const std::string&)>& limit_of, const std::string& root,
    const std::string& own) {
  std::vector<std::pair<std::string, DeviceLimit>> limits;
  for (const std::string& card : cards_of(root)) {
    if (const std::optional<DeviceLimit> limit = limit_of(card)) limits.emplace_back(card, *limit);
  }
  if (limits.empty()) return {};

  // A group has the controller if each group above it passes it on.
  const fs::path above = own_group(own).parent_path();
  fs::path folder = root;
  if (!write_entry(folder / "cgroup.subtree_control", "+dmem")) return {};
  for (const fs::path& part : above) {
    folder /= part;
    if (!write_entry(folder / "cgroup.subtree_control", "+dmem")) return {};
  }
  folder /= fmt::format("headroom-{}", getpid());
  std::error_code error;
  if (!fs::create_directory(folder, error)) return {};
  DeviceCgroup group(folder);
  for (const auto& [card, limit] : limits) {
    const std::string region = fmt::format("nvidia/{}/vidmem ", card);
    if (!write_entry(folder / "dmem.max", region + std::to_string(limit.most))) return {};
    if (limit.guaranteed > 0 && !write_entry(folder / "dmem.min", region + std::to_string(limit.guaranteed)))
      return {};
  }
  return group;
}

DeviceCgroup::DeviceCgroup(DeviceCgroup&& other) noexcept : path_(std::exchange(other.path_, {})) {}

DeviceCgroup::~DeviceCgroup() {
  if (!path_.empty()) rmdir(path_.c_str());
}

}  // namespace headroom
