// headroom devices: the GPUs of the machine, also full and hidden ones, and the profiles that can be
// simulated.

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"
#include "device/gpus.h"
#include "device/host/profiles.h"
#include "runtime/app/option_set.h"
#include "runtime/app/options.h"
#include "sheet/writers.h"
#include "tools/subcommands.h"

namespace headroom {
namespace {

std::string capability(int value) {
  return fmt::format("{}.{}", value / 10, value % 10);
}

// The options of `headroom devices` and their results.
struct Listing {
  RuntimeOptions options;
  GpuList list;  // GPUs of the machine that the options name
  DeviceMap map;
};

bool is_real(const Listing& listing) {
  return cuda_ordinal(listing.options.device).has_value();
}

// "cuda:0", "sim:four-2080ti:2": the --device value of the first device on a GPU; nothing for a hidden one.
std::optional<std::string> device_option(const Listing& listing, int physical) {
  const auto& logical = listing.map.logical;
  const auto found =
      std::ranges::find_if(logical, [&](const LogicalGpu& gpu) { return gpu.physical == physical; });
  if (found == logical.end()) return std::nullopt;
  const std::string machine = is_real(listing) ? "cuda" : "sim:" + simulated_profile(listing.options)->name;
  return fmt::format("{}:{}", machine, found - logical.begin());
}

// The options that change the names of devices, for the next command.
std::string as_given(const RuntimeOptions& options) {
  std::string words;
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) words += fmt::format(" --{} {}", name, shell_word(value));
  };
  add("gpus", options.gpus > 0 ? fmt::format("{}", options.gpus) : "");
  add("visible-devices", options.visible_devices);
  add("virtual-devices", options.virtual_devices);
  return words;
}

// "2 Physical GPU, 3 Logical GPUs: driver 580.65, CUDA_VISIBLE_DEVICES=0,1".
std::string verdict(const Listing& listing) {
  const GpuList& list = listing.list;
  if (list.gpus.empty()) return list.problem;
  if (!list.problem.empty()) {
    return fmt::format("{} GPU{}, 0 visible to CUDA; driver {} ({})", list.gpus.size(),
                       list.gpus.size() == 1 ? "" : "s", list.driver_version, list.problem);
  }
  return fmt::format("{}: {}{}{}", count_line(listing.map),
                     is_real(listing) ? "driver " + list.driver_version : listing.options.device,
                     listing.map.hidden_by.empty() ? "" : ", ", listing.map.hidden_by);
}

void add_gpus(Sheet& sheet, const Listing& listing) {
  SheetTable& table = sheet.table({.key = "gpus",
                                   .caption = "memory in MiB",
                                   .columns = {{"GPU", "index", kNumber, 2},
                                               {"CUDA", "cuda_ordinal", kNumber, 6},
                                               {"--device", "device"},
                                               {{}, "visible"},
                                               {"name", "name", kWrappedText, 1},
                                               {"capability", "compute_capability", kVersion, 5},
                                               {"total", "total_bytes", kMib},
                                               {"used", "used_bytes", kMib, 3},
                                               {"free", "free_bytes", kMib},
                                               {"PCI bus id", "pci_bus_id", kText, 7},
                                               {"UUID", "uuid", kText, 8}}});
  int physical = 0;
  for (const PhysicalGpu& gpu : listing.list.gpus) {
    const std::optional<std::string> device = device_option(listing, physical++);
    table.add({gpu.index,
               {gpu.ordinal, shown_as(gpu.ordinal, kNumber)},
               {device, device.value_or("hidden")},
               device.has_value(),
               gpu.name,
               capability(gpu.compute_capability),
               gpu.total_bytes,
               gpu.used_bytes,
               gpu.free_bytes,
               gpu.pci_bus_id,
               gpu.uuid});
  }
}

void add_logical(Sheet& sheet, const DeviceMap& map) {
  const std::vector<std::string> lines = mapping_lines(map);
  SheetTable table{.key = "logical",
                   .columns = {{{}, "name"}, {{}, "gpu"}, {{}, "limit_bytes"}, {{}, "mapping"}}};
  if (!lines.empty()) sheet.heading({});
  for (size_t i = 0; i < lines.size(); ++i) {
    const LogicalGpu& gpu = map.logical[i];
    table.add({DeviceName{DeviceType::kGpu, static_cast<int>(i)}.full_text(),
               map.physical[static_cast<size_t>(gpu.physical)].index, gpu.limit_bytes, lines[i]});
    const std::string limit = gpu.limit_bytes ? ", limit: " + format_bytes(*gpu.limit_bytes) : "";
    sheet.fact(lines[i] + limit, 4);
  }
  sheet.table(std::move(table));
}

// People see the profiles beside real GPUs; programs always do.
void add_profiles(Sheet& sheet, bool shown) {
  SheetTable& table = sheet.table({.key = "simulated",
                                   .caption = "simulated, memory in MiB",
                                   .columns = {{"--device", "device"},
                                               {"GPUs", "gpus", kNumber, 3},
                                               {"capability", "compute_capability", kVersion, 5},
                                               {"total", "total_bytes", kMib},
                                               {"", "total_origin", kText, 6},
                                               {"context", "context_bytes", kMib, 2},
                                               {"", "context_origin", kText, 7},
                                               {"others", "others_bytes", kMib, 4},
                                               {"description", "description", kWrappedText, 1}}});
  for (const DeviceProfile& profile : device_profiles()) {
    table.add({"sim:" + profile.name, profile.gpus, capability(profile.compute_capability),
               profile.total_bytes, to_string(profile.total_origin), profile.context_bytes,
               to_string(profile.context_origin), profile.others_bytes, profile.description});
  }
  if (!shown) table.hide();
}

Sheet to_sheet(const Listing& listing) {
  Sheet sheet;
  sheet.verdict(verdict(listing));
  sheet.set("driver_version", listing.list.driver_version);
  sheet.set("problem", listing.list.problem);
  sheet.set("hidden_by", listing.map.hidden_by);
  sheet.set("counts", count_line(listing.map));
  add_gpus(sheet, listing);
  add_logical(sheet, listing.map);
  add_profiles(sheet, is_real(listing));
  const auto& logical = listing.map.logical;
  sheet.next = {
      {"train_mnist --device " +
       (logical.empty() ? "sim"
                        : *device_option(listing, logical.front().physical) + as_given(listing.options))}};
  return sheet;
}

Listing list_devices(const RuntimeOptions& options) {
  Listing listing{options, {}, {}};
  if (is_real(listing)) listing.list = list_gpus();
  const bool is_cut = !options.visible_devices.empty() || !options.virtual_devices.empty();
  if (!is_real(listing) || listing.list.problem.empty() || is_cut) {
    listing.map = find_devices(options);
    listing.list.gpus = listing.map.physical;
    // A given number must be a device's; without one an empty list is no error.
    const DeviceName named = default_device(options);
    if (named.ordinal > 0) listing.map.find(named);
  }
  return listing;
}

}  // namespace

int run_devices(int argc, char** argv) {
  RuntimeOptions options;
  options.device = "cuda";
  bool json = false;
  OptionSet set("headroom devices",
                "Lists the GPUs of the machine, even full ones, and the names that programs use for them.");
  add_device_options(set, options);
  set.add_switch("json", "Print JSON, sizes in bytes", &json);
  set.set_examples(
      "  headroom devices                             GPUs of this machine, and simulated ones\n"
      "  CUDA_VISIBLE_DEVICES=1,2 headroom devices    GPUs 1 and 2 become cuda:0 and cuda:1\n"
      "  headroom devices --device sim:four-2080ti --visible-devices 1,2\n"
      "  headroom devices --device sim --gpus 2 --virtual-devices 0:512MiB,512MiB\n"
      "  headroom devices --json | jq '.gpus[0].free_bytes'\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (options.device == "cpu") throw InvalidArgument("devices lists GPUs: name cuda or a simulated machine");
  const Listing listing = list_devices(options);
  print(to_sheet(listing), json, set.terminal());
  return kExitDone;
}

}  // namespace headroom
