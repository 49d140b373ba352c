// headroom devices: the GPUs of the machine, however full they are and whether CUDA shows them or not, and
// the profiles that can be simulated.

#include "runtime/core/cuda/devices.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/core/bytes.h"
#include "runtime/core/errors.h"
#include "runtime/core/sim/profiles.h"
#include "runtime/option_set.h"
#include "tools/subcommands.h"

namespace headroom {
namespace {

std::string capability(int value) {
  return fmt::format("{}.{}", value / 10, value % 10);
}

// "2 GPUs, one of them visible; driver 580.65".
std::string verdict(const GpuList& list) {
  if (list.gpus.empty()) return list.problem;
  size_t visible = 0;
  for (const PhysicalGpu& gpu : list.gpus) visible += gpu.ordinal.has_value();
  return fmt::format("{} GPU{}, {} visible to CUDA; driver {}", list.gpus.size(),
                     list.gpus.size() == 1 ? "" : "s", visible, list.driver_version) +
         (list.problem.empty() ? "" : fmt::format(" ({})", list.problem));
}

void print_table(const GpuList& list) {
  fmt::print("{}\n", verdict(list));
  if (!list.gpus.empty()) {
    fmt::print("\nmemory in MiB\n{:>3}  {:<9} {:<28} {:>10} {:>9} {:>9} {:>9}  {:<16}  {}\n", "GPU",
               "--device", "name", "capability", "total", "used", "free", "PCI bus id", "UUID");
  }
  for (const PhysicalGpu& gpu : list.gpus) {
    fmt::print("{:>3}  {:<9} {:<28} {:>10} {:>9} {:>9} {:>9}  {:<16}  {}\n", gpu.index,
               gpu.ordinal ? fmt::format("cuda:{}", *gpu.ordinal) : "hidden", gpu.name,
               capability(gpu.compute_capability), format_mib(gpu.total_bytes), format_mib(gpu.used_bytes),
               format_mib(gpu.free_bytes), gpu.pci_bus_id, gpu.uuid);
  }
  fmt::print("\nsimulated, memory in MiB\n{:<16} {:>10} {:>9} {:>9}  {}\n", "--device", "capability", "total",
             "others", "description");
  for (const DeviceProfile& profile : device_profiles()) {
    fmt::print("{:<16} {:>10} {:>9} {:>9}  {}\n", "sim:" + profile.name,
               capability(profile.compute_capability), format_mib(profile.total_bytes),
               format_mib(profile.others_bytes), profile.description);
  }
  bool any_visible = false;
  for (const PhysicalGpu& gpu : list.gpus) any_visible = any_visible || gpu.ordinal.has_value();
  fmt::print("\nnext: train_mnist --device {}\n", any_visible ? "cuda" : "sim");
}

std::string to_json(const GpuList& list) {
  nlohmann::ordered_json json;
  json["driver_version"] = list.driver_version;
  json["problem"] = list.problem;
  json["gpus"] = nlohmann::ordered_json::array();
  for (const PhysicalGpu& gpu : list.gpus) {
    nlohmann::ordered_json row;
    row["index"] = gpu.index;
    row["device"] =
        gpu.ordinal ? nlohmann::ordered_json(fmt::format("cuda:{}", *gpu.ordinal)) : nlohmann::ordered_json();
    row["visible"] = gpu.ordinal.has_value();
    row["name"] = gpu.name;
    row["uuid"] = gpu.uuid;
    row["pci_bus_id"] = gpu.pci_bus_id;
    row["compute_capability"] = capability(gpu.compute_capability);
    row["total_bytes"] = gpu.total_bytes;
    row["used_bytes"] = gpu.used_bytes;
    row["free_bytes"] = gpu.free_bytes;
    json["gpus"].push_back(row);
  }
  json["simulated"] = nlohmann::ordered_json::array();
  for (const DeviceProfile& profile : device_profiles()) {
    nlohmann::ordered_json row;
    row["device"] = "sim:" + profile.name;
    row["description"] = profile.description;
    row["compute_capability"] = capability(profile.compute_capability);
    row["total_bytes"] = profile.total_bytes;
    row["others_bytes"] = profile.others_bytes;
    json["simulated"].push_back(row);
  }
  return json.dump(2);
}

}  // namespace

int run_devices(int argc, char** argv) {
  bool json = false;
  OptionSet set("headroom devices",
                "Lists the GPUs of this machine, however full they are, and those that can be simulated.");
  set.add_switch("json", "Print JSON, sizes in bytes", &json);
  set.set_examples(
      "  headroom devices                             what --device can name\n"
      "  CUDA_VISIBLE_DEVICES=1,2 headroom devices    GPUs 1 and 2 become cuda:0 and cuda:1\n"
      "  headroom devices --json | jq '.gpus[0].free_bytes'\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  const GpuList list = list_gpus();
  if (json) {
    fmt::print("{}\n", to_json(list));
  } else {
    print_table(list);
  }
  return kExitDone;
}

}  // namespace headroom
