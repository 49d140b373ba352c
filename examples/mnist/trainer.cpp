#include "examples/mnist/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "examples/mnist/training.h"
#include "examples/mnist/training_graph.h"
#include "runtime/core/errors.h"
#include "runtime/play_program.h"
#include "runtime/replicas.h"

namespace headroom {
namespace {

void check(const TrainSettings& settings, const Dataset& training, const Dataset& test) {
  if (settings.batch < 1 || settings.batch > training.count) {
    throw InvalidArgument(
        fmt::format("batch {}: must be from 1 to the {} training images", settings.batch, training.count));
  }
  if (settings.epochs < 1)
    throw InvalidArgument(fmt::format("epochs {}: must be at least 1", settings.epochs));
  if (settings.loader_depth < 0 || settings.loader_depth == 1)
    throw InvalidArgument(fmt::format("loader depth {}: must be 0 or at least 2", settings.loader_depth));
  if (!(settings.learning_rate > 0) || !std::isfinite(settings.learning_rate)) {
    throw InvalidArgument(fmt::format("learning rate {}: must be above 0", settings.learning_rate));
  }
  if (!(settings.loss_scale > 0) || !std::isfinite(settings.loss_scale))
    throw InvalidArgument(fmt::format("loss scale {}: must be above 0", settings.loss_scale));
  if (test.count < 1) throw InvalidArgument("there are no test images");
  if (settings.replicas < 1)
    throw InvalidArgument(fmt::format("replicas {}: at least 1 is needed", settings.replicas));
  share_of_batch(settings.batch, settings.replicas);
  if (test.count < settings.replicas) {
    throw InvalidArgument(
        fmt::format("{} test images cannot be shared by {} replicas", test.count, settings.replicas));
  }
}

TrainResult result_for(const TrainSettings& settings, const Runtime& runtime) {
  TrainResult result;
  result.strategy = runtime.strategy().name;
  result.epochs = settings.epochs;
  result.batch = settings.batch;
  result.device = runtime.options().device;
  result.data_on = settings.data_on == DataOn::kDevice ? "device" : "host";
  result.kernels = settings.fused ? "fused" : "library";
  result.target_accuracy = settings.target_accuracy;
  result.math = math_names()[static_cast<size_t>(settings.math)];
  return result;
}

using OnStep = std::function<void(const StepReport&)>;

// One replica, with its failures in the result.
TrainResult train_one(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                      Runtime& runtime, const DeviceName& name, Collective* group, const OnStep& on_step) {
  TrainResult result = result_for(settings, runtime);
  const auto fail = [&](const char* outcome, const Error& error) {
    result.outcome = outcome;
    result.error = error.what();
  };
  try {
    train_replica(settings, training, test, runtime, name, group, on_step, result);
  } catch (const OutOfMemory& error) {
    fail("out_of_memory", error);
    result.memory = error.facts();
  } catch (const LibraryError& error) {
    fail("library_failure", error);
    result.memory = error.memory();
    result.log = error.log();
  } catch (const DeviceError& error) {  // a context or kernels that found no room
    fail("library_failure", error);
  } catch (const CollectiveError& error) {
    fail("replica_failure", error);
  }
  const MemoryInfo info = runtime.memory_info(name.text());
  result.peak_device_bytes = info.peak_used;
  result.peak_process_bytes = info.peak_process;
  const Statistics statistics = runtime.statistics(name.text());
  result.peak_reserved_bytes = statistics.reserved.peak;
  result.peak_allocated_bytes = statistics.allocated.peak;
  result.replicas.push_back({static_cast<const ReplicaFigures&>(result), name.short_text()});
  return result;
}

// What all replicas came to: of failures the one that the others are due to.
TrainResult merge(std::vector<TrainResult> results) {
  size_t chosen = 0;
  const auto is_cause = [](const TrainResult& r) {
    return r.outcome != "ok" && r.outcome != "replica_failure";
  };
  const auto cause = std::find_if(results.begin(), results.end(), is_cause);
  const auto failed =
      cause != results.end() ? cause : std::find_if(results.begin(), results.end(), [](const TrainResult& r) {
        return r.outcome != "ok";
      });
  if (failed != results.end()) chosen = static_cast<size_t>(failed - results.begin());
  TrainResult merged = results[chosen];
  if (merged.outcome != "ok") {
    merged.failed_rank = static_cast<int>(chosen);
    merged.error = fmt::format("{}: {}", name_replica(*merged.failed_rank), merged.error);
  }
  merged.replicas.clear();
  const auto raise = [](int64_t& to, int64_t bytes) { to = std::max(to, bytes); };
  for (const TrainResult& result : results) {
    raise(merged.peak_device_bytes, result.peak_device_bytes);
    raise(merged.peak_process_bytes, result.peak_process_bytes);
    raise(merged.peak_reserved_bytes, result.peak_reserved_bytes);
    raise(merged.peak_allocated_bytes, result.peak_allocated_bytes);
    raise(merged.optimizer_bytes, result.optimizer_bytes);
    merged.predicted_peak_bytes = std::max(merged.predicted_peak_bytes, result.predicted_peak_bytes);
    merged.replicas.push_back(result.replicas[0]);
    if (merged.outcome == "ok" && result.weights_checksum != merged.weights_checksum) {
      merged.outcome = "replica_failure";
      merged.error = fmt::format("the weights of {} and {} differ: {} and {}", merged.replicas[0].device,
                                 result.replicas[0].device, merged.weights_checksum, result.weights_checksum);
    }
  }
  return merged;
}

// A replica's result as it travels between processes of one program.
struct SentResult {
  int64_t peak_device_bytes, peak_process_bytes, peak_reserved_bytes, peak_allocated_bytes, optimizer_bytes;
  int64_t predicted_peak_bytes;  // negative: absent
  char weights_checksum[32], device[64], host[256];
};

// That of `rank`, on all ranks.
ReplicaResult result_of_rank(Collective& group, int rank, const ReplicaResult& own) {
  SentResult sent{own.peak_device_bytes,
                  own.peak_process_bytes,
                  own.peak_reserved_bytes,
                  own.peak_allocated_bytes,
                  own.optimizer_bytes,
                  own.predicted_peak_bytes.value_or(-1),
                  {},
                  {},
                  {}};
  std::strncpy(sent.weights_checksum, own.weights_checksum.c_str(), sizeof sent.weights_checksum - 1);
  std::strncpy(sent.device, own.device.c_str(), sizeof sent.device - 1);
  std::strncpy(sent.host, own.host.c_str(), sizeof sent.host - 1);
  group.broadcast(std::as_writable_bytes(std::span(&sent, 1)), rank);
  ReplicaResult result;
  result.peak_device_bytes = sent.peak_device_bytes;
  result.peak_process_bytes = sent.peak_process_bytes;
  result.peak_reserved_bytes = sent.peak_reserved_bytes;
  result.peak_allocated_bytes = sent.peak_allocated_bytes;
  result.optimizer_bytes = sent.optimizer_bytes;
  if (sent.predicted_peak_bytes >= 0) result.predicted_peak_bytes = sent.predicted_peak_bytes;
  result.weights_checksum = sent.weights_checksum;
  result.device = sent.device;
  result.host = sent.host;
  return result;
}

}  // namespace

TrainResult train(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                  Runtime& runtime, const OnStep& on_step) {
  check(settings, training, test);
  const std::vector<DeviceName> names = replica_devices(runtime, settings.replicas);
  if (names.size() == 1) return train_one(settings, training, test, runtime, names[0], nullptr, on_step);
  std::vector<TrainResult> results(names.size());
  run_replicas(settings.replicas, settings.collective_timeout,
               [&](int rank, std::unique_ptr<Collective> group) {
                 const auto i = static_cast<size_t>(rank);
                 results[i] = train_one(settings, training, test, runtime, names[i], group.get(), on_step);
               });
  return merge(std::move(results));
}

TrainResult train_rank(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                       Runtime& runtime, const std::string& host, Collective& group, const OnStep& on_step) {
  check(settings, training, test);
  TrainResult result =
      train_one(settings, training, test, runtime, default_device(runtime.options()), &group, on_step);
  result.replicas[0].host = host;
  if (result.outcome != "ok") return result;
  std::vector<TrainResult> results;
  for (int rank = 0; rank < group.size(); ++rank) {
    results.push_back(result);
    const ReplicaResult replica = result_of_rank(group, rank, result.replicas[0]);
    static_cast<ReplicaFigures&>(results.back()) = replica;
    results.back().replicas = {replica};
  }
  return merge(std::move(results));
}

void explain_failure(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                     Runtime& runtime, TrainResult& result) {
  // The twin on which changes are played has one device.
  if (!result.memory || !settings.placed.empty()) return;
  const int rank = result.failed_rank.value_or(0);
  RuntimeOptions options = runtime.options();
  MemoryInfo info = runtime.memory_info();
  if (result.failed_rank) {
    info = runtime.memory_info(DeviceName{DeviceType::kGpu, rank}.text());
    options = with_gpu(options, rank);
  }
  const Setting present{
      .device = twin_of(options, info), .options = options, .batch = settings.batch, .has_plan = true};
  const Play play = [&](const Setting& setting) {
    TrainSettings changed = settings;
    changed.batch = std::max<int64_t>(1, setting.batch / changed.replicas) * changed.replicas;
    const TrainingGraph net(changed, {training.count, test.count, steps_per_epoch(changed, training.count)},
                            rank);
    const Targets targets[] = {net.training_targets(), net.test_targets()};
    return play_program(net.graph, targets, setting);
  };
  result.report = explain_out_of_memory(*result.memory, present, play, result.error);
  if (!result.failed_rank) return;
  // The report tells of one device; the message that it is not the only one, and the changes are to all.
  if (result.memory->requested > 0) {
    result.report->message = fmt::format("{}: {}", name_replica(rank), result.report->message);
  }
  for (TriedChange& change : result.report->changes) change.setting.options.device = runtime.options().device;
}

}  // namespace headroom
