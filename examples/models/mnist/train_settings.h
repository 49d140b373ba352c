// How the conv net is trained, and what one step of it gave. Knows no graph.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel.h"
#include "runtime/collective/in_process/in_process_collective.h"
#include "runtime/graph/data_parallel.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/plan.h"

namespace headroom {

// Of the learning rate. Cosine falls to zero at the end; one-cycle rises to the rate first.
enum class Schedule : uint8_t { kConstant, kCosine, kOneCycle };

// "constant", "cosine", "one-cycle", in the order of Schedule.
std::span<const std::string_view> schedule_names();
std::string_view to_string(Schedule schedule);
// Throws InvalidArgument listing them.
Schedule parse_schedule(std::string_view name);

// Where the images are: on the device from the start, or in host memory, from which each step's are copied.
enum class DataOn : uint8_t { kDevice, kHost };

struct TrainSettings {
  int epochs = 5;
  int64_t batch = 64;
  std::string optimizer = "adam";
  float learning_rate = 1e-3f;
  Schedule schedule = Schedule::kCosine;
  uint64_t seed = 1;
  PlanMode plan = PlanMode::kDynamic;
  bool fused = true;          // fuse convolutions with bias, relu and pooling, and use kernels of our own
  Math math = Math::kTf32;    // of products on a GPU
  bool deterministic = true;  // the same weights on every run, on a GPU, too
  DataOn data_on = DataOn::kDevice;
  int64_t loader_depth = 0;    // batches that a thread prefetches where the data is on the host; 0: none
  float loss_scale = 1;        // what the loss is multiplied by for the gradients' sake
  int64_t steps = 0;           // of each epoch; 0: as many as the data gives
  int64_t evaluate_every = 0;  // steps between evaluations; 0: after each epoch alone
  std::optional<double> target_accuracy;   // training ends at the first evaluation that reaches it
  std::vector<ScopeOnDevice> placed = {};  // layers that are on another device than the rest
  std::string load_weights;                // of that file; empty: none
  std::string resume;                      // the file whose training goes on; empty: a new one begins
  std::string save;                        // the file that keeps the training, see checkpoint.h; empty: none
  int64_t checkpoint_every = 0;            // steps between two times that it is written; 0: at the end alone

  int replicas = 1;              // that share each batch; `batch` is that of all of them
  bool shard_optimizer = false;  // each replica keeps its share of the optimizer's state
  BucketSettings buckets;
  // How long a replica waits for another before it gives the training up.
  std::chrono::milliseconds collective_timeout = kCollectiveTimeout;

  int64_t batch_of_replica() const { return batch / replicas; }
};

struct StepReport {
  int epoch;      // from 1
  int64_t step;   // of the epoch, from 1
  int64_t steps;  // in the epoch
  float loss, accuracy, learning_rate;
  double mean_loss;                     // of the epoch's steps so far
  double seconds;                       // since training began, when the step was known to be done
  std::optional<double> test_accuracy;  // where the net was evaluated after this step
};

// "f32", "tf32", "bf16", "f16", in the order of Math.
std::span<const std::string_view> math_names();
// The loss scale that training needs with that rounding.
float usual_loss_scale(Math math);
// Throws InvalidArgument listing them.
Math parse_math(std::string_view name);

// A replica's share of a batch. Throws InvalidArgument for one that they cannot share equally.
int64_t share_of_batch(int64_t batch, int replicas);

// How many steps an epoch has over so many images: a last, smaller batch is left to other epochs.
int64_t steps_per_epoch(const TrainSettings& settings, int64_t images);

// The learning rate of step `step` of `steps`.
float rate_at(const TrainSettings& settings, int64_t step, int64_t steps);

}  // namespace headroom
