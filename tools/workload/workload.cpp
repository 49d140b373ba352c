#include "tools/workload/workload.h"

#include <fmt/format.h>

#include <algorithm>

#include "answers/lower.h"
#include "answers/solve.h"
#include "base/errors.h"
#include "base/text.h"
#include "examples/models/mnist/report.h"
#include "examples/models/mnist/training_graph.h"
#include "examples/models/zoo/zoo.h"
#include "runtime/app/place.h"
#include "runtime/app/setup.h"
#include "tools/trace/tracing_options.h"
#include "tools/workload/workload_step.h"

namespace headroom {
namespace {

std::vector<Program> mnist_programs(const WorkloadOptions& options) {
  const TrainSettings settings = train_settings(options);
  return training_programs(settings, training_images(settings.batch), kDrawnTest, options.runtime);
}

std::vector<Program> step_programs(const WorkloadOptions& options) {
  std::vector<Program> programs;
  for (int rank = 0; rank < options.replicas.count(); ++rank) {
    if (rank > 0 && !options.replicas.shard_optimizer) {
      programs.push_back(programs.front());
      continue;
    }
    const WorkloadStep step = make_workload_step(options, rank);
    place(*step.graph, options.runtime, options.replicas.count());
    programs.push_back({step.graph, {step.targets}, {}, part_of(options, rank)});
  }
  return programs;
}

void check_model_options(const WorkloadOptions& options) {
  if (!options.model.is_given()) {
    if (options.model.precision != Precision::kF32) throw InvalidArgument("--precision needs --model");
    if (options.inference) throw InvalidArgument("--inference needs --model");
    if (options.model.lora > 0) throw InvalidArgument("--lora needs --model");
    if (!options.model.weights.empty()) throw InvalidArgument("--weights needs --model");
    if (!options.model.dims.empty()) throw InvalidArgument("--dim needs --model");
    if (!options.model.states.empty()) throw InvalidArgument("--state needs --model");
    return;
  }
  if (!options.inference && !options.model.states.empty())
    throw InvalidArgument("--state needs --inference: a training step has no states");
  if (options.inference && options.model.lora > 0)
    throw InvalidArgument("--inference and --lora exclude each other: adapters are trained");
  if (options.net != WorkloadOptions{}.net) throw InvalidArgument("--model and --net exclude each other");
  if (options.width != 1) throw InvalidArgument("width: a model has the widths of its file");
  if (options.inference && options.replicas.count() > 1)
    throw InvalidArgument("--inference runs on one device: --replicas share a training step");
}

}  // namespace

std::function<std::shared_ptr<const Graph>(int64_t parts)> part_of(const WorkloadOptions& options, int rank) {
  if (options.inference) return {};
  return [options, rank](int64_t parts) -> std::shared_ptr<const Graph> {
    const int64_t share = share_of_batch(options.step.batch, options.replicas.count());
    if (share % parts != 0) return nullptr;
    WorkloadOptions of_part = options;
    of_part.step.batch /= parts;
    const WorkloadStep step = make_workload_step(of_part, rank);
    place(*step.graph, options.runtime, options.replicas.count());
    return step.graph;
  };
}

namespace {

// The options that matter most for a program, a recording and a model, with their defaults there.
void explain_kinds_of_input(OptionSet& set) {
  using Options = decltype(OptionSet::KindOfArgument::options);
  Options program = {{"batch", "Batch size of the program (default: its own)"},
                     {"batch-option", ""},
                     {"steps", "Number of steps to trace (default: 3)"},
                     {"ranks", ""},
                     {"compute", ""},
                     {"device", "GPU to trace for, such as rtx-3090 (default: h200; see headroom devices)"}};
  Options recording = {
      {"device", "GPU, such as rtx-3090 (default: that of the recording; see headroom devices)"}};
  for (Options* const options : {&program, &recording}) {
    options->insert(
        options->end(),
        {{"device-memory", ""},
         {"others", ""},
         {"context", ""},
         {"strategy",
          "Memory strategy (default: PyTorch's, or that of the recording; see headroom strategies)"},
         {"memory", "Memory budget of this process on the device"},
         {"limit", ""},
         {"limit-scope", ""},
         {"memory-fraction", ""}});
  }
  Options model = {{"batch", ""},
                   {"dim", "Sizes of free axes, NAME=N; --batch sets the first axis"},
                   {"inference", "Run only the forward pass, with the running statistics of norms"},
                   {"state", "Outputs that are inputs of the next step, past=present"},
                   {"loss", ""},
                   {"output", ""},
                   {"optimizer", ""},
                   {"precision", ""},
                   {"device", ""},
                   {"device-memory", ""},
                   {"others", ""},
                   {"strategy", ""},
                   {"memory", ""},
                   {"split-batch", ""},
                   {"limit", ""},
                   {"plan", ""},
                   {"replicas", ""}};
  const auto is_model = [](const std::string& text) { return text.ends_with(".onnx"); };
  const auto is_python = [](const std::string& text) { return is_program(text) || text.ends_with(".py"); };
  set.explain_kind({"a PyTorch program", is_python, std::move(program)});
  set.explain_kind({"an ONNX model", is_model, std::move(model)});
  set.explain_kind({"a recording", [](const std::string&) { return true; }, std::move(recording)});
}

void add_common_options(OptionSet& set, WorkloadOptions& options, std::vector<std::string>* strategies) {
  set.begin_group("Net");
  set.add_integer("width", "Multiplier of the net's width", &options.width, 1, 1 << 20);
  set.add_switch("inference", "With --model: run only the forward pass, with the running statistics of norms",
                 &options.inference);
  set.add_list(
      "state",
      "With --inference: outputs that are inputs of the next step, past=present; also beginnings of names",
      &options.model.states);
  add_model_options(set, options.model);
  add_step_options(set, options.step);
  add_replica_options(set, options.replicas);
  add_runtime_options(set, options.runtime, strategies);
  set.explain_in_short({"device", "batch", "memory", "strategy"});
}

}  // namespace

void add_workload_options(OptionSet& set, WorkloadOptions& options) {
  set.begin_group("Net");
  set.add_choice("net", "Net to train; mnist is the net of train_mnist", &options.net, net_names());
  add_common_options(set, options, nullptr);
  set.explain_in_short({"net"});
}

void add_question_options(OptionSet& set, WorkloadOptions& options, std::vector<std::string>* strategies) {
  if (strategies == nullptr) {
    add_workload_options(set, options);
  } else {
    add_common_options(set, options, strategies);
  }
  add_program_options(set, options.program);
  explain_kinds_of_input(set);
}

std::vector<std::string> net_names() {
  std::vector<std::string> names = {kMnist};
  for (const ZooNet& net : zoo_nets()) names.emplace_back(net.name);
  return names;
}

std::vector<std::string> to_words(const WorkloadOptions& options, OptionSet::Words which) {
  WorkloadOptions copy;
  OptionSet set({}, {});
  add_workload_options(set, copy);
  if (which == OptionSet::Words::kChanged) add_program_options(set, copy.program);  // no run takes a program
  copy = options;
  return set.words(which);
}

TrainSettings train_settings(const WorkloadOptions& options) {
  TrainSettings settings;
  settings.epochs = 1;
  settings.batch = options.step.batch;
  settings.optimizer = options.step.optimizer;
  settings.fused = options.step.fused();
  settings.math = options.step.math;
  settings.loss_scale = usual_loss_scale(settings.math);
  settings.data_on = options.step.data_on;
  settings.loader_depth = options.step.loader_depth;
  settings.steps = options.step.steps;
  settings.plan = options.runtime.plan;
  settings.seed = static_cast<uint64_t>(options.runtime.seed);
  settings.placed = parse_scopes_on_devices(options.runtime.place);
  settings.replicas = options.replicas.count();
  settings.shard_optimizer = options.replicas.shard_optimizer;
  settings.buckets = options.replicas.buckets();
  return settings;
}

ZooSettings zoo_settings(const WorkloadOptions& options, int rank) {
  ZooSettings settings;
  settings.replicas = options.replicas.count();
  settings.batch = share_of_batch(options.step.batch, settings.replicas);
  settings.width = options.width;
  settings.optimizer = options.step.optimizer;
  settings.fused = options.step.fused();
  settings.seed = static_cast<uint64_t>(options.runtime.seed);
  settings.buckets = options.replicas.buckets();
  settings.placed = parse_scopes_on_devices(options.runtime.place);
  if (options.replicas.shard_optimizer) settings.shard = {rank, settings.replicas};
  return settings;
}

onnx::ModelStepSettings model_settings(const WorkloadOptions& options, int rank) {
  onnx::ModelStepSettings settings;
  settings.replicas = options.replicas.count();
  settings.import.batch = share_of_batch(options.step.batch, settings.replicas);
  settings.import.dims = parse_dims(options.model.dims);
  settings.import.seed = static_cast<uint64_t>(options.runtime.seed);
  settings.import.lora = options.model.lora_settings();
  settings.import.states = options.model.state_pairs();
  settings.loss = options.model.loss;
  settings.output = options.model.output;
  settings.precision = options.model.precision;
  settings.optimizer = options.step.optimizer;
  settings.fused = options.step.fused();
  settings.placed = parse_scopes_on_devices(options.runtime.place);
  settings.buckets = options.replicas.buckets();
  if (options.replicas.shard_optimizer) settings.shard = {rank, settings.replicas};
  return settings;
}

std::string program_name(const WorkloadOptions& options) {
  return options.model.is_given() ? printable(options.model.path) : options.net;
}

std::string command_to_solve(WorkloadOptions options) {
  options.runtime.memory_bytes.reset();
  options.runtime.plan = RuntimeOptions{}.plan;
  options.runtime.strategy = RuntimeOptions{}.strategy;
  options.step.steps = StepOptions{}.steps;
  return command_line("headroom solve", to_words(options, OptionSet::Words::kChanged));
}

std::vector<Program> make_programs(const WorkloadOptions& options) {
  if (options.replicas.count() > 1) {
    replica_devices(options.runtime, find_devices(options.runtime), options.replicas.count());
  }
  check_model_options(options);
  if (options.model.is_given()) return keep_to_memory(step_programs(options), options.runtime);
  if (options.net == kMnist) {
    share_of_batch(options.step.batch, options.replicas.count());
    if (options.width != 1) throw InvalidArgument("width: the net of train_mnist has one width");
    return mnist_programs(options);
  }
  if (find_zoo_net(options.net) != nullptr) return keep_to_memory(step_programs(options), options.runtime);
  const std::vector<std::string> names = net_names();
  const std::vector<std::string_view> known(names.begin(), names.end());
  throw InvalidArgument(
      fmt::format("unknown net '{}'; known: {}", options.net, list_with_suggestion(options.net, known)));
}

Traced trace_of(const WorkloadOptions& options) {
  return lower(planned(make_programs(options), options.runtime.plan), options.runtime);
}

void require_one_device(const WorkloadOptions& options) {
  const bool has_replicas = options.replicas.count() > 1 || options.replicas.shard_optimizer;
  if (!has_replicas && (options.runtime.place + options.runtime.virtual_devices).empty()) return;
  throw InvalidArgument(
      "replicas, shard-optimizer, place and virtual-devices need a net: a trace is played on one device");
}

int64_t training_images(int64_t batch) {
  return std::max(kDrawnTraining, batch);
}

}  // namespace headroom
