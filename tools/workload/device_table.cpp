#include "tools/workload/device_table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/table.h"

namespace headroom {
namespace {

// Without peaks where the program fits on no device.
PlayedDevice device_of(const Prediction& prediction, size_t device) {
  return device < prediction.devices.size() ? prediction.devices[device] : PlayedDevice{};
}

}  // namespace

std::string device_table(const Traced& program, const Prediction& prediction, const Terminal& terminal) {
  if (program.devices.size() < 2) return {};
  Table table({{"device"},
               {.title = "variables", .is_number = true, .drop = 2},
               {.title = "a step", .is_number = true, .drop = 3},
               {.title = "allocated", .is_number = true, .drop = 4},
               {.title = "reserved", .is_number = true, .drop = 1},
               {.title = "process", .is_number = true}});
  for (size_t i = 0; i < program.devices.size(); ++i) {
    const TracedDevice& device = program.devices[i];
    const PlayedDevice played = device_of(prediction, i);
    const auto mib = [&](int64_t bytes) {
      return played.process_bytes > 0 ? format_mib(bytes) : std::string("-");
    };
    table.add({device.name, format_mib(device.variable_bytes), format_mib(device.step_bytes()),
               mib(played.statistics.allocated.peak), mib(played.statistics.reserved.peak),
               mib(played.process_bytes)});
  }
  std::string text = "\nin MiB\n" + table.text(terminal);
  if (program.copies > 0) {
    text += fmt::format("{} values are copied between devices in a step, {}\n", program.copies,
                        format_bytes(program.copied_bytes));
  }
  return text;
}

std::string devices_json(const Traced& program, const Prediction& prediction) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t i = 0; i < program.devices.size(); ++i) {
    const TracedDevice& device = program.devices[i];
    const PlayedDevice played = device_of(prediction, i);
    rows.push_back({{"name", device.name},
                    {"variable_bytes", device.variable_bytes},
                    {"step_bytes", device.step_bytes()},
                    {"peak_allocated_bytes", played.statistics.allocated.peak},
                    {"peak_reserved_bytes", played.statistics.reserved.peak},
                    {"process_bytes", played.process_bytes}});
  }
  return rows.dump();
}

}  // namespace headroom
