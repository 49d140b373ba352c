#include "tools/repro/scenario.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"

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
  const auto found = std::ranges::find_if(figures, [&](const auto& figure) { return figure.first == name; });
  return found == figures.end() ? nullptr : &found->second;
}

void note_refusal(Measured& measured, std::string_view end, const std::function<void()>& act) {
  try {
    act();
    measured.add("outcome", "ok");
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    measured.add("outcome", "refused");
    measured.add("message", message.substr(0, message.find(end)));
    measured.lines.push_back(message);
  }
}

void note_room(Measured& measured, std::string name, const std::function<void()>& act) {
  try {
    act();
    measured.add(std::move(name), "ok");
  } catch (const OutOfMemory& error) {
    measured.add(std::move(name), "out_of_memory");
    measured.lines.emplace_back(error.what());
  }
}

}  // namespace headroom::repro
