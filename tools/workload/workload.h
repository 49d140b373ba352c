// A program to predict, run, fit and compare: a training step of a net of the zoo, of train_mnist or of a
// model from a file, or a model's forward pass, as a graph with the targets of its sessions. Knows no device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "answers/program.h"
#include "answers/workload.h"
#include "examples/models/mnist/train_options.h"
#include "examples/models/mnist/train_settings.h"
#include "examples/models/zoo/zoo.h"
#include "runtime/app/options.h"
#include "runtime/graph/graph.h"
#include "tools/trace/program.h"
#include "tools/workload/model_files.h"

namespace headroom {

// The net and data of train_mnist; all other names belong to the zoo.
inline constexpr const char* kMnist = "mnist";

inline constexpr int64_t kStepsOfRun = 10;  // steps that headroom run makes by default

struct WorkloadOptions {
  std::string net = kMnist;
  ModelOptions model;      // instead of a net by name
  bool inference = false;  // the model's forward pass alone
  std::string data;        // a safetensors file of its inputs; empty: drawn numbers
  int64_t width = 1;
  StepOptions step;        // `batch` is that of all replicas together
  ProgramOptions program;  // of a program that is traced
  ReplicaOptions replicas;
  RuntimeOptions runtime = {.device = "sim"};
};

// Adds the net, its width, and the options of steps, replicas and runtimes.
void add_workload_options(OptionSet& set, WorkloadOptions& options);
// Adds them for a command that also answers for programs, models and recordings, with the short help for
// each. With `strategies`: no --net, and --strategy is a list that goes there.
void add_question_options(OptionSet& set, WorkloadOptions& options,
                          std::vector<std::string>* strategies = nullptr);

// kMnist and the names of the zoo.
std::vector<std::string> net_names();

// The options as words of a command line: all of them for another process, the changed ones for people.
std::vector<std::string> to_words(const WorkloadOptions& options, OptionSet::Words which);

// The command that shows which budgets a program that was refused for its budget can keep.
std::string command_to_solve(WorkloadOptions options);

// The programs of all replicas by rank, placed by the options and planned for their memory; replicas with
// equal graphs share one. Throws
// InvalidArgument for an unknown net, a width for mnist, a batch that replicas cannot share equally, replicas
// of a net that is placed, and sizes beyond 64 bits.
std::vector<Program> make_programs(const WorkloadOptions& options);

// Returns the traces of the same programs, planned for the kernels of the CPU. Throws as make_programs and
// make_plan do.
Traced trace_of(const WorkloadOptions& options);

// Returns a function that makes a replica's net or model of the options for parts of its batch; see
// Program::part.
std::function<std::shared_ptr<const Graph>(int64_t parts)> part_of(const WorkloadOptions& options, int rank);

// Throws InvalidArgument for replicas and placement, as a trace has one device.
void require_one_device(const WorkloadOptions& options);

// The settings of train_mnist for the options, with one epoch.
TrainSettings train_settings(const WorkloadOptions& options);
// The settings of a net of the zoo, for a replica.
ZooSettings zoo_settings(const WorkloadOptions& options, int rank);
// Returns the settings of the model.
onnx::ModelStepSettings model_settings(const WorkloadOptions& options, int rank);
// Returns the program's name in messages: the net, or the model's file.
std::string program_name(const WorkloadOptions& options);
// Returns the number of digits that a run of the mnist net generates: as many as train_mnist, or one batch if
// that is more.
int64_t training_images(int64_t batch);

}  // namespace headroom
