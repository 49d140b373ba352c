#include <fmt/format.h>

#include <algorithm>

#include "tools/repro/scenario.h"

namespace headroom::repro {

RuntimeOptions Stage::card(std::string_view profile) const {
  RuntimeOptions options;
  if (is_sim()) {
    options.device = fmt::format("sim:{}", profile);
    return options;
  }
  const DeviceProfile& like = find_profile(profile);
  options.device = device;
  options.device_memory_bytes = like.total_bytes;
  options.others_bytes = like.others_bytes;
  return options;
}

const Measured::Figure* Measured::find(std::string_view name) const {
  const auto found =
      std::find_if(figures.begin(), figures.end(), [&](const auto& figure) { return figure.first == name; });
  return found == figures.end() ? nullptr : &found->second;
}

}  // namespace headroom::repro
