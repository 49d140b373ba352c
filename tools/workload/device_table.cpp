#include "tools/workload/device_table.h"

#include <fmt/format.h>

#include <utility>

#include "base/bytes.h"

namespace headroom {

void add_devices(std::string key, const Traced& program, const Prediction& prediction, Sheet& sheet) {
  SheetTable table{.key = std::move(key),
                   .caption = "in MiB",
                   .columns = {{"device", "name"},
                               {"variables", "variable_bytes", kMib, 2},
                               {"a step", "step_bytes", kMib, 3},
                               {"allocated", "peak_allocated_bytes", kMib, 4},
                               {"reserved", "peak_reserved_bytes", kMib, 1},
                               {"process", "process_bytes", kMib}}};
  for (size_t i = 0; i < program.devices.size(); ++i) {
    const TracedDevice& device = program.devices[i];
    // A program that fits on no device has no peaks.
    const bool is_known = i < prediction.devices.size();
    const PlayedDevice played = is_known ? prediction.devices[i] : PlayedDevice{};
    const auto peak = [&](int64_t bytes) { return is_known ? Cell(bytes) : Cell(bytes, "-"); };
    table.add({device.name, device.variable_bytes, device.step_bytes(),
               peak(played.statistics.allocated.peak), peak(played.statistics.reserved.peak),
               peak(played.process_bytes)});
  }
  const bool is_shown = program.devices.size() > 1;
  if (!is_shown) table.hide();
  sheet.table(std::move(table));
  if (prediction.total_is_most)
    sheet.note(
        "process: the most that it can be, as replicas that share a GPU may reach their peaks together");
  if (is_shown && program.copies > 0) {
    sheet.note(fmt::format("{} values are copied between devices in a step, {}", program.copies,
                           format_bytes(program.copied_bytes)));
  }
}

}  // namespace headroom
