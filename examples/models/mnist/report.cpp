#include "examples/models/mnist/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/bytes.h"

namespace headroom {

namespace {

std::string describe_replicas(const TrainResult& result) {
  std::string text =
      fmt::format("\n\npeaks in MiB\n{:<10} {:>10} {:>10} {:>10} {:>10} {:>10}   {}\n", "replica", "device",
                  "reserved", "allocated", "predicted", "optimizer", "weights");
  for (const ReplicaResult& r : result.replicas) {
    const std::string name = r.host.empty() ? r.device : fmt::format("{} {}", r.host, r.device);
    text +=
        fmt::format("{:<10} {:>10} {:>10} {:>10} {:>10} {:>10}   {}\n", name, format_mib(r.peak_device_bytes),
                    format_mib(r.peak_reserved_bytes), format_mib(r.peak_allocated_bytes),
                    r.predicted_peak_bytes ? format_mib(*r.predicted_peak_bytes) : "-",
                    format_mib(r.optimizer_bytes), r.weights_checksum);
  }
  text.pop_back();
  return text;
}

std::string describe_devices(const TrainResult& result) {
  std::string text = fmt::format("\n\npeaks in MiB\n{:<10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "device",
                                 "device", "process", "reserved", "allocated", "predicted");
  for (const DeviceResult& d : result.devices) {
    text += fmt::format("{:<10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", d.device,
                        format_mib(d.peak_device_bytes), format_mib(d.peak_process_bytes),
                        format_mib(d.peak_reserved_bytes), format_mib(d.peak_allocated_bytes),
                        d.predicted_peak_bytes ? format_mib(*d.predicted_peak_bytes) : "-");
  }
  text.pop_back();
  return text;
}

// For failures of a collective, which no memory strategy causes.
std::string advise_replicas(const TrainResult& result) {
  // Only replicas that finished have a checksum.
  const bool have_finished = std::all_of(result.replicas.begin(), result.replicas.end(),
                                         [](const ReplicaResult& r) { return !r.weights_checksum.empty(); });
  if (have_finished && result.replicas.size() > 1)
    return "leave out the GPU that computes other results with --visible-devices";
  if (result.call.starts_with("nccl") || result.sums == "nccl")
    return "set NCCL_DEBUG=INFO for more output of NCCL";
  return "raise --collective-timeout for a slow replica; --checkpoint-every and --resume limit what a lost "
         "replica costs";
}

}  // namespace

std::string describe(const TrainResult& result) {
  std::string text;
  for (const std::string& line : result.log) text += fmt::format("  {}\n", line);
  if (result.outcome != RunOutcome::kOk) {
    return result.report ? fmt::format("{}: {}{}", to_string(result.outcome), to_text(*result.report), text)
                         : text + fmt::format("{}: {}\n", to_string(result.outcome), result.error);
  }
  text += fmt::format("test accuracy {:.2f} %, loss {:.4f}, ", 100 * result.test_accuracy, result.final_loss);
  text += result.steps == 0 ? "no steps left to train\n"
                            : fmt::format("{:.2f} ms per step, {:.0f} images/s\n",
                                          1e3 * result.seconds_per_step, result.images_per_second);
  if (result.target_accuracy) {
    const std::string when =
        result.seconds_to_target
            ? fmt::format("reached {:.2f} s after the start of the program", *result.seconds_to_target)
            : "not reached";
    text += fmt::format("target of {:.2f} %: {}\n", 100 * *result.target_accuracy, when);
  }
  text += fmt::format("peak: {} on the device, {} of it this process; {} reserved, {} allocated",
                      format_bytes(result.peak_device_bytes), format_bytes(result.peak_process_bytes),
                      format_bytes(result.peak_reserved_bytes), format_bytes(result.peak_allocated_bytes));
  if (result.predicted_peak_bytes)
    text += fmt::format(" (predicted {})", format_bytes(*result.predicted_peak_bytes));
  if (result.replicas.size() > 1) {
    text += describe_replicas(result);
  } else if (result.devices.size() > 1) {
    text += describe_devices(result);
  }
  text += "\n\nlabel   predicted\n      ";
  for (int i = 0; i < Dataset::kClasses; ++i) text += fmt::format("{:>6}", i);
  for (size_t label = 0; label < result.confusion.size(); ++label) {
    text += fmt::format("\n{:>5} ", label);
    for (int64_t count : result.confusion[label]) text += count == 0 ? "     ." : fmt::format("{:>6}", count);
  }
  return text + "\n";
}

std::string advice(const TrainResult& result, const Runtime& runtime) {
  if (result.outcome == RunOutcome::kReplicaFailure || result.call.starts_with("nccl"))
    return advise_replicas(result);
  const StrategySettings& strategy = runtime.strategy();
  const TriedChange* change = result.report ? result.report->smallest() : nullptr;
  if (change != nullptr && change->kind == ChangeKind::kDevice) {
    return fmt::format("{}, or free as much in other processes: headroom devices", change->what);
  }
  if (result.report && result.report->reproduced && change == nullptr) {
    const std::string& virtual_devices = runtime.options().virtual_devices;
    return virtual_devices.empty() ? "headroom predict shows what takes the memory"
                                   : fmt::format("more memory than --virtual-devices {}", virtual_devices);
  }
  if (result.outcome == RunOutcome::kLibraryFailure) {
    if (takes_all_free_memory(strategy)) {
      return fmt::format(
          "the pool leaves the library too little: {}--strategy allow-growth, or --strategy hard-limit "
          "--limit 1GiB",
          runtime.options().libraries_first ? "" : "--libraries-first, ");
    }
    const bool has_context = result.peak_process_bytes > 0;
    if (strategy.limit_bytes && has_context) {
      return fmt::format("leave the library more memory: a limit below {}",
                         format_bytes(*strategy.limit_bytes));
    }
    if (strategy.memory_fraction && has_context) {
      return fmt::format("leave the library more memory: a memory fraction below {}",
                         *strategy.memory_fraction);
    }
    return result.peak_device_bytes > result.peak_process_bytes
               ? "other processes hold the memory that the library needs: free it, or use a larger device"
               : "context, libraries and kernels need more than this device has: use a larger device";
  }
  if (result.outcome == RunOutcome::kOutOfMemory) {
    const std::string batch =
        result.batch > 1 ? fmt::format("--batch {}", result.batch / 2) : "a larger device";
    if (strategy.limit_bytes)
      return fmt::format("a limit above {}, or {}", format_bytes(*strategy.limit_bytes), batch);
    if (strategy.memory_fraction && *strategy.memory_fraction < 1)
      return fmt::format("a memory fraction above {}, or {}", *strategy.memory_fraction, batch);
    return batch;
  }
  if (runtime.options().plan != PlanMode::kPacked) return "--plan packed allocates nothing in a step";
  return "--save FILE keeps the weights";
}

}  // namespace headroom
