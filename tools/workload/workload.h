// A training program to ask questions about: a net of the zoo or train_mnist's, as a graph with what its
// sessions run. Knows no device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/models/mnist/train_options.h"
#include "examples/models/mnist/train_settings.h"
#include "examples/models/zoo/zoo.h"
#include "runtime/app/options.h"
#include "runtime/graph/graph.h"
#include "runtime/predict/play_program.h"

namespace headroom {

// The net that train_mnist trains, with its data; every other name is the zoo's.
inline constexpr const char* kMnist = "mnist";

struct WorkloadOptions {
  std::string net = kMnist;
  int64_t width = 1;
  StepOptions step;  // with the batch of all replicas
  ReplicaOptions replicas;
  RuntimeOptions runtime = {.device = "sim"};
};

// Adds the net, its width, and the options of steps, replicas and runtimes.
void add_workload_options(OptionSet& set, WorkloadOptions& options);
// Those but net and strategy, of which any number goes to `strategies`.
void add_common_options(OptionSet& set, WorkloadOptions& options, std::vector<std::string>* strategies);

// kMnist and the names of the zoo.
std::vector<std::string> net_names();

// The options as words of a command line: all for a process that is to do the same, the changed ones for a
// person.
std::vector<std::string> to_words(const WorkloadOptions& options, OptionSet::Words which);

// What all replicas run, placed as the options say: by rank; replicas whose graphs are alike share one.
// Throws InvalidArgument for an unknown net, a width that mnist cannot have, a batch that replicas cannot
// share equally, replicas of a net that is placed, and sizes that cannot be counted.
std::vector<Program> make_programs(const WorkloadOptions& options);

// Throws InvalidArgument for replicas and placement, as a trace is of one device.
void require_one_device(const WorkloadOptions& options);

// What train_mnist makes of the options, for one epoch.
TrainSettings train_settings(const WorkloadOptions& options);
// What a net of the zoo is made of by the options, for a replica.
ZooSettings zoo_settings(const WorkloadOptions& options, int rank);
// How many digits a run of the mnist net has to draw: as train_mnist does, or one batch.
int64_t training_images(int64_t batch);

}  // namespace headroom
