// Saves a training to one file and resumes it with the same bits: weights, optimizer state, progress, and the
// settings that decide its results. Knows no step and no command line.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "collective/collective.h"
#include "examples/models/mnist/dataset.h"
#include "examples/models/mnist/fingerprint.h"
#include "examples/models/mnist/train_settings.h"
#include "examples/models/mnist/training_graph.h"
#include "runtime/session/variables.h"

namespace headroom {

// Progress of a training.
struct Position {
  int64_t steps = 0;    // done
  double loss_sum = 0;  // sum over the steps of the current epoch
};

// The checkpoint of one replica. All replicas of a group call it together; only rank 0 reads and writes
// files. The file depends neither on the number of replicas nor on their split of the optimizer's state.
class Checkpoint {
 public:
  // The arguments must outlive the object; `group` is null for a single replica.
  Checkpoint(const TrainSettings& settings, TrainingGraph& net, const Dataset& training, Variables& variables,
             Collective* group);

  // Sets the variables from the file to resume or to load; otherwise to the initial weights of rank 0. Throws
  // InvalidArgument for a file that cannot be read, lacks a tensor, or belongs to a training with other
  // settings, and CollectiveError.
  Position load();
  // Replaces the file of --save; a failure leaves the old file. Throws InvalidArgument if it cannot be
  // written, and CollectiveError.
  void save(const Position& position);

 private:
  // A variable in the file: all of a tensor, or this replica's shard.
  struct Saved {
    Value variable;
    TensorSpec whole;
    Shard shard = {};
  };
  using Tensors = std::map<std::string, NamedTensor>;
  struct Start {
    Position position;
    bool resumes = false;
  };

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  const Fingerprint& fingerprint();
  Start read(Tensors& tensors);
  static void require(const std::string& path, const std::vector<Saved>& wanted, const Tensors& tensors);
  std::vector<std::byte> whole_of(const Saved& saved) const;

  const TrainSettings& settings_;
  TrainingGraph& net_;
  const Dataset& training_;
  Variables& variables_;
  Collective* const group_;
  std::vector<Saved> weights_, states_;
  Fingerprint fingerprint_;  // made at its first use
};

}  // namespace headroom
