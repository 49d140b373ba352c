// B: four 2080 Ti, some of them hidden or full; and the parts of A about several GPUs.

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/errors.h"
#include "device/gpus.h"
#include "device/host/simulated_gpu.h"
#include "tools/repro/runs.h"
#include "tools/workload/child.h"

namespace headroom::repro {
namespace {

std::string line_of(const Device& device, const MemoryInfo& info) {
  return fmt::format("{}  {}  {} total, {} free", device.name(), device.description(),
                     format_bytes(info.total), format_bytes(info.free));
}

// Lists the four; other processes hold the last two.
Measured list_simulated(bool initializes) {
  Measured measured;
  int64_t listed = 0;
  try {
    for (int ordinal = 0; ordinal < 4; ++ordinal) {
      DeviceProfile profile = find_profile(kFourCards);
      profile.others_bytes = ordinal < 2 ? 0 : profile.total_bytes;
      SimulatedGpu gpu(std::move(profile), ordinal);
      if (initializes) gpu.initialize();
      measured.lines.push_back(line_of(gpu, gpu.memory().info()));
      ++listed;
    }
    measured.add("outcome", "ok");
  } catch (const DeviceError& error) {
    measured.add("outcome", "library_failure");
    measured.add("message", error.what());
    measured.lines.emplace_back(error.what());
  }
  measured.add("listed", listed);
  return measured;
}

// This process fills the card, and another one starts on it.
Measured come_to_full_card(const Stage& stage) {
  const std::unique_ptr<Device> device = make_cuda_device({.ordinal = *cuda_ordinal(stage.device)});
  device->initialize();
  DeviceMemory& memory = device->memory();
  std::vector<std::pair<void*, int64_t>> blocks;
  for (int64_t bytes = round_up(memory.info().free, kGiB); bytes >= memory.granularity_bytes();) {
    if (void* block = memory.try_allocate(bytes)) {
      blocks.emplace_back(block, bytes);
    } else {
      bytes /= 2;
    }
  }
  Measured measured;
  if (stage.fixed) {
    const GpuList list = list_gpus();
    for (const PhysicalGpu& gpu : list.gpus) {
      measured.lines.push_back(fmt::format("{}  {} total, {} free", gpu.name, format_bytes(gpu.total_bytes),
                                           format_bytes(gpu.free_bytes)));
    }
    measured.add("outcome", list.gpus.empty() ? "nothing is listed" : "ok");
  } else {
    const Measurement child = measure_in_child({"--device", stage.device, "--net", "mlp", "--steps", "1"});
    measured.add("outcome", child.outcome);
    measured.add("message", child.error);
    measured.lines.push_back(child.error);
  }
  for (const auto& [pointer, bytes] : blocks) memory.release(pointer, bytes);
  return measured;
}

}  // namespace

Measured run_a8(const Stage& stage) {
  const Environment all_visible(kVisible, nullptr);
  Runtime runtime({.device = kFourGpus, .strategy = "grab-all"});
  runtime.set_memory_growth(0, true);
  if (stage.fixed) {
    for (int gpu = 1; gpu < 4; ++gpu) runtime.set_memory_growth(gpu, true);
  }
  Measured measured;
  note_refusal(measured, ":", [&] { runtime.device("/GPU:0"); });
  return measured;
}

Measured run_a9(const Stage&) {
  Runtime runtime({.device = fmt::format("sim:{}", kFourCards), .virtual_devices = "0:1GiB,1GiB"});
  Measured measured;
  measured.add("counts", count_line(runtime.devices()));
  Allocator& first = runtime.allocator("/GPU:0");
  Allocator& second = runtime.allocator("/GPU:1");
  void* all = first.allocate(kGiB);
  note_room(measured, "beyond_the_first", [&] { first.deallocate(first.allocate(kMiB), kMiB); });
  second.deallocate(second.allocate(kGiB), kGiB);
  measured.add("second_beside_it", "ok");
  first.deallocate(all, kGiB);
  return measured;
}

Measured run_b1(const Stage& stage) {
  const Environment visible(kVisible, "1,2");
  Runtime runtime({.device = kFourGpus});
  Measured measured;
  measured.lines = mapping_lines(runtime.devices());
  for (const std::string& line : measured.lines) {
    measured.add(fmt::format("mapping_{}", measured.figures.size()), line.substr(0, line.find(',')));
  }
  note_refusal(measured, ",", [&] { runtime.device(stage.fixed ? "/gpu:1" : "/gpu:2"); });
  return measured;
}

Measured run_b2(const Stage& stage) {
  return stage.is_sim() ? list_simulated(!stage.fixed) : come_to_full_card(stage);
}

Measured run_b4(const Stage& stage) {
  constexpr double kFraction = 0.4;
  Measured measured;
  for (const bool grows : {false, true}) {
    RuntimeOptions options = stage.card(kFourCards);
    options.strategy = "grab-all";
    options.memory_fraction = kFraction;
    options.allow_growth = grows;
    Runtime runtime(options);
    Allocator& pool = runtime.allocator();
    const int64_t total = runtime.memory_info().total;
    const int64_t most = pool.limit_bytes().value_or(total);
    if (!grows) {
      measured.add("pool_bytes", pool.statistics().reserved.current);
      measured.add("percent_of_device", (100 * most + total / 2) / total);
      continue;
    }
    measured.add("pool_at_start_with_growth_bytes", pool.statistics().reserved.current);
    const int64_t beyond = most + kMiB;
    note_room(measured, "beyond_the_fraction", [&] { pool.deallocate(pool.allocate(beyond), beyond); });
  }
  return measured;
}

Measured run_b5(const Stage&) {
  Measured measured;
  {
    const Environment two_visible(kVisible, "0,1");
    Runtime runtime({.device = kFourGpus});
    const int64_t limits[] = {kGiB, kGiB};
    runtime.set_virtual_devices(0, limits);
    measured.add("first_of_two_split", count_line(runtime.devices()));
    measured.lines = mapping_lines(runtime.devices());
  }
  const Environment all_visible(kVisible, nullptr);
  Runtime runtime({.device = kFourGpus});
  const int first[] = {0};
  runtime.set_visible_devices(first);
  measured.add("first_of_four_visible", count_line(runtime.devices()));
  return measured;
}

}  // namespace headroom::repro
