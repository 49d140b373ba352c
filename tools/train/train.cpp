// headroom train: trains the model of an ONNX file for some steps, on data from a file or on random numbers,
// and compares with reference results if the file has them.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "answers/step_kernels.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/text.h"
#include "runtime/app/replicas.h"
#include "runtime/app/runtime.h"
#include "runtime/graph/optimizer.h"
#include "runtime/onnx/variable_data.h"
#include "runtime/session/session.h"
#include "runtime/session/start_op.h"
#include "tools/gpu_program.h"
#include "tools/subcommands.h"
#include "tools/workload/model_files.h"
#include "tools/workload/workload.h"

namespace headroom {
namespace {

struct TrainOptions {
  ModelOptions model;
  RuntimeOptions runtime = {.device = "cpu"};
  std::string data, save, optimizer = "adam";
  Math math = Math::kTf32;
  double learning_rate = 1e-3;
  int64_t batch = 0;  // 0: all rows of the data, or 8
  int64_t steps = 10;
  bool json = false;
};

// A tensor in the file's order of axes.
struct NamedFloats {
  std::string name;
  std::vector<float> values;
};

struct Trained : RunResult {
  int64_t batch = 0, parameters = 0;
  std::vector<float> losses;
  double seconds_per_step = 0;
  std::optional<NamedFloats> evaluated;
  std::vector<NamedFloats> gradients;
  // Differences from the reference values, as shares of the largest one; of all gradients together.
  double evaluated_error = 0, gradients_error = 0;
  std::vector<std::string> notes;
};

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Numbers of a value in the file's order of axes.
std::vector<float> in_file_order(std::span<const float> values, const Shape& shape, const onnx::Axes& order) {
  return floats_of(onnx::permuted_bytes(std::as_bytes(values), {DType::kF32, shape}, onnx::inverse(order)));
}

struct Difference {
  double absolute = 0, scale = 0;  // the largest difference, and the largest number of the reference

  double share() const { return scale > 0 ? absolute / scale : absolute; }
};

Difference difference_of(const std::vector<float>& values, const StoredTensor& tensor) {
  const onnx::ElementType type = onnx::type_of_safetensors(tensor.type);
  int64_t count = 1;
  for (int64_t extent : tensor.extents) count *= extent;
  if (!onnx::is_float(type) || count != static_cast<int64_t>(values.size())) {
    throw InvalidArgument(
        fmt::format("reference '{}' has other extents or another type", printable(tensor.name)));
  }
  const std::vector<float> expected = floats_of(onnx::convert_elements(type, tensor.data, count));
  Difference difference;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference.scale = std::max(difference.scale, std::abs(static_cast<double>(expected[i])));
    const double here = std::abs(static_cast<double>(values[i]) - static_cast<double>(expected[i]));
    // A NaN is as far away as can be.
    difference.absolute = here <= difference.absolute ? difference.absolute : here;
  }
  return difference;
}

// The model, its data and its settings; each part below has a graph of its own on the same device.
class Training {
 public:
  Training(const TrainOptions& options, Runtime& runtime) : options_(options), runtime_(runtime) {
    model_ = read_model(options.model);
    if (!options.data.empty()) data_.emplace(options.data);
    rows_ = data_ ? data_->rows(*model_) : options.batch > 0 ? options.batch : kDrawnRows;
    batch_ = options.batch > 0 ? options.batch : rows_;
    if (batch_ > rows_ || batch_ < 1)
      throw InvalidArgument(fmt::format("{} rows of data do not make a batch of {}", rows_, batch_));
    settings_.import.dims = parse_dims(options.model.dims);
    if (data_) settings_.import.dims.merge(data_->dims(*model_));
    settings_.import.batch = batch_;
    settings_.import.seed = static_cast<uint64_t>(options.runtime.seed);
    settings_.import.lora = options.model.lora_settings();
    settings_.loss = options.model.loss;
    settings_.output = options.model.output;
    settings_.optimizer = options.optimizer;
    settings_.precision = options.model.precision;
    if (data_) {
      Shape labels{std::span<const int64_t>(data_->labels().extents)};
      settings_.label_shape = labels.with(0, batch_);
    }
  }

  // All that runs is planned before any of it does.
  void run(const DeviceName& device, Trained& result) {
    result.batch = batch_;
    std::optional<Part<onnx::ModelInference>> evaluated;
    if (data_ && data_->find("eval_output") != nullptr) evaluated = part_to_evaluate(device);
    std::optional<Part<onnx::ModelStep>> differentiated;
    const auto has_gradients = [](const StoredTensor& tensor) { return tensor.name.starts_with("grad."); };
    if (data_ && std::ranges::any_of(data_->tensors(), has_gradients))
      differentiated = part_to_differentiate(device);
    const std::shared_ptr<onnx::ModelStep> step = make_model_step(model_, settings_);
    const Part<onnx::ModelStep> trained = part_of(step, step->targets(), device, part_of_batch());
    if (refusal_) throw MemoryTooSmall(*refusal_);
    if (evaluated) evaluate(*evaluated, device, result);
    if (differentiated) differentiate(*differentiated, device, result);
    train(trained, device, result);
  }

 private:
  static constexpr int64_t kDrawnRows = 8;

  // A graph that runs, and how it keeps to the memory of the options.
  template <typename T>
  struct Part {
    std::shared_ptr<T> made;
    Program program;
    RuntimeOptions options;
    std::shared_ptr<const MemorySolution> planned;
    const Targets& targets() const { return program.targets.front(); }
  };

  // Plans the graph of the program; its batch stays whole unless parts of it can be made. Of several
  // refusals, keeps the one that needs most.
  template <typename T>
  Part<T> part_of(std::shared_ptr<T> made, const Targets& targets, const DeviceName& device,
                  decltype(Program::part) part = {}) {
    Part<T> result{made, {{made, &made->graph}, {targets}, {}, std::move(part)}, options_.runtime, nullptr};
    if (!result.program.part) result.options.split_batch = SplitBatch::kNever;
    // Libraries that start for one part stay for the others.
    if (result.options.memory_bytes) runtime_.expect_libraries(device.text(), libraries_of(made->graph, {}));
    try {
      result.planned = plan_ahead(result.program, result.options);
    } catch (const MemoryTooSmall& error) {
      const auto least_of = [](const MemoryTooSmall& refusal) {
        return refusal.least_bytes() > 0 ? refusal.least_bytes() : std::numeric_limits<int64_t>::max();
      };
      if (!refusal_ || least_of(error) > least_of(*refusal_)) refusal_.emplace(error);
    }
    return result;
  }

  template <typename T>
  KernelsAndMemory kernels_of(const Part<T>& part, const DeviceSet& devices) {
    return make_step_kernels(part.made->graph, part.program, devices, kernel_settings(), part.options,
                             part.planned);
  }

  KernelSettings kernel_settings() const {
    KernelSettings settings;
    settings.math = options_.math;
    return settings;
  }

  // The rows of a step, over and over: the last ones that do not fill a batch are left out.
  void feed(Session& session, const Graph& graph, const onnx::ImportedModel& model, int64_t step,
            int64_t count) {
    const int64_t first = step % (rows_ / count) * count;
    for (const onnx::BoundTensor& input : model.inputs) {
      const TensorSpec stored{onnx::dtype_of_element(input.type), input.shape};
      std::vector<std::byte> bytes;
      if (data_) {
        const StoredTensor& tensor = data_->input(*model_, input.name);
        bytes = ModelData::rows_of(tensor, first, count);
        if (dtype_of_element(onnx::type_of_safetensors(tensor.type)) != stored.dtype ||
            static_cast<int64_t>(bytes.size()) != stored.bytes()) {
          throw InvalidArgument(fmt::format("{}: tensor '{}' does not fit the input {}", options_.data,
                                            printable(tensor.name), to_string(stored)));
        }
      } else {
        bytes = drawn_data(stored, index_bound(graph, input.value), 1);
      }
      feed_bytes(session, input.value, onnx::permuted_bytes(bytes, stored, input.order));
    }
  }

  void feed_labels(Session& session, const onnx::ModelStep& step, int64_t number) {
    if (!data_) return feed_bytes(session, step.labels, drawn_data(step.labels.spec(), step.classes, 2));
    const StoredTensor& labels = data_->labels();
    const int64_t first = number % (rows_ / batch_) * batch_;
    const bool are_numbers = onnx::is_float(onnx::type_of_safetensors(labels.type));
    if (are_numbers != (step.labels.spec().dtype == DType::kF32)) {
      throw InvalidArgument(fmt::format("{}: labels of {} do not fit this loss", options_.data, labels.type));
    }
    feed_bytes(session, step.labels, ModelData::rows_of(labels, first, batch_));
  }

  Part<onnx::ModelInference> part_to_evaluate(const DeviceName& device) {
    const StoredTensor& expected = *data_->find("eval_output");
    onnx::ModelStepSettings settings = settings_;
    settings.import.batch = expected.extents.empty() ? rows_ : std::min(rows_, expected.extents[0]);
    const std::shared_ptr<onnx::ModelInference> inference = make_model_inference(model_, settings);
    const Value output = inference->outputs[inference->model.find_output(options_.model.output)];
    return part_of(inference, {{output}}, device);
  }

  void evaluate(const Part<onnx::ModelInference>& part, const DeviceName& device, Trained& result) {
    const StoredTensor& expected = *data_->find("eval_output");
    Graph& graph = part.made->graph;
    const ReplicaPlace here = settle_replica(graph, runtime_, {device}, nullptr);
    const auto kernels = kernels_of(part, here.devices).first;
    Plan plan = make_plan(graph, part.targets(), options_.runtime.plan, kernels->workspace_bytes());
    Variables variables(graph, here.devices);
    Session session(graph, std::move(plan), kernels, variables);
    const int64_t rows = expected.extents.empty() ? rows_ : std::min(rows_, expected.extents[0]);
    feed(session, graph, part.made->model, 0, rows);
    session.run();
    const auto values = session.output<float>(part.targets().fetches.front());
    result.evaluated = NamedFloats{"eval_output", {values.begin(), values.end()}};
    result.evaluated_error = difference_of(result.evaluated->values, expected).share();
  }

  Part<onnx::ModelStep> part_to_differentiate(const DeviceName& device) {
    onnx::ModelStepSettings settings = settings_;
    settings.fetches_gradients = true;
    const std::shared_ptr<onnx::ModelStep> step = make_model_step(model_, settings);
    Targets targets{step->gradients};
    if (step->inverse_scale) targets.fetches.push_back(*step->inverse_scale);
    return part_of(step, targets, device);
  }

  void differentiate(const Part<onnx::ModelStep>& part, const DeviceName& device, Trained& result) {
    const std::shared_ptr<onnx::ModelStep>& step = part.made;
    const ReplicaPlace here = settle_replica(step->graph, runtime_, {device}, nullptr);
    const auto kernels = kernels_of(part, here.devices).first;
    Plan plan = make_plan(step->graph, part.targets(), options_.runtime.plan, kernels->workspace_bytes());
    Variables variables(step->graph, here.devices);
    Session session(step->graph, std::move(plan), kernels, variables);
    feed(session, step->graph, step->model, 0, batch_);
    feed_labels(session, *step, 0);
    session.run();
    const float factor = step->inverse_scale ? session.output<float>(*step->inverse_scale)[0] : 1;
    Difference all;
    for (size_t i = 0; i < step->gradients.size(); ++i) {
      const onnx::BoundTensor& parameter = step->model.parameters[i];
      const StoredTensor* expected = data_->gradient(step->model, i);
      if (expected == nullptr) continue;
      NamedFloats gradient{
          expected->name.substr(std::string_view("grad.").size()),
          in_file_order(session.output<float>(step->gradients[i]), parameter.value.shape(), parameter.order)};
      for (float& number : gradient.values) number *= factor;
      const Difference difference = difference_of(gradient.values, *expected);
      all.scale = std::max(all.scale, difference.scale);
      all.absolute = difference.absolute <= all.absolute ? all.absolute : difference.absolute;
      result.gradients.push_back(std::move(gradient));
    }
    result.gradients_error = all.share();
  }

  decltype(Program::part) part_of_batch() const {
    return [this](int64_t parts) -> std::shared_ptr<const Graph> {
      if (batch_ % parts != 0) return nullptr;
      onnx::ModelStepSettings settings = settings_;
      settings.import.batch = batch_ / parts;
      // A first axis that data gives is the batch.
      if (settings.label_shape && settings.label_shape->rank() > 0)
        settings.label_shape = settings.label_shape->with(0, batch_ / parts);
      std::shared_ptr<onnx::ModelStep> step = make_model_step(model_, settings);
      return {step, &step->graph};
    };
  }

  void train(const Part<onnx::ModelStep>& part, const DeviceName& device, Trained& result) {
    const std::shared_ptr<onnx::ModelStep>& step = part.made;
    const ReplicaPlace here = settle_replica(step->graph, runtime_, {device}, nullptr);
    result.notes = step->model.notes;
    if (step->model.absent_bytes > 0) {
      result.notes.push_back(fmt::format("{} of weights are missing: initialized with seed {}",
                                         format_bytes(step->model.absent_bytes), options_.runtime.seed));
    }
    for (const Value& parameter : step->parameters()) result.parameters += parameter.shape().elements();
    const auto [kernels, memory] = kernels_of(part, here.devices);
    if (memory) result.notes.insert(result.notes.end(), memory->notes.begin(), memory->notes.end());
    Plan plan = make_plan(step->graph, part.targets(), options_.runtime.plan, kernels->workspace_bytes());
    Variables variables(step->graph, here.devices);
    Session session(step->graph, std::move(plan), kernels, variables);
    session.input<float>(step->learning_rate)[0] = static_cast<float>(options_.learning_rate);
    std::vector<double> seconds;
    Progress progress(static_cast<double>(options_.steps), "steps");
    for (int64_t i = 0; i < options_.steps; ++i) {
      feed(session, step->graph, step->model, i, batch_);
      feed_labels(session, *step, i);
      const auto start = std::chrono::steady_clock::now();
      session.run();
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      result.losses.push_back(session.output<float>(step->loss)[0]);
      progress.start(fmt::format("loss {:.4f}", result.losses.back()));
      progress.advance(1);
    }
    progress.finish();
    if (!options_.save.empty()) save(step->model, variables);
    std::ranges::sort(seconds);
    if (!seconds.empty()) result.seconds_per_step = seconds[seconds.size() / 2];
  }

  // The trained weights, in the file's order of axes; of LoRA the adapters, as peft names them.
  void save(const onnx::ImportedModel& model, const Variables& variables) {
    std::vector<NamedTensor> tensors;
    for (const onnx::BoundTensor& parameter : model.parameters) {
      const std::vector<std::byte> bytes = variables.read(parameter.value);
      tensors.push_back(
          {parameter.name,
           {DType::kF32, parameter.shape},
           onnx::permuted_bytes(bytes, parameter.value.spec(), onnx::inverse(parameter.order))});
    }
    TensorMetadata metadata;
    if (const onnx::LoraSettings& lora = settings_.import.lora; lora.is_on()) {
      metadata["r"] = std::to_string(lora.rank);
      metadata["lora_alpha"] =
          fmt::format("{}", lora.alpha > 0 ? lora.alpha : static_cast<double>(lora.rank));
    }
    save_safetensors(options_.save, tensors, metadata);
  }

  const TrainOptions& options_;
  Runtime& runtime_;
  std::shared_ptr<const onnx::Model> model_;
  std::optional<ModelData> data_;
  int64_t rows_ = 0, batch_ = 0;
  onnx::ModelStepSettings settings_;
  std::optional<MemoryTooSmall> refusal_;  // refusal of the part that needs most
};

nlohmann::ordered_json to_json(const TrainOptions& options, const Trained& result) {
  nlohmann::ordered_json json;
  json["outcome"] = to_string(result.outcome);
  json["error"] = result.error;
  json["model"] = options.model.path;
  json["device"] = options.runtime.device;
  json["precision"] = to_string(options.model.precision);
  json["batch"] = result.batch;
  json["parameters"] = result.parameters;
  json["losses"] = result.losses;
  json["seconds_per_step"] = result.seconds_per_step;
  json["peak_device_bytes"] = result.peak_device_bytes;
  json["peak_reserved_bytes"] = result.peak_reserved_bytes;
  json["peak_allocated_bytes"] = result.peak_allocated_bytes;
  json["notes"] = result.notes;
  if (result.evaluated) {
    json["eval_output_error"] = result.evaluated_error;
    json["eval_output"] = result.evaluated->values;
  }
  if (!result.gradients.empty()) {
    json["gradients_error"] = result.gradients_error;
    for (const NamedFloats& gradient : result.gradients) json["gradients"][gradient.name] = gradient.values;
  }
  return json;
}

void print(const TrainOptions& options, const Trained& result, const Terminal& terminal) {
  fmt::print("{}\n",
             terminal.wrapped(fmt::format("{}: {}, batch {}, {} on {}, {} step{}", to_string(result.outcome),
                                          printable(options.model.path), result.batch, options.optimizer,
                                          options.runtime.device, result.losses.size(),
                                          result.losses.size() == 1 ? "" : "s")));
  if (!result.error.empty()) fmt::print("{}\n", terminal.wrapped(result.error));
  for (const std::string& note : result.notes) fmt::print("{}\n", terminal.wrapped("note: " + note));
  Table losses({{.title = "step", .is_number = true}, {.title = "loss", .is_number = true}});
  const size_t every = std::max<size_t>(1, result.losses.size() / 10);
  for (size_t i = 0; i < result.losses.size(); ++i) {
    if (i % every == 0 || i + 1 == result.losses.size())
      losses.add({fmt::format("{}", i + 1), fmt::format("{:.6f}", result.losses[i])});
  }
  if (result.losses.empty() && result.outcome != RunOutcome::kOk) return;
  fmt::print("\n{}\n{}\n", losses.text(terminal),
             terminal.wrapped(fmt::format("{:.1f} ms/step, {} parameters, {} MiB allocated at the peak",
                                          1e3 * result.seconds_per_step, thousands(result.parameters),
                                          format_mib(result.peak_allocated_bytes))));
  if (!result.evaluated) return;
  std::string against = fmt::format(
      "against the reference: output before training {:.2e} of its largest number", result.evaluated_error);
  if (!result.gradients.empty())
    against += fmt::format(", gradients {:.2e} of theirs", result.gradients_error);
  fmt::print("{}\n", terminal.wrapped(against));
}

}  // namespace

int run_train(int argc, char** argv) {
  TrainOptions options;
  OptionSet set("headroom train", "Trains the model of an ONNX file.");
  add_model_options(set, options.model);
  set.add_text("data", "Train on the tensors of this safetensors file: inputs by name (or x), labels as y",
               &options.data);
  set.add_text("save", "Write the trained weights to this safetensors file; with --lora the adapters",
               &options.save);
  std::vector<std::string> optimizers(optimizer_names().begin(), optimizer_names().end());
  set.add_choice("optimizer", "Optimizer", &options.optimizer, optimizers);
  set.add_number("learning-rate", "Learning rate", &options.learning_rate, 0, 1e6);
  set.add_integer("batch", "Batch size of a step; 0: all rows of the data, or 8", &options.batch, 0,
                  int64_t{1} << 40);
  set.add_integer("steps", "Steps to train", &options.steps, 0, int64_t{1} << 40);
  set.add_choice("math", "Precision of products on a GPU; sums are f32", &options.math);
  add_runtime_options(set, options.runtime);
  set.add_switch("json", "Print one line of JSON, with differences from reference values in the data",
                 &options.json);
  set.set_examples(
      "  headroom train --model net.onnx --data digits.safetensors --optimizer adam --steps 100\n"
      "  headroom train --model llama.onnx --lora 16 --lora-targets q,v --save adapter_model.safetensors\n"
      "  headroom train --model bert.onnx --batch 4 --dim length=128 --device sim:h200   with random "
      "tokens\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (!options.model.is_given()) throw InvalidArgument("no model given; pass --model FILE.onnx");
  if (!options.save.empty()) require_writable(options.save);
  pack_for_memory(set, options.runtime);
  if (cuda_ordinal(options.runtime.device)) continue_in_gpu_program(argv);
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);

  if (const auto note = lower_memory_to_free(options.runtime)) fmt::print(stderr, "note: {}\n", *note);
  record_program(options.runtime, "model", options.model.path, options.batch);
  Runtime runtime(options.runtime);
  Training training(options, runtime);
  const ReplicaWork<Trained> work = [&](int, const ReplicaDevices& devices, Collective*, Trained& result) {
    training.run(devices.first, result);
  };
  const Trained result = run_on_devices(runtime, 1, std::chrono::minutes(1), Trained{}, work);
  if (options.json) {
    fmt::print("{}\n", json_text(to_json(options, result)));
  } else {
    print(options, result, set.terminal());
  }
  return exit_code_of(result.outcome);
}

}  // namespace headroom
