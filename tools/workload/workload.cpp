#include "tools/workload/workload.h"

#include <fmt/format.h>

#include <algorithm>

#include "examples/mnist/report.h"
#include "examples/mnist/training_graph.h"
#include "examples/zoo/zoo.h"
#include "runtime/core/errors.h"
#include "runtime/core/suggest.h"

namespace headroom {
namespace {

// As the runtime of the options would; touches no device.
void place_by_options(Graph& graph, const RuntimeOptions& options) {
  if (options.place.empty()) return;
  const DeviceMap map = find_devices(options);
  place(graph, available_devices(map, default_device(options)), options.placement_rules());
}

Program mnist_program(const WorkloadOptions& options) {
  const TrainSettings settings = train_settings(options);
  const int64_t images = training_images(settings.batch);
  const auto net = std::make_shared<TrainingGraph>(
      settings, TrainingSizes{images, kDrawnTest / settings.replicas, steps_per_epoch(settings, images)});
  place_by_options(net->graph, options.runtime);
  return {{net, &net->graph}, {net->training_targets(), net->test_targets()}};
}

Program zoo_program(const ZooNet& net, const WorkloadOptions& options) {
  const std::shared_ptr<ZooStep> step = make_zoo_step(net, zoo_settings(options, 0));
  place_by_options(step->graph, options.runtime);
  return {{step, &step->graph}, {step->targets()}};
}

}  // namespace

void add_workload_options(OptionSet& set, WorkloadOptions& options) {
  set.add_choice("net", "The net that is trained; mnist: as train_mnist does", &options.net, net_names());
  add_replica_options(set, options.replicas);
  add_common_options(set, options, nullptr);
}

void add_common_options(OptionSet& set, WorkloadOptions& options, std::vector<std::string>* strategies) {
  set.add_integer("width", "Times the channels or units of each hidden layer", &options.width, 1, 1 << 20);
  add_step_options(set, options.step);
  add_runtime_options(set, options.runtime, strategies);
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
  copy = options;
  return set.words(which);
}

TrainSettings train_settings(const WorkloadOptions& options) {
  TrainSettings settings;
  settings.epochs = 1;
  settings.batch = options.step.batch;
  settings.optimizer = options.step.optimizer;
  settings.fused = options.step.fused();
  settings.math = parse_math(options.step.math);
  settings.loss_scale = usual_loss_scale(settings.math);
  settings.data_on = options.step.data_on == "device" ? DataOn::kDevice : DataOn::kHost;
  settings.loader_depth = options.step.loader_depth;
  settings.steps = options.step.steps;
  settings.plan = options.runtime.plan_mode();
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

Program make_program(const WorkloadOptions& options) {
  if (options.net == kMnist) {
    share_of_batch(options.step.batch, options.replicas.count());
    if (options.width != 1) throw InvalidArgument("width: the net of train_mnist has one width");
    return mnist_program(options);
  }
  if (const ZooNet* net = find_zoo_net(options.net)) return zoo_program(*net, options);
  const std::vector<std::string> names = net_names();
  const std::vector<std::string_view> known(names.begin(), names.end());
  throw InvalidArgument(
      fmt::format("unknown net '{}'; known: {}", options.net, list_with_suggestion(options.net, known)));
}

int64_t training_images(int64_t batch) {
  return std::max(kDrawnTraining, batch);
}

}  // namespace headroom
