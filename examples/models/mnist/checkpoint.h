// A training in one file: weights, optimizer state, how far it has come and what decides its course, so that
// another run goes on with the same bits. Knows no step and no command line.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "examples/models/mnist/dataset.h"
#include "examples/models/mnist/facts.h"
#include "examples/models/mnist/train_settings.h"
#include "examples/models/mnist/training_graph.h"
#include "runtime/base/safetensors.h"
#include "runtime/collective/collective.h"
#include "runtime/session/variables.h"

namespace headroom {

// How far a training has come.
struct Position {
  int64_t steps = 0;    // that are done
  double loss_sum = 0;  // of those of the epoch that has begun
};

// Of one replica. With a group all replicas call it together, and rank 0 alone reads and writes files; what
// is written does not depend on their number, nor on how the optimizer's state is shared out.
class Checkpoint {
 public:
  // All must outlive it; `group` is null for one alone.
  Checkpoint(const TrainSettings& settings, TrainingGraph& net, const Dataset& training, Variables& variables,
             Collective* group);

  // Sets the variables to what the settings ask for: a file's training, the weights of a file, or those of
  // rank 0 as they are. Throws InvalidArgument for a file that cannot be read, does not have what is asked
  // for or is of a training that takes another course, and CollectiveError.
  Position load();
  // Replaces the file that the settings name, or leaves it as it was. Throws InvalidArgument where that
  // cannot be written, and CollectiveError.
  void save(const Position& position);

 private:
  // A variable that is kept: a shard of the tensor in the file, or all of it.
  struct Kept {
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
  const Facts& course();
  Start read(Tensors& tensors);
  static void require(const std::string& path, const std::vector<Kept>& wanted, const Tensors& tensors);
  std::vector<std::byte> whole_of(const Kept& kept) const;

  const TrainSettings& settings_;
  TrainingGraph& net_;
  const Dataset& training_;
  Variables& variables_;
  Collective* const group_;
  std::vector<Kept> weights_, states_;
  Facts course_;  // made at its first use
};

}  // namespace headroom
