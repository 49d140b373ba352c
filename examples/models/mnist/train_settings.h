// Settings of the conv net's training, and the report of one step. Knows no graph.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/end_signals.h"
#include "collective/in_process/in_process_collective.h"
#include "kernels/kernel.h"
#include "runtime/graph/data_parallel.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/plan.h"

namespace headroom {

// Learning rate schedules. Cosine falls to zero at the end; one-cycle rises first.
enum class Schedule : uint8_t { kConstant, kCosine, kOneCycle };
constexpr auto value_names(Schedule) {
  return std::to_array<std::string_view>({"constant", "cosine", "one-cycle"});
}

// The location of the images: on the device, or in host memory, from which each batch is copied.
enum class DataOn : uint8_t { kDevice, kHost };
constexpr auto value_names(DataOn) {
  return std::to_array<std::string_view>({"device", "host"});
}

struct TrainSettings {
  int epochs = 5;
  int64_t batch = 64;
  std::string optimizer = "adam";
  float learning_rate = 1e-3f;
  Schedule schedule = Schedule::kCosine;
  uint64_t seed = 1;
  PlanMode plan = PlanMode::kDynamic;
  bool fused = true;          // fuse convolutions with bias, relu and pooling in our own kernels
  Math math = Math::kTf32;    // precision of products on a GPU
  bool deterministic = true;  // the same weights on every run
  DataOn data_on = DataOn::kDevice;
  int64_t loader_depth = 0;                // batches to prefetch with data on the host; 0: none
  float loss_scale = 1;                    // factor on the loss, so that gradients do not underflow
  int64_t steps = 0;                       // per epoch; 0: all of the data
  int64_t evaluate_every = 0;              // steps between evaluations; 0: after each epoch
  std::optional<double> target_accuracy;   // training ends at the first evaluation that reaches it
  std::vector<ScopeOnDevice> placed = {};  // layers on other devices
  std::string load_weights;                // file to start from; may be empty
  std::string resume;                      // file of the training to resume; may be empty
  std::string save;                        // file to write, see checkpoint.h; may be empty
  int64_t checkpoint_every = 0;            // steps between writes; 0: only at the end
  // Asked between steps: training ends there, as at its end, once a signal has come.
  const EndSignals* end_signals = nullptr;

  int replicas = 1;              // share each batch
  bool shard_optimizer = false;  // split the optimizer's state between replicas
  BucketSettings buckets;
  // Time that a replica waits for the others before it fails.
  std::chrono::milliseconds collective_timeout = kCollectiveTimeout;

  int64_t batch_of_replica() const { return batch / replicas; }
};

struct StepReport {
  int epoch;      // from 1
  int64_t step;   // step of the epoch, from 1
  int64_t steps;  // in the epoch
  float loss, accuracy, learning_rate;
  double mean_loss;                     // over the steps of the epoch so far
  double seconds;                       // from the start of training to the end of the step
  std::optional<double> test_accuracy;  // if the net was evaluated after this step
};

// The default loss scale.
float usual_loss_scale(Math math);

// The batch of one replica. Throws InvalidArgument if the replicas cannot share the batch equally.
int64_t share_of_batch(int64_t batch, int replicas);

// Steps in an epoch over `images` images. An incomplete last batch is left out.
int64_t steps_per_epoch(const TrainSettings& settings, int64_t images);

// The learning rate of step `step` of `steps`.
float rate_at(const TrainSettings& settings, int64_t step, int64_t steps);

}  // namespace headroom
