// Apart from options.cpp: a program that only reads options needs no GPU library.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>

#include "base/errors.h"
#include "base/text.h"
#include "device/gpus.h"
#include "device/host/cpu_device.h"
#include "device/host/simulated_gpu.h"
#include "runtime/app/options.h"

namespace headroom {
namespace {

constexpr int kMaxThreadsOfVariable = 1024;

// CPUs that this process may run on.
int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// The number at the start of the environment variable, as CUDA's driver and TensorFlow read theirs; 0 without
// one.
long number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtol(text, nullptr, 10);
}

// Returns the option, otherwise TensorFlow's variable, otherwise `default_value`.
int threads_of(int64_t option, const char* variable, int default_value) {
  if (option > 0) return static_cast<int>(option);
  const long set = number_in(variable);
  return set > 0 ? static_cast<int>(std::min<long>(set, kMaxThreadsOfVariable)) : default_value;
}

// The GPUs of the machine that the options name; none for the CPU.
std::vector<PhysicalGpu> find_gpus(const RuntimeOptions& options) {
  if (const std::optional<DeviceProfile> profile = simulated_profile(options)) {
    return simulated_gpus(*profile, parse_gpu_sizes(options.others_by_gpu, "others-by-gpu"),
                          std::getenv("CUDA_VISIBLE_DEVICES"));
  }
  if (!options.others_by_gpu.empty() || options.gpus > 0) {
    throw InvalidArgument("gpus and others-by-gpu change a simulated machine; this machine is real");
  }
  if (cuda_ordinal(options.device)) {
    if (options.context_bytes) {
      throw InvalidArgument("context applies to a simulated GPU only");
    }
    if (options.check_streams) {
      throw InvalidArgument("check-streams checks the streams of a simulated GPU; this one is real");
    }
    GpuList list = list_gpus();
    if (!list.problem.empty()) throw InvalidArgument(list.problem);
    return std::move(list.gpus);
  }
  if (options.device != "cpu") {
    const std::vector<std::string> names = device_names();
    const std::vector<std::string_view> known(names.begin(), names.end());
    throw InvalidArgument(fmt::format("unknown device '{}'; known: {}", options.device,
                                      list_with_suggestion(options.device, known)));
  }
  if (options.device_memory_bytes || options.others_bytes || options.context_bytes) {
    throw InvalidArgument("device-memory, others and context change a GPU; the device is 'cpu'");
  }
  if (options.check_streams) {
    throw InvalidArgument("check-streams checks the streams of a simulated GPU; the device is 'cpu'");
  }
  return {};
}

}  // namespace

CpuThreads cpu_threads(const RuntimeOptions& options) {
  return {threads_of(options.intra_op_threads, "TF_NUM_INTRAOP_THREADS", usable_cpus()),
          threads_of(options.inter_op_threads, "TF_NUM_INTEROP_THREADS", 1)};
}

std::unique_ptr<Device> make_cpu(const RuntimeOptions& options) {
  return std::make_unique<CpuDevice>(std::nullopt, cpu_threads(options));
}

DeviceMap find_devices(const RuntimeOptions& options) {
  std::optional<std::vector<int>> wanted;
  if (!options.visible_devices.empty()) {
    wanted = parse_gpu_numbers(options.visible_devices, "visible-devices");
  }
  return find_devices(options, wanted, parse_gpu_sizes(options.virtual_devices, "virtual-devices"));
}

DeviceMap find_devices(const RuntimeOptions& options, const std::optional<std::vector<int>>& wanted,
                       std::span<const GpuSizes> virtual_limits) {
  std::vector<PhysicalGpu> gpus = find_gpus(options);
  if (gpus.empty() && (wanted || !virtual_limits.empty())) {
    throw InvalidArgument(
        fmt::format("visible and virtual devices are GPUs; the device is '{}'", options.device));
  }
  const bool all_shown =
      std::ranges::all_of(gpus, [](const PhysicalGpu& gpu) { return gpu.ordinal.has_value(); });
  DeviceMap map = make_device_map(std::move(gpus), wanted, virtual_limits);
  const char* const variable = std::getenv("CUDA_VISIBLE_DEVICES");
  if (variable != nullptr && !all_shown) {
    map.hidden_by = fmt::format("CUDA_VISIBLE_DEVICES={}{}{}", variable, map.hidden_by.empty() ? "" : ", ",
                                map.hidden_by);
  }
  return map;
}

std::unique_ptr<Device> make_gpu(const RuntimeOptions& options, const DeviceMap& map, int physical,
                                 Backing backing) {
  const PhysicalGpu& gpu = map.physical[static_cast<size_t>(physical)];
  const auto first = std::ranges::find_if(
      map.logical, [&](const LogicalGpu& logical) { return logical.physical == physical; });
  const std::string name = DeviceName{DeviceType::kGpu, static_cast<int>(first - map.logical.begin())}.text();
  if (std::optional<DeviceProfile> profile = simulated_profile(options)) {
    profile->others_bytes = gpu.used_bytes;
    auto simulated = std::make_unique<SimulatedGpu>(std::move(*profile), *gpu.ordinal, backing, name,
                                                    cpu_threads(options).intra_op);
    simulated->streams().set_blocking(number_in("CUDA_LAUNCH_BLOCKING") != 0);
    if (options.check_streams) simulated->streams().check_waits();
    return simulated;
  }
  return make_cuda_device({*gpu.ordinal, name, options.device_memory_bytes, options.others_bytes});
}

void settle_strategy(RuntimeOptions& options, Device& device) {
  const bool is_default = !options.strategy_is_given && options.strategy == RuntimeOptions{}.strategy;
  if (is_default && device.memory().virtual_memory() == nullptr) options.strategy = kGrowingStrategy;
}

std::unique_ptr<Device> make_device(const RuntimeOptions& options, Backing backing) {
  const DeviceMap map = find_devices(options);
  if (map.physical.empty()) return make_cpu(options);
  return make_gpu(options, map, map.find(default_device(options)).physical, backing);
}

}  // namespace headroom
