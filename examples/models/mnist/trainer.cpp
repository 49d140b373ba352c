#include "examples/models/mnist/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "answers/out_of_memory.h"
#include "base/errors.h"
#include "examples/models/mnist/train_replica.h"
#include "examples/models/mnist/training_graph.h"
#include "runtime/app/replicas.h"

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
  if (test.count < 1) throw InvalidArgument("no test images");
  if (settings.replicas < 1)
    throw InvalidArgument(fmt::format("replicas {}: must be at least 1", settings.replicas));
  share_of_batch(settings.batch, settings.replicas);
  if (test.count < settings.replicas) {
    throw InvalidArgument(
        fmt::format("{} test images are too few for {} replicas", test.count, settings.replicas));
  }
}

TrainResult result_for(const TrainSettings& settings, const Runtime& runtime) {
  TrainResult result;
  result.strategy = runtime.strategy().name;
  result.epochs = settings.epochs;
  result.batch = settings.batch;
  result.device = runtime.options().device;
  result.data_on = to_string(settings.data_on);
  result.kernels = settings.fused ? "fused" : "library";
  result.target_accuracy = settings.target_accuracy;
  result.math = to_string(settings.math);
  return result;
}

using OnStep = std::function<void(const StepReport&)>;

// A replica's result as the ranks send it to each other.
struct SentResult {
  int64_t peak_device_bytes, peak_process_bytes, peak_reserved_bytes, peak_allocated_bytes, optimizer_bytes;
  int64_t predicted_peak_bytes;  // negative: absent
  char weights_checksum[32], device[64], host[256];
};

// Broadcasts the result of `rank`.
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
  broadcast_value(group, sent, rank);
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
  const ReplicaWork<TrainResult> work = [&](int, const ReplicaDevices& devices, Collective* group,
                                            TrainResult& result) {
    train_replica(settings, training, test, runtime, devices, group, on_step, result);
  };
  return run_on_devices(runtime, settings.replicas, settings.collective_timeout,
                        result_for(settings, runtime), work);
}

TrainResult train_rank(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                       Runtime& runtime, const std::string& host, Collective& group, const OnStep& on_step) {
  check(settings, training, test);
  const ReplicaDevices devices{default_device(runtime.options()), 1};
  TrainResult result = result_for(settings, runtime);
  run_replica(runtime, devices, result,
              [&] { train_replica(settings, training, test, runtime, devices, &group, on_step, result); });
  result.replicas[0].host = host;
  if (result.outcome != RunOutcome::kOk) return result;
  std::vector<TrainResult> results;
  for (int rank = 0; rank < group.size(); ++rank) {
    const ReplicaResult replica = result_of_rank(group, rank, result.replicas[0]);
    TrainResult& of_rank = results.emplace_back(result);
    static_cast<ReplicaFigures&>(of_rank) = replica;
    of_rank.devices = {{replica, replica.device, replica.host}};
    of_rank.replicas = {replica};
  }
  return merge_replicas(results);
}

void explain_failure(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                     Runtime& runtime, TrainResult& result) {
  RunSetup present = runtime.setup();
  present.batch = settings.batch;
  present.batch_unit = settings.replicas;
  present.has_plan = true;
  // A rank knows only its own device, but its program resembles the one that failed.
  const bool is_rank_of_job = settings.replicas > 1 && !result.failed_rank;
  result.report = explain_run(result, present, [&](const RunSetup& setup) {
    TrainSettings changed = settings;
    changed.batch = setup.batch;
    std::vector<Program> programs = training_programs(changed, training.count, test.count, setup.options);
    if (is_rank_of_job) programs.resize(1);
    return programs;
  });
}

}  // namespace headroom
