#include "examples/mnist/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

#include "examples/mnist/conv_net.h"
#include "runtime/core/errors.h"
#include "runtime/functions.h"
#include "runtime/fuse.h"
#include "runtime/gradients.h"
#include "runtime/optimizer.h"
#include "runtime/predict_peak.h"
#include "runtime/safetensors.h"
#include "runtime/session.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Training and testing as one graph over the same variables.
struct TrainingGraph {
  Graph graph;
  Value images, labels, learning_rate;
  std::vector<Value> parameters;
  Value loss, accuracy, predictions;

  explicit TrainingGraph(const TrainSettings& settings) {
    const TensorSpec image_batch{DType::kU8, {settings.batch, Dataset::kSide, Dataset::kSide, 1}};
    images = graph.input("images", image_batch);
    labels = graph.input("labels", {DType::kI32, {settings.batch}});
    learning_rate = graph.input("learning_rate", {DType::kF32, {}});
    const ConvNet net(graph, settings.seed);
    parameters = net.parameters();

    const Value logits = net.logits(images);
    loss = mean(cross_entropy(logits, labels));
    accuracy = headroom::accuracy(logits, labels);
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    add_updates(parse_optimizer(settings.optimizer), parameters, gradients(loss, parameters), learning_rate,
                step);

    const NameScope testing(graph, "test");
    predictions = argmax(net.logits(images));
    if (settings.fused) fuse(graph, fetches());
  }

  std::vector<Value> fetches() const { return {loss, accuracy, predictions}; }
};

void check(const TrainSettings& settings, const Dataset& training, const Dataset& test) {
  if (settings.batch < 1 || settings.batch > training.count) {
    throw InvalidArgument(
        fmt::format("batch {}: must be from 1 to the {} training images", settings.batch, training.count));
  }
  if (settings.epochs < 1)
    throw InvalidArgument(fmt::format("epochs {}: must be at least 1", settings.epochs));
  if (!(settings.learning_rate > 0) || !std::isfinite(settings.learning_rate)) {
    throw InvalidArgument(fmt::format("learning rate {}: must be above 0", settings.learning_rate));
  }
  if (test.count < 1) throw InvalidArgument("there are no test images");
}

void load_parameters(const std::string& path, std::span<const Value> parameters, Variables& variables) {
  std::map<std::string, NamedTensor> tensors;
  for (NamedTensor& tensor : load_safetensors(path)) tensors.emplace(tensor.name, std::move(tensor));
  for (const Value& parameter : parameters) {
    const auto found = tensors.find(parameter.name());
    if (found == tensors.end())
      throw InvalidArgument(fmt::format("{}: has no tensor {}", path, parameter.name()));
    if (found->second.spec != parameter.spec()) {
      throw InvalidArgument(fmt::format("{}: {} is {}, the net needs {}", path, parameter.name(),
                                        to_string(found->second.spec), to_string(parameter.spec())));
    }
    variables.write(parameter, found->second.data);
    tensors.erase(found);
  }
  if (!tensors.empty()) {
    throw InvalidArgument(fmt::format("{}: the net has no variable {}", path, tensors.begin()->first));
  }
}

void save_parameters(const std::string& path, std::span<const Value> parameters, const Variables& variables) {
  std::vector<NamedTensor> tensors;
  for (const Value& parameter : parameters) {
    tensors.push_back({parameter.name(), parameter.spec(), variables.read(parameter)});
  }
  save_safetensors(path, tensors);
}

float rate_at(const TrainSettings& settings, int64_t step, int64_t steps) {
  if (settings.schedule == Schedule::kConstant) return settings.learning_rate;
  const double turn = std::numbers::pi * static_cast<double>(step) / static_cast<double>(steps);
  return static_cast<float>(settings.learning_rate * 0.5 * (1 + std::cos(turn)));
}

// Copies image `index` of the data into place `row` of the batch.
void copy_image(const Dataset& data, int64_t index, std::span<uint8_t> images, int64_t row) {
  std::memcpy(images.data() + row * Dataset::kImageBytes, data.images.data() + index * Dataset::kImageBytes,
              Dataset::kImageBytes);
}

class Training {
 public:
  Training(const TrainSettings& settings, const TrainingGraph& graph, const Dataset& training,
           const Dataset& test, const std::function<void(const StepReport&)>& on_step, TrainResult& result)
      : settings_(settings),
        net_(graph),
        training_(training),
        test_(test),
        on_step_(on_step),
        result_(result) {}

  void run(Runtime& runtime) {
    const auto kernels = std::make_shared<const Kernels>(net_.graph, runtime.device(), runtime.allocator());
    const auto plan = [&](std::vector<Value> fetches, bool updates) {
      return make_plan(net_.graph, {std::move(fetches), updates}, settings_.plan, kernels->workspace_bytes());
    };
    const Plan train_plan = plan({net_.loss, net_.accuracy}, true),
               test_plan = plan({net_.predictions}, false);
    predict(train_plan, test_plan, runtime);

    Variables variables(net_.graph, runtime.device(), runtime.allocator());
    if (!settings_.load_weights.empty()) load_parameters(settings_.load_weights, net_.parameters, variables);
    Session train_session(net_.graph, train_plan, kernels, variables);
    Session test_session(net_.graph, test_plan, kernels, variables);
    const auto start = Clock::now();
    for (int epoch = 1; epoch <= settings_.epochs; ++epoch)
      run_epoch(epoch, train_session, test_session, start);

    std::nth_element(step_seconds_.begin(),
                     step_seconds_.begin() + static_cast<long>(step_seconds_.size() / 2),
                     step_seconds_.end());
    result_.seconds_per_step = step_seconds_[step_seconds_.size() / 2];
    result_.images_per_second = static_cast<double>(settings_.batch) / result_.seconds_per_step;
    result_.weights_checksum = fmt::format("{:016x}", variables.checksum(net_.parameters));
    if (!settings_.save_weights.empty()) save_parameters(settings_.save_weights, net_.parameters, variables);
  }

 private:
  // A run that will fail has no peak to predict; the run itself will say why.
  void predict(const Plan& train_plan, const Plan& test_plan, const Runtime& runtime) {
    try {
      Runtime twin(runtime.options());
      twin.set_strategy(runtime.strategy());
      const Plan* const plans[] = {&train_plan, &test_plan};
      result_.predicted_peak_bytes =
          predict_peak(net_.graph, plans, twin.device(), twin.allocator()).allocated_bytes;
    } catch (const OutOfMemory&) {
    } catch (const LibraryError&) {
    } catch (const DeviceError&) {
    }
  }

  void run_epoch(int epoch, Session& train_session, Session& test_session, Clock::time_point start) {
    const std::vector<int64_t> order = epoch_order(training_.count, settings_.seed, epoch);
    const int64_t all = training_.count / settings_.batch;  // a last, smaller batch is left to other epochs
    const int64_t steps = settings_.steps > 0 ? std::min(settings_.steps, all) : all;
    const std::span<uint8_t> images = train_session.input<uint8_t>(net_.images);
    const std::span<int32_t> labels = train_session.input<int32_t>(net_.labels);
    double loss_sum = 0;
    for (int64_t step = 0; step < steps; ++step) {
      const float rate = rate_at(settings_, (epoch - 1) * steps + step, settings_.epochs * steps);
      for (int64_t row = 0; row < settings_.batch; ++row) {
        const int64_t index = order[static_cast<size_t>(step * settings_.batch + row)];
        copy_image(training_, index, images, row);
        labels[static_cast<size_t>(row)] = training_.labels[static_cast<size_t>(index)];
      }
      train_session.input<float>(net_.learning_rate)[0] = rate;
      const auto before = Clock::now();
      train_session.run();
      step_seconds_.push_back(seconds_since(before));
      const float loss = train_session.output<float>(net_.loss)[0];
      loss_sum += loss;
      StepReport report{epoch,
                        step + 1,
                        steps,
                        loss,
                        train_session.output<float>(net_.accuracy)[0],
                        rate,
                        seconds_since(start),
                        std::nullopt};
      if (step + 1 == steps) report.test_accuracy = result_.test_accuracy = run_test(test_session);
      if (on_step_) on_step_(report);
    }
    result_.final_loss = loss_sum / static_cast<double>(steps);
  }

  // Share of the test images that are recognised. The last batch is filled up with image 0, which is not
  // counted.
  double run_test(Session& session) {
    result_.confusion = {};
    int64_t right = 0;
    const std::span<uint8_t> images = session.input<uint8_t>(net_.images);
    for (int64_t first = 0; first < test_.count; first += settings_.batch) {
      const int64_t rows = std::min(settings_.batch, test_.count - first);
      for (int64_t row = 0; row < settings_.batch; ++row)
        copy_image(test_, row < rows ? first + row : 0, images, row);
      session.run();
      const std::span<const int32_t> predictions = session.output<int32_t>(net_.predictions);
      for (int64_t row = 0; row < rows; ++row) {
        const size_t label = test_.labels[static_cast<size_t>(first + row)];
        const auto prediction = static_cast<size_t>(predictions[static_cast<size_t>(row)]);
        ++result_.confusion[label][prediction];
        right += label == prediction;
      }
    }
    return static_cast<double>(right) / static_cast<double>(test_.count);
  }

  const TrainSettings& settings_;
  const TrainingGraph& net_;
  const Dataset &training_, &test_;
  const std::function<void(const StepReport&)>& on_step_;
  TrainResult& result_;
  std::vector<double> step_seconds_;
};

}  // namespace

TrainResult train(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                  Runtime& runtime, const std::function<void(const StepReport&)>& on_step) {
  check(settings, training, test);
  TrainResult result;
  result.strategy = runtime.strategy().name;
  result.epochs = settings.epochs;
  result.batch = settings.batch;
  result.device = runtime.options().device;
  const TrainingGraph graph(settings);
  try {
    Training(settings, graph, training, test, on_step, result).run(runtime);
  } catch (const OutOfMemory& error) {
    result.outcome = "out_of_memory";
    result.error = error.what();
  } catch (const LibraryError& error) {
    result.outcome = "library_failure";
    result.error = error.what();
    result.log = error.log();
  } catch (const DeviceError& error) {  // a context or kernels that found no room
    result.outcome = "library_failure";
    result.error = error.what();
  }
  const MemoryInfo info = runtime.memory_info();
  result.peak_device_bytes = info.peak_used;
  result.peak_process_bytes = info.peak_process;
  if (!runtime.initialised()) return result;  // the pool itself found no room
  const Statistics statistics = runtime.allocator().statistics();
  result.peak_reserved_bytes = statistics.reserved.peak;
  result.peak_allocated_bytes = statistics.allocated.peak;
  return result;
}

std::string to_json(const TrainResult& result) {
  nlohmann::ordered_json json;
  json["outcome"] = result.outcome;
  json["error"] = result.error;
  json["device"] = result.device;
  json["strategy"] = result.strategy;
  json["epochs"] = result.epochs;
  json["batch"] = result.batch;
  json["test_accuracy"] = result.test_accuracy;
  json["final_loss"] = result.final_loss;
  json["seconds_per_step"] = result.seconds_per_step;
  json["images_per_second"] = result.images_per_second;
  json["peak_device_bytes"] = result.peak_device_bytes;
  json["peak_process_bytes"] = result.peak_process_bytes;
  json["peak_reserved_bytes"] = result.peak_reserved_bytes;
  json["peak_allocated_bytes"] = result.peak_allocated_bytes;
  json["predicted_peak_bytes"] = result.predicted_peak_bytes
                                     ? nlohmann::ordered_json(*result.predicted_peak_bytes)
                                     : nlohmann::ordered_json();
  json["weights_checksum"] = result.weights_checksum;
  return json.dump();
}

}  // namespace headroom
