#include "examples/mnist/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <future>
#include <map>
#include <nlohmann/json.hpp>

#include "examples/mnist/feed.h"
#include "examples/mnist/process_clock.h"
#include "runtime/core/errors.h"
#include "runtime/play_program.h"
#include "runtime/predict_peak.h"
#include "runtime/safetensors.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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
  if (!(settings.loss_scale > 0) || !std::isfinite(settings.loss_scale))
    throw InvalidArgument(fmt::format("loss scale {}: must be above 0", settings.loss_scale));
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
    KernelSettings kernel_settings;
    kernel_settings.math = settings_.math;
    kernel_settings.library_only = !settings_.fused;
    kernel_settings.deterministic = settings_.deterministic;
    const auto kernels =
        std::make_shared<const Kernels>(net_.graph, runtime.device(), runtime.allocator(), kernel_settings);
    const auto plan = [&](const Targets& targets) {
      return make_plan(net_.graph, targets, settings_.plan, kernels->workspace_bytes());
    };
    const Plan train_plan = plan(net_.training_targets()), test_plan = plan(net_.test_targets());
    predict(train_plan, test_plan, runtime);

    Variables variables(net_.graph, runtime.device(), runtime.allocator());
    if (!settings_.load_weights.empty()) load_parameters(settings_.load_weights, net_.parameters, variables);
    Session train_session(net_.graph, train_plan, kernels, variables);
    Session test_session(net_.graph, test_plan, kernels, variables);
    feed_ = make_feed(settings_.data_on,
                      {net_, training_, test_, settings_.batch, variables, train_session, test_session});
    start_ = Clock::now();
    run_epochs();

    result_.training_seconds = seconds_since(start_);
    result_.steps = static_cast<int64_t>(step_seconds_.size());
    std::nth_element(step_seconds_.begin(),
                     step_seconds_.begin() + static_cast<long>(step_seconds_.size() / 2),
                     step_seconds_.end());
    result_.seconds_per_step = step_seconds_[step_seconds_.size() / 2];
    result_.images_per_second = static_cast<double>(settings_.batch) / result_.seconds_per_step;
    result_.weights_checksum = fmt::format("{:016x}", variables.checksum(net_.parameters));
    if (!settings_.save_weights.empty()) save_parameters(settings_.save_weights, net_.parameters, variables);
    feed_.reset();
  }

 private:
  // A second pool on a real GPU would take the room of the first: its twin is a simulated one as large.
  static RuntimeOptions options_of_twin(const Runtime& runtime) {
    RuntimeOptions options = runtime.options();
    if (!options.device.starts_with("cuda")) return options;
    options.device = "sim:h200";
    options.device_memory_bytes = runtime.memory_info().total;
    options.others_bytes = 0;
    options.visible_devices.clear();
    options.virtual_devices.clear();
    return options;
  }

  // A run that will fail has no peak to predict; the run itself will say why.
  void predict(const Plan& train_plan, const Plan& test_plan, const Runtime& runtime) {
    try {
      Runtime twin(options_of_twin(runtime));
      StrategySettings strategy = runtime.strategy();
      if (twin.devices().has_virtual() != runtime.devices().has_virtual()) {
        strategy = strategy_on(runtime.devices(), default_device(runtime.options()), strategy);
      }
      strategy.record_path.clear();  // what the twin is asked did not happen
      twin.set_strategy(strategy);
      const Plan* const plans[] = {&train_plan, &test_plan};
      result_.predicted_peak_bytes =
          predict_peak(net_.graph, plans, twin.device(), twin.allocator()).allocated_bytes;
    } catch (const OutOfMemory&) {
    } catch (const LibraryError&) {
    } catch (const DeviceError&) {
    }
  }

  void run_epochs() {
    const auto order_of = [this](int epoch) { return epoch_order(training_.count, settings_.seed, epoch); };
    const int64_t steps = steps_per_epoch(settings_, training_.count);
    std::vector<int64_t> order = order_of(1);
    for (int epoch = 1; epoch <= settings_.epochs; ++epoch) {
      std::vector<float> rates;
      for (int64_t step = (epoch - 1) * steps; step < epoch * steps; ++step)
        rates.push_back(rate_at(settings_, step, settings_.epochs * steps));
      feed_->begin_epoch(order, rates);
      // Drawn while the device works.
      std::future<std::vector<int64_t>> next;
      if (epoch < settings_.epochs) next = std::async(std::launch::async, order_of, epoch + 1);
      if (!run_epoch(epoch, rates)) return;
      if (next.valid()) order = next.get();
    }
  }

  // False when the target is reached.
  bool run_epoch(int epoch, std::span<const float> rates) {
    const auto steps = static_cast<int64_t>(rates.size());
    double loss_sum = 0;
    for (int64_t done = 0; done < steps;) {
      const int64_t before_evaluation =
          settings_.evaluate_every > 0 ? settings_.evaluate_every - done % settings_.evaluate_every : steps;
      const int64_t count = std::min({piece_, before_evaluation, steps - done});
      const std::vector<StepResult> results = run_piece(done, count);
      const bool evaluates = count == before_evaluation || done + count == steps;
      const double seconds = seconds_since(start_);
      std::optional<double> test_accuracy;
      if (evaluates) test_accuracy = result_.test_accuracy = evaluate();
      const bool reached =
          evaluates && settings_.target_accuracy && *test_accuracy >= *settings_.target_accuracy;
      if (reached) result_.seconds_to_target = seconds_since_process_start();
      for (const StepResult& step : results) {
        loss_sum += static_cast<double>(step.loss);
        const bool is_last = &step == &results.back();
        const float rate = rates[static_cast<size_t>(done++)];
        if (on_step_)
          on_step_({epoch, done, steps, step.loss, step.accuracy, rate, seconds,
                    is_last ? test_accuracy : std::nullopt});
      }
      result_.final_loss = loss_sum / static_cast<double>(done);
      if (reached) return false;
    }
    return true;
  }

  // As many steps at once as take about this long: a person sees that it goes on, and where steps are short
  // an epoch is one piece.
  std::vector<StepResult> run_piece(int64_t first, int64_t count) {
    constexpr double kPieceSeconds = 0.1;
    const auto before = Clock::now();
    std::vector<StepResult> results = feed_->train(first, count);
    const double seconds = seconds_since(before);
    step_seconds_.insert(step_seconds_.end(), static_cast<size_t>(count),
                         seconds / static_cast<double>(count));
    if (count == piece_ && 2 * seconds < kPieceSeconds) piece_ *= 2;
    return results;
  }

  // Share of the test images that are recognised.
  double evaluate() {
    result_.confusion = {};
    int64_t right = 0;
    const std::vector<int32_t> answers = feed_->predict();
    for (size_t i = 0; i < answers.size(); ++i) {
      const size_t label = test_.labels[i];
      const auto answer = static_cast<size_t>(answers[i]);
      ++result_.confusion[label][answer];
      right += label == answer;
    }
    return static_cast<double>(right) / static_cast<double>(test_.count);
  }

  const TrainSettings& settings_;
  const TrainingGraph& net_;
  const Dataset &training_, &test_;
  const std::function<void(const StepReport&)>& on_step_;
  TrainResult& result_;
  std::unique_ptr<Feed> feed_;
  Clock::time_point start_;
  int64_t piece_ = 1;  // steps at once
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
  result.data_on = settings.data_on == DataOn::kDevice ? "device" : "host";
  result.kernels = settings.fused ? "fused" : "library";
  result.target_accuracy = settings.target_accuracy;
  result.math = math_names()[static_cast<size_t>(settings.math)];
  const TrainingGraph graph(settings,
                            {training.count, test.count, steps_per_epoch(settings, training.count)});
  try {
    Training(settings, graph, training, test, on_step, result).run(runtime);
  } catch (const OutOfMemory& error) {
    result.outcome = "out_of_memory";
    result.error = error.what();
    result.memory = error.facts();
  } catch (const LibraryError& error) {
    result.outcome = "library_failure";
    result.error = error.what();
    result.memory = error.memory();
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

void explain_failure(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                     const Runtime& runtime, TrainResult& result) {
  if (!result.memory) return;
  const Setting present{.device = twin_of(runtime.options(), runtime.memory_info()),
                        .options = runtime.options(),
                        .batch = settings.batch,
                        .has_plan = true};
  const Play play = [&](const Setting& setting) {
    TrainSettings changed = settings;
    changed.batch = setting.batch;
    const TrainingGraph net(changed, {training.count, test.count, steps_per_epoch(changed, training.count)});
    const Targets targets[] = {net.training_targets(), net.test_targets()};
    return play_program(net.graph, targets, setting);
  };
  result.report = explain_out_of_memory(*result.memory, present, play, result.error);
}

std::string to_json(const TrainResult& result) {
  nlohmann::ordered_json json;
  json["outcome"] = result.outcome;
  json["error"] = result.error;
  json["device"] = result.device;
  json["strategy"] = result.strategy;
  json["data_on"] = result.data_on;
  json["kernels"] = result.kernels;
  json["math"] = result.math;
  json["epochs"] = result.epochs;
  json["batch"] = result.batch;
  json["test_accuracy"] = result.test_accuracy;
  json["final_loss"] = result.final_loss;
  json["steps"] = result.steps;
  json["training_seconds"] = result.training_seconds;
  json["seconds_to_target"] =
      result.seconds_to_target ? nlohmann::ordered_json(*result.seconds_to_target) : nlohmann::ordered_json();
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
  json["out_of_memory"] =
      result.report ? nlohmann::ordered_json::parse(to_json(*result.report)) : nlohmann::ordered_json();
  return json.dump();
}

}  // namespace headroom
