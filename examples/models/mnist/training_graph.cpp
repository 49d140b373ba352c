#include "examples/models/mnist/training_graph.h"

#include <utility>

#include "answers/solve.h"
#include "examples/models/mnist/dataset.h"
#include "runtime/app/place.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/fuse.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"

namespace headroom {
namespace {

TensorSpec images_spec(int64_t count) {
  return {DType::kU8, {count, Dataset::kSide, Dataset::kSide, 1}};
}
TensorSpec vector_of(DType dtype, int64_t count) {
  return {dtype, {count}};
}

Value images_of_step(const ResidentSet& set, int64_t batch) {
  return take_batch(set.images, set.step, set.order, {batch, kPixelScale});
}

}  // namespace

TrainingGraph::TrainingGraph(const TrainSettings& settings, const TrainingSizes& sizes, int rank)
    : resident_(settings.data_on == DataOn::kDevice), prefetched_(settings.loader_depth > 0) {
  put_scopes_on_devices(graph, settings.placed);
  const int64_t batch = settings.batch_of_replica();
  const TensorSpec counter{DType::kI32, {}};
  step = graph.variable("step", counter, zeros());
  Value batch_images, batch_labels, test_images;
  {
    const NameScope scope(graph, "data");
    training.step = graph.variable("step", counter, zeros());
    losses = graph.variable("losses", vector_of(DType::kF32, sizes.steps), zeros());
    accuracies = graph.variable("accuracies", losses.spec(), zeros());
  }
  if (resident_) {
    const int64_t test_steps = (sizes.test_images + batch - 1) / batch;
    const NameScope scope(graph, "data");
    training.images = graph.variable("images", images_spec(sizes.training_images), unset());
    training.labels = graph.variable("labels", vector_of(DType::kI32, sizes.training_images), unset());
    training.order = graph.variable("order", vector_of(DType::kI32, sizes.steps * batch), unset());
    rates = graph.variable("rates", vector_of(DType::kF32, sizes.steps), unset());
    test = {graph.variable("test_images", images_spec(sizes.test_images), unset()),
            {},
            graph.variable("test_order", vector_of(DType::kI32, test_steps * batch), unset()),
            graph.variable("test_step", counter, zeros())};
    all_predictions = graph.variable("predictions", {DType::kI32, {test_steps, batch}}, zeros());

    batch_images = images_of_step(training, batch);
    batch_labels = take_batch(training.labels, training.step, training.order, {batch});
    learning_rate = reshape(take_batch(rates, training.step, {1}), {});
  } else {
    batch_images = test_images = images = graph.input("images", images_spec(batch));
    batch_labels = labels = graph.input("labels", vector_of(DType::kI32, batch));
    learning_rate = graph.input("learning_rate", {DType::kF32, {}});
  }
  const ConvNet net(graph, settings.seed);
  parameters = net.parameters();

  const Value logits = net.logits(batch_images);
  loss = mean(cross_entropy(logits, batch_labels));
  accuracy = headroom::accuracy(logits, batch_labels);
  graph.add(RowUpdate{}, std::vector<Value>{training.step, losses, loss, accuracies, accuracy});
  // Not the optimizer's counter: the next step's batch need not wait for the weights.
  graph.add(CounterUpdate{}, std::vector<Value>{training.step});
  const Value scaled = settings.loss_scale == 1 ? loss : scale(loss, settings.loss_scale);
  const Shard shard = settings.shard_optimizer ? Shard{rank, settings.replicas} : Shard{};
  add_updates(parse_optimizer(settings.optimizer), parameters, gradients(scaled, parameters), learning_rate,
              step, settings.loss_scale, shard);

  const NameScope testing(graph, "test");
  if (resident_) test_images = images_of_step(test, batch);
  predictions = argmax(net.logits(test_images));
  if (resident_) {
    graph.add(RowUpdate{}, std::vector<Value>{test.step, all_predictions, predictions});
    graph.add(CounterUpdate{}, std::vector<Value>{test.step});
  }
  if (settings.fused) fuse(graph, std::vector<Value>{loss, accuracy, predictions});
  require_scopes(graph, settings.placed);
  reduce_gradients(graph, settings.replicas, settings.buckets);
}

std::vector<Value> TrainingGraph::counters() const {
  return {step, training.step};
}

Targets TrainingGraph::training_targets() const {
  // Each device with parameters has its own optimizer node.
  std::vector<Value> updated = parameters;
  updated.insert(updated.end(), {step, training.step, losses});
  return {.fetches = {},
          .updates = true,
          .updated = std::move(updated),
          .doubled_inputs = !resident_ && prefetched_};
}

Targets TrainingGraph::test_targets() const {
  if (!resident_) return {{predictions}, false};
  return {{}, true, {test.step, all_predictions}};
}

std::function<std::shared_ptr<const Graph>(int64_t parts)> part_of(const TrainSettings& settings,
                                                                   const TrainingSizes& sizes, int rank) {
  return [settings, sizes, rank](int64_t parts) -> std::shared_ptr<const Graph> {
    if (settings.batch_of_replica() % parts != 0) return nullptr;
    TrainSettings of_part = settings;
    of_part.batch /= parts;
    const auto net = std::make_shared<TrainingGraph>(of_part, sizes, rank);
    return {net, &net->graph};
  };
}

std::vector<Program> training_programs(const TrainSettings& settings, int64_t training_images,
                                       int64_t test_images, const RuntimeOptions& options) {
  std::vector<Program> programs;
  // If the test images are not a multiple of the replicas, some have one more.
  const TrainingSizes sizes{training_images, (test_images + settings.replicas - 1) / settings.replicas,
                            steps_per_epoch(settings, training_images)};
  for (int rank = 0; rank < settings.replicas; ++rank) {
    if (rank > 0 && !settings.shard_optimizer) {
      programs.push_back(programs.front());
      continue;
    }
    const auto net = std::make_shared<TrainingGraph>(settings, sizes, rank);
    place(net->graph, options, settings.replicas);
    programs.push_back({{net, &net->graph},
                        {net->training_targets(), net->test_targets()},
                        {},
                        part_of(settings, sizes, rank)});
  }
  return keep_to_memory(std::move(programs), options);
}

}  // namespace headroom
