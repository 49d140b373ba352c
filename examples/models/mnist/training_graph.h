// Training and testing the conv net as one graph over the same variables, for data on the device or on the
// host. Knows no device and no session.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/models/mnist/conv_net.h"
#include "examples/models/mnist/train_settings.h"
#include "runtime/graph/graph.h"
#include "runtime/predict/play_program.h"

namespace headroom {

// What the graph of a replica has to be made for.
struct TrainingSizes {
  int64_t training_images, test_images;
  int64_t steps;  // of an epoch
};

// The images of one set on the device, and which of them each step takes. All variables.
struct ResidentSet {
  Value images;  // u8 (N,28,28,1)
  Value labels;  // i32 (N); in training
  Value order;   // i32 (steps * batch)
  Value step;    // i32 []
};

class TrainingGraph {
 public:
  // Of replica `rank`: with its share of the batch and, where the optimizer is sharded, its shard.
  TrainingGraph(const TrainSettings& settings, const TrainingSizes& sizes, int rank = 0);

  Graph graph;
  std::vector<Value> parameters;
  Value step;            // i32 []: steps done
  Value loss, accuracy;  // f32 [] of a step
  Value predictions;     // i32 (batch) of the test images fed

  // With the data on the host: what each step is fed.
  Value images, labels, learning_rate;

  // What the steps of an epoch gave, by training.step: f32 (steps).
  Value losses, accuracies;

  // With the data on the device; training.step always.
  ResidentSet training, test;
  Value rates;            // f32 (steps): of an epoch
  Value all_predictions;  // i32 (test steps, batch)

  // What counts the training steps done.
  std::vector<Value> counters() const;
  // What a training step and a test step run.
  Targets training_targets() const;
  Targets test_targets() const;

 private:
  bool resident_, prefetched_;
};

// What all replicas run, placed as the options say: by rank; replicas whose graphs are alike share one.
std::vector<Program> training_programs(const TrainSettings& settings, int64_t training_images,
                                       int64_t test_images, const RuntimeOptions& options);

}  // namespace headroom
