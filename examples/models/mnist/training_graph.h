// One graph that trains and tests the conv net over the same variables, for data on the device or on the
// host. Knows no device and no session.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "answers/program.h"
#include "examples/models/mnist/conv_net.h"
#include "examples/models/mnist/train_settings.h"
#include "runtime/app/options.h"
#include "runtime/graph/graph.h"

namespace headroom {

// The sizes that the graph of a replica depends on.
struct TrainingSizes {
  int64_t training_images, test_images;
  int64_t steps;  // per epoch
};

// A data set on the device as variables, and the images that each step takes.
struct ResidentSet {
  Value images;  // u8 (N,28,28,1)
  Value labels;  // i32 (N); in training
  Value order;   // i32 (steps * batch)
  Value step;    // i32 []
};

class TrainingGraph {
 public:
  // The graph of replica `rank`: its share of the batch and, if sharded, of the optimizer's state.
  TrainingGraph(const TrainSettings& settings, const TrainingSizes& sizes, int rank = 0);

  Graph graph;
  std::vector<Value> parameters;
  Value step;            // i32 []: steps done
  Value loss, accuracy;  // f32 [] of a step
  Value predictions;     // i32 (batch) for a batch of test images

  // Inputs of each step, with data on the host.
  Value images, labels, learning_rate;

  // Results of the steps of an epoch, indexed by training.step: f32 (steps).
  Value losses, accuracies;

  // With data on the device; training.step always exists.
  ResidentSet training, test;
  Value rates;            // f32 (steps): learning rates
  Value all_predictions;  // i32 (test steps, batch)

  // The variables that count training steps.
  std::vector<Value> counters() const;
  Targets training_targets() const;
  Targets test_targets() const;

 private:
  bool resident_, prefetched_;
};

// Returns a function that makes a replica's graph for parts of its batch, with as many steps; see
// Program::part.
std::function<std::shared_ptr<const Graph>(int64_t parts)> part_of(const TrainSettings& settings,
                                                                   const TrainingSizes& sizes, int rank);

// The programs of all replicas by rank, placed and planned for their memory as the options say. Replicas with
// equal graphs share one.
std::vector<Program> training_programs(const TrainSettings& settings, int64_t training_images,
                                       int64_t test_images, const RuntimeOptions& options);

}  // namespace headroom
