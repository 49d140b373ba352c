#include "tools/workload/device_table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/base/bytes.h"

namespace headroom {

std::string describe_devices(const Prediction& prediction) {
  if (prediction.devices.size() < 2) return {};
  std::string text = fmt::format("\nin MiB\n{:<16} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "device",
                                 "variables", "a step", "allocated", "reserved", "process");
  for (const DevicePrediction& device : prediction.devices) {
    text += fmt::format("{:<16} {:>10} {:>10}", device.name, format_mib(device.variable_bytes),
                        format_mib(device.step_bytes));
    const PeakPrediction& peak = device.peak;
    for (int64_t bytes : {peak.allocated_bytes, peak.reserved_bytes, peak.process_bytes}) {
      text += fmt::format(" {:>10}", peak.process_bytes > 0 ? format_mib(bytes) : "-");
    }
    text += '\n';
  }
  if (prediction.copies > 0) {
    text += fmt::format("{} values are copied between devices in a step, {}\n", prediction.copies,
                        format_bytes(prediction.copied_bytes));
  }
  return text;
}

std::string devices_json(const Prediction& prediction) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const DevicePrediction& device : prediction.devices) {
    rows.push_back({{"name", device.name},
                    {"variable_bytes", device.variable_bytes},
                    {"step_bytes", device.step_bytes},
                    {"peak_allocated_bytes", device.peak.allocated_bytes},
                    {"peak_reserved_bytes", device.peak.reserved_bytes},
                    {"process_bytes", device.peak.process_bytes}});
  }
  return rows.dump();
}

}  // namespace headroom
