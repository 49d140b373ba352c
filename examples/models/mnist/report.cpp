#include "examples/models/mnist/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/table.h"

namespace headroom {

namespace {

std::string predicted_mib(const DeviceFigures& figures) {
  return figures.predicted_peak_bytes ? format_mib(*figures.predicted_peak_bytes) : "-";
}

std::string replica_table(const TrainResult& result, const Terminal& terminal) {
  Table table({{"replica"},
               {.title = "device", .is_number = true},
               {.title = "reserved", .is_number = true},
               {.title = "allocated", .is_number = true, .drop = 1},
               {.title = "predicted", .is_number = true, .drop = 2},
               {.title = "optimizer", .is_number = true, .drop = 4},
               {.title = "weights", .drop = 3}});
  for (const ReplicaResult& r : result.replicas) {
    table.add({r.host.empty() ? r.device : fmt::format("{} {}", r.host, r.device),
               format_mib(r.peak_device_bytes), format_mib(r.peak_reserved_bytes),
               format_mib(r.peak_allocated_bytes), predicted_mib(r), format_mib(r.optimizer_bytes),
               r.weights_checksum});
  }
  return "\n" + table.text(terminal);
}

std::string device_table(const TrainResult& result, const Terminal& terminal) {
  Table table({{"device"},
               {.title = "device", .is_number = true},
               {.title = "process", .is_number = true, .drop = 3},
               {.title = "reserved", .is_number = true},
               {.title = "allocated", .is_number = true, .drop = 1},
               {.title = "predicted", .is_number = true, .drop = 2}});
  for (const DeviceResult& d : result.devices) {
    table.add({d.device, format_mib(d.peak_device_bytes), format_mib(d.peak_process_bytes),
               format_mib(d.peak_reserved_bytes), format_mib(d.peak_allocated_bytes), predicted_mib(d)});
  }
  return "\n" + table.text(terminal);
}

// Labels by row, predictions by column.
std::string confusion_table(const TrainResult& result, const Terminal& terminal) {
  std::vector<TableColumn> columns = {{"label"}};
  for (int i = 0; i < Dataset::kClasses; ++i) {
    columns.push_back({.title = fmt::format("{}", i), .is_number = true});
  }
  Table table(std::move(columns));
  for (size_t label = 0; label < result.confusion.size(); ++label) {
    std::vector<TableCell> row = {fmt::format("{}", label)};
    for (const int64_t count : result.confusion[label]) {
      row.emplace_back(count == 0 ? "." : fmt::format("{}", count));
      if (count > 0 && row.size() != label + 2) row.back().color = Color::kRed;
    }
    table.add(std::move(row));
  }
  return "\nimages by label and predicted class\n" + table.text(terminal);
}

// For failures of a collective, which no memory strategy causes.
std::string advise_replicas(const TrainResult& result) {
  // Only replicas that finished have a checksum.
  const bool have_finished = std::ranges::all_of(
      result.replicas, [](const ReplicaResult& r) { return !r.weights_checksum.empty(); });
  if (have_finished && result.replicas.size() > 1)
    return "leave out the GPU that computes other results with --visible-devices";
  if (result.call.starts_with("nccl") || result.sums == "nccl")
    return "set NCCL_DEBUG=INFO for more output of NCCL";
  return "raise --collective-timeout for a slow replica; --checkpoint-every and --resume limit what a lost "
         "replica costs";
}

}  // namespace

std::string report_text(const TrainResult& result, bool verbose, const Terminal& terminal) {
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
  std::string peak =
      fmt::format("peak: {} on the device, {} of it this process; {} reserved, {} allocated",
                  format_bytes(result.peak_device_bytes), format_bytes(result.peak_process_bytes),
                  format_bytes(result.peak_reserved_bytes), format_bytes(result.peak_allocated_bytes));
  if (result.predicted_peak_bytes)
    peak += fmt::format(" (predicted {})", format_bytes(*result.predicted_peak_bytes));
  text += terminal.wrapped(peak) + "\n";
  if (result.devices.size() > 1) text += "\npeaks in MiB";
  if (result.devices.size() > result.replicas.size()) text += device_table(result, terminal);
  if (result.replicas.size() > 1) text += replica_table(result, terminal);
  return verbose ? text + confusion_table(result, terminal) : text;
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
    return virtual_devices.empty() ? "headroom predict shows what uses the memory"
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
