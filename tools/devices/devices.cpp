// headroom devices: the GPUs of the machine, also full and hidden ones, and the profiles that can be
// simulated.

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/table.h"
#include "base/text.h"
#include "device/gpus.h"
#include "device/host/profiles.h"
#include "runtime/app/option_set.h"
#include "runtime/app/options.h"
#include "tools/subcommands.h"

namespace headroom {
namespace {

std::string capability(int value) {
  return fmt::format("{}.{}", value / 10, value % 10);
}

// The options of `headroom devices` and what was found.
struct Listing {
  RuntimeOptions options;
  GpuList list;  // of the machine that the options name
  DeviceMap map;
};

bool is_real(const Listing& listing) {
  return cuda_ordinal(listing.options.device).has_value();
}

// "cuda:0", "sim:four-2080ti:2": the --device value of the first device on a GPU; nothing for a hidden one.
std::optional<std::string> device_option(const Listing& listing, int physical) {
  const auto& logical = listing.map.logical;
  const auto found = std::find_if(logical.begin(), logical.end(),
                                  [&](const LogicalGpu& gpu) { return gpu.physical == physical; });
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

void print_simulated(const Terminal& terminal) {
  Table table({{"--device"},
               {.title = "GPUs", .is_number = true, .drop = 3},
               {.title = "capability", .is_number = true, .drop = 5},
               {.title = "total", .is_number = true},
               {.title = "", .drop = 6},
               {.title = "context", .is_number = true, .drop = 2},
               {.title = "", .drop = 7},
               {.title = "others", .is_number = true, .drop = 4},
               {.title = "description", .drop = 1, .wraps = true}});
  for (const DeviceProfile& profile : device_profiles()) {
    table.add({"sim:" + profile.name, fmt::format("{}", profile.gpus), capability(profile.compute_capability),
               format_mib(profile.total_bytes), to_string(profile.total_origin),
               format_mib(profile.context_bytes), to_string(profile.context_origin),
               format_mib(profile.others_bytes), profile.description});
  }
  fmt::print("\nsimulated, memory in MiB\n{}", table.text(terminal));
}

void print_table(const Listing& listing, const Terminal& terminal) {
  fmt::print("{}\n", terminal.wrapped(verdict(listing)));
  const GpuList& list = listing.list;
  Table table({{.title = "GPU", .is_number = true, .drop = 2},
               {.title = "CUDA", .is_number = true, .drop = 6},
               {"--device"},
               {.title = "name", .drop = 1, .wraps = true},
               {.title = "capability", .is_number = true, .drop = 5},
               {.title = "total", .is_number = true},
               {.title = "used", .is_number = true, .drop = 3},
               {.title = "free", .is_number = true},
               {.title = "PCI bus id", .drop = 7},
               {.title = "UUID", .drop = 8}});
  for (size_t i = 0; i < list.gpus.size(); ++i) {
    const PhysicalGpu& gpu = list.gpus[i];
    table.add({fmt::format("{}", gpu.index), gpu.ordinal ? fmt::format("{}", *gpu.ordinal) : "-",
               device_option(listing, static_cast<int>(i)).value_or("hidden"), gpu.name,
               capability(gpu.compute_capability), format_mib(gpu.total_bytes), format_mib(gpu.used_bytes),
               format_mib(gpu.free_bytes), gpu.pci_bus_id, gpu.uuid});
  }
  if (!table.empty()) fmt::print("\nmemory in MiB\n{}", table.text(terminal));
  const std::vector<std::string> lines = mapping_lines(listing.map);
  if (!lines.empty()) fmt::print("\n");
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::optional<int64_t> limit = listing.map.logical[i].limit_bytes;
    const std::string text = lines[i] + (limit ? fmt::format(", limit: {}", format_bytes(*limit)) : "");
    fmt::print("{}\n", terminal.wrapped(text, 4));
  }
  if (is_real(listing)) print_simulated(terminal);
  fmt::print("\nnext: train_mnist --device {}\n",
             listing.map.logical.empty()
                 ? "sim"
                 : *device_option(listing, listing.map.logical.front().physical) + as_given(listing.options));
}

std::string to_json(const Listing& listing) {
  const GpuList& list = listing.list;
  const auto text_or_null = [](const std::optional<std::string>& text) {
    return text ? nlohmann::ordered_json(*text) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json json;
  json["driver_version"] = list.driver_version;
  json["problem"] = list.problem;
  json["hidden_by"] = listing.map.hidden_by;
  json["counts"] = count_line(listing.map);
  json["gpus"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < list.gpus.size(); ++i) {
    const PhysicalGpu& gpu = list.gpus[i];
    const std::optional<std::string> device = device_option(listing, static_cast<int>(i));
    nlohmann::ordered_json row;
    row["index"] = gpu.index;
    row["device"] = text_or_null(device);
    row["visible"] = device.has_value();
    row["cuda_ordinal"] = gpu.ordinal ? nlohmann::ordered_json(*gpu.ordinal) : nlohmann::ordered_json();
    row["name"] = gpu.name;
    row["uuid"] = gpu.uuid;
    row["pci_bus_id"] = gpu.pci_bus_id;
    row["compute_capability"] = capability(gpu.compute_capability);
    row["total_bytes"] = gpu.total_bytes;
    row["used_bytes"] = gpu.used_bytes;
    row["free_bytes"] = gpu.free_bytes;
    json["gpus"].push_back(row);
  }
  json["logical"] = nlohmann::ordered_json::array();
  const std::vector<std::string> lines = mapping_lines(listing.map);
  for (size_t i = 0; i < lines.size(); ++i) {
    const LogicalGpu& gpu = listing.map.logical[i];
    nlohmann::ordered_json row;
    row["name"] = DeviceName{DeviceType::kGpu, static_cast<int>(i)}.full_text();
    row["gpu"] = listing.map.physical[static_cast<size_t>(gpu.physical)].index;
    row["limit_bytes"] =
        gpu.limit_bytes ? nlohmann::ordered_json(*gpu.limit_bytes) : nlohmann::ordered_json();
    row["mapping"] = lines[i];
    json["logical"].push_back(row);
  }
  json["simulated"] = nlohmann::ordered_json::array();
  for (const DeviceProfile& profile : device_profiles()) {
    nlohmann::ordered_json row;
    row["device"] = "sim:" + profile.name;
    row["description"] = profile.description;
    row["gpus"] = profile.gpus;
    row["compute_capability"] = capability(profile.compute_capability);
    row["total_bytes"] = profile.total_bytes;
    row["total_origin"] = to_string(profile.total_origin);
    row["context_bytes"] = profile.context_bytes;
    row["context_origin"] = to_string(profile.context_origin);
    row["others_bytes"] = profile.others_bytes;
    json["simulated"].push_back(row);
  }
  return json.dump(2);
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
  if (json) {
    fmt::print("{}\n", to_json(listing));
  } else {
    print_table(listing, set.terminal());
  }
  return kExitDone;
}

}  // namespace headroom
