#include "tools/workload/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include "base/errors.h"
#include "base/text.h"
#include "runtime/onnx/read_model.h"
#include "runtime/onnx/variable_data.h"

namespace headroom {
namespace {

Shape shape_of_tensor(const std::vector<int64_t>& extents) {
  return Shape(std::span<const int64_t>(extents));
}

}  // namespace

void add_model_options(OptionSet& set, ModelOptions& options) {
  set.begin_group("Model");
  set.add_text("model", "ONNX file of the net", &options.path);
  set.add_text("weights", "With --model: load the weights from this safetensors file", &options.weights);
  set.add_list("dim", "With --model: sizes of free axes, NAME=N; --batch sets the first axis", &options.dims);
  set.add_choice("loss", "With --model: loss function of the output", &options.loss);
  set.add_text("output", "With --model: output to compute the loss from (default: the first)",
               &options.output);
  set.add_choice(
      "precision",
      "With --model: type of activations, gradients and weights of products; master weights stay f32",
      &options.precision);
  set.add_integer("lora",
                  "With --model: train only adapters of this rank beside the matrices; 0: all weights",
                  &options.lora, 0, 1 << 16);
  set.add_number("lora-alpha", "With --lora: the adapters' products are scaled by this / rank; 0: by 1",
                 &options.lora_alpha, 0, 1e6);
  set.add_list("lora-targets",
               "With --lora: matrices by parts of their names, q,v (default: all but tables and the last)",
               &options.lora_targets);
  set.begin_group();
}

onnx::LoraSettings ModelOptions::lora_settings() const {
  onnx::LoraSettings settings{lora, lora_alpha, {}};
  for (const std::string& text : lora_targets) {
    for (const std::string_view target : split(text, ",")) {
      if (!target.empty()) settings.targets.emplace_back(target);
    }
  }
  if (lora == 0 && (lora_alpha > 0 || !settings.targets.empty()))
    throw InvalidArgument("--lora-alpha and --lora-targets need --lora RANK");
  return settings;
}

std::vector<onnx::StatePair> ModelOptions::state_pairs() const {
  std::vector<onnx::StatePair> pairs;
  for (const std::string& text : states) {
    for (const std::string_view pair : split(text, ",")) {
      const size_t equals = pair.find('=');
      if (equals == std::string_view::npos || equals == 0 || equals + 1 == pair.size())
        throw InvalidArgument(fmt::format("--state {}: is not INPUT=OUTPUT", printable(pair)));
      pairs.push_back({std::string(pair.substr(0, equals)), std::string(pair.substr(equals + 1))});
    }
  }
  return pairs;
}

std::map<std::string, std::string> ModelOptions::states_of(const onnx::Model& model) const {
  try {
    return onnx::find_states(model, state_pairs());
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", model.path, error.what()));
  }
}

std::shared_ptr<const onnx::Model> read_model(const ModelOptions& options) {
  return std::make_shared<const onnx::Model>(onnx::read_model(options.path, {options.weights}));
}

std::map<std::string, int64_t> parse_dims(const std::vector<std::string>& dims) {
  std::map<std::string, int64_t> extents;
  for (const std::string& text : dims) {
    const size_t equals = text.rfind('=');
    const std::string number = equals == std::string::npos ? "" : text.substr(equals + 1);
    const bool is_number =
        !number.empty() && number.size() < 10 && number.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || equals == 0)
      throw InvalidArgument(fmt::format("--dim {}: is not NAME=N", printable(text)));
    extents[text.substr(0, equals)] = std::stoll(number);
  }
  return extents;
}

std::vector<std::byte> drawn_data(const TensorSpec& spec, int64_t bound, uint64_t seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(spec.bytes()));
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto whole = static_cast<uint32_t>(std::clamp<int64_t>(bound, 1, INT32_MAX));
  for (int64_t i = 0; i < spec.shape.elements(); ++i) {
    std::byte* const at = bytes.data() + i * element_bytes(spec.dtype);
    if (spec.dtype == DType::kF32) {
      const float value = static_cast<float>(random()) / static_cast<float>(std::mt19937::max());
      std::memcpy(at, &value, sizeof value);
    } else if (spec.dtype == DType::kI32) {
      const auto value = static_cast<int32_t>(random() % whole);
      std::memcpy(at, &value, sizeof value);
    } else {
      *at = std::byte{1};  // masks let everything through
    }
  }
  return bytes;
}

void feed_bytes(Session& session, const Value& input, const std::vector<std::byte>& bytes) {
  const std::vector<Step>& steps = session.plan().steps;
  const bool is_read = std::ranges::any_of(
      steps, [&](const Step& step) { return step.kind == StepKind::kCopyIn && step.id == input.id; });
  if (!is_read) return;  // what is fetched does not depend on it
  const auto copy = [&](auto memory) {
    if (memory.size_bytes() != bytes.size()) {
      throw InvalidArgument(
          fmt::format("{}: {} bytes do not make {}", input.name(), bytes.size(), to_string(input.spec())));
    }
    std::memcpy(memory.data(), bytes.data(), bytes.size());
  };
  switch (input.spec().dtype) {
    case DType::kF32:
      return copy(session.input<float>(input));
    case DType::kI32:
      return copy(session.input<int32_t>(input));
    case DType::kU8:
      return copy(session.input<uint8_t>(input));
    case DType::kBf16:
    case DType::kF16:
      throw InvalidArgument(fmt::format("{}: inputs are not stored in 16 bits", input.name()));
  }
}

NamedTensor fetched(Session& session, const Value& value, const std::string& name) {
  const auto tensor = [&](auto numbers) {
    const auto bytes = std::as_bytes(numbers);
    return NamedTensor{name, value.spec(), {bytes.begin(), bytes.end()}};
  };
  switch (value.spec().dtype) {
    case DType::kF32:
      return tensor(session.output<float>(value));
    case DType::kI32:
      return tensor(session.output<int32_t>(value));
    case DType::kU8:
      return tensor(session.output<uint8_t>(value));
    case DType::kBf16:
    case DType::kF16:
      break;
  }
  throw InvalidArgument(fmt::format("{}: outputs are not stored in 16 bits", name));
}

int64_t index_bound(const Graph& graph, const Value& input) {
  std::set<int> same = {input.id};  // the input under other shapes
  int64_t bound = INT64_MAX;
  for (const Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!same.contains(node.inputs[i])) continue;
      if (std::holds_alternative<Reshape>(node.op) || std::holds_alternative<Transpose>(node.op)) {
        same.insert(node.outputs[0]);
      }
      if (std::holds_alternative<Gather>(node.op) && i == 1) {
        bound = std::min(bound, graph.value(node.inputs[0]).spec.shape[0]);
      }
    }
  }
  return bound == INT64_MAX ? 2 : bound;
}

const StoredTensor* ModelData::find(std::string_view name) const {
  for (const StoredTensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

const StoredTensor& ModelData::input(const onnx::Model& model, std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  const StoredTensor* only = model.inputs.size() == 1 ? find("x") : nullptr;
  if (only != nullptr) return *only;
  throw InvalidArgument(fmt::format("{}: has no tensor '{}' for the model's input", path(), printable(name)));
}

const StoredTensor& ModelData::labels() const {
  for (const char* name : {"y", "labels"}) {
    if (const StoredTensor* tensor = find(name)) return *tensor;
  }
  throw InvalidArgument(fmt::format("{}: has no labels: a tensor 'y' or 'labels'", path()));
}

int64_t ModelData::rows(const onnx::Model& model) const {
  int64_t rows = -1;
  const auto look = [&](const StoredTensor& tensor) {
    if (tensor.extents.empty())
      throw InvalidArgument(fmt::format("{}: tensor '{}' has no rows", path(), tensor.name));
    if (rows >= 0 && tensor.extents[0] != rows) {
      throw InvalidArgument(fmt::format("{}: tensor '{}' has {} rows, another one {}", path(), tensor.name,
                                        tensor.extents[0], rows));
    }
    rows = tensor.extents[0];
  };
  for (const onnx::ValueType& input : model.inputs) look(this->input(model, input.name));
  look(labels());
  return rows;
}

int64_t ModelData::batch(const onnx::Model& model) const {
  for (const onnx::ValueType& input : model.inputs) {
    if (lacks(input)) {
      if (input.shape && !input.shape->empty() && input.shape->front().extent >= 0)
        return input.shape->front().extent;
      continue;
    }
    const StoredTensor& tensor = this->input(model, input.name);
    if (!tensor.extents.empty()) return tensor.extents[0];
  }
  return 1;
}

std::map<std::string, onnx::HostTensor> ModelData::known(const onnx::Model& model) const {
  constexpr int64_t kFew = 8;
  std::map<std::string, onnx::HostTensor> known;
  for_each_input(model, [&](const onnx::ValueType& input, const StoredTensor& tensor) {
    const onnx::ElementType type = onnx::type_of_safetensors(tensor.type);
    const Shape shape = shape_of_tensor(tensor.extents);
    const bool are_few = shape.rank() < 2 && shape.elements() <= kFew && onnx::stored_bytes(type) > 0;
    if (!are_few || onnx::is_float(type) || onnx::is_float(input.type) || states_.contains(input.name))
      return;
    known.emplace(input.name, onnx::HostTensor({onnx::dtype_of_element(type), shape},
                                               onnx::convert_elements(type, tensor.data, shape.elements())));
  });
  return known;
}

std::vector<std::byte> ModelData::bytes_of(const StoredTensor& tensor, const TensorSpec& spec) const {
  const onnx::ElementType type = onnx::type_of_safetensors(tensor.type);
  const Shape given = shape_of_tensor(tensor.extents);
  if (onnx::stored_bytes(type) == 0 || onnx::dtype_of_element(type) != spec.dtype || given != spec.shape) {
    throw InvalidArgument(fmt::format("{}: tensor '{}' is {} {}, the model's input {}", path(),
                                      printable(tensor.name), printable(tensor.type), to_string(given),
                                      to_string(spec)));
  }
  return onnx::convert_elements(type, tensor.data, given.elements());
}

Initializer ModelData::first_value(const std::string& state, const TensorSpec& spec) const {
  const StoredTensor* tensor = find(state);
  return tensor == nullptr ? zeros() : given([bytes = bytes_of(*tensor, spec)] { return bytes; });
}

void ModelData::feed(Session& session, const onnx::Model& model, const onnx::BoundTensor& input) const {
  const TensorSpec stored{onnx::dtype_of_element(input.type), input.shape};
  feed_bytes(session, input.value,
             onnx::permuted_bytes(bytes_of(this->input(model, input.name), stored), stored, input.order));
}

std::map<std::string, int64_t> ModelData::dims(const onnx::Model& model, size_t first) const {
  std::map<std::string, int64_t> dims;
  for_each_input(model, [&](const onnx::ValueType& input, const StoredTensor& tensor) {
    if (!input.shape) return;
    if (input.shape->size() != tensor.extents.size()) {
      throw InvalidArgument(fmt::format("{}: tensor '{}' has rank {}, the model's input {}", path(),
                                        tensor.name, tensor.extents.size(), input.shape->size()));
    }
    for (size_t axis = first; axis < tensor.extents.size(); ++axis) {
      const onnx::Dimension& dimension = (*input.shape)[axis];
      if (dimension.extent >= 0) continue;
      dims[axis_name(input, axis)] = tensor.extents[axis];
    }
  });
  return dims;
}

std::vector<std::byte> ModelData::rows_of(const StoredTensor& tensor, int64_t first, int64_t count) {
  const onnx::ElementType type = onnx::type_of_safetensors(tensor.type);
  const Shape shape = shape_of_tensor(tensor.extents);
  const int64_t each = shape.rank() == 0 || shape[0] == 0 ? 0 : shape.elements() / shape[0];
  const int64_t bytes = each * onnx::stored_bytes(type);
  return onnx::convert_elements(
      type, tensor.data.subspan(static_cast<size_t>(first * bytes), static_cast<size_t>(count * bytes)),
      count * each);
}

const StoredTensor* ModelData::gradient(const onnx::ImportedModel& model, size_t parameter) const {
  constexpr std::string_view kPrefix = "grad.";
  const onnx::BoundTensor& sought = model.parameters[parameter];
  if (sought.is_merged) return nullptr;
  if (const StoredTensor* tensor = find(std::string(kPrefix) + sought.name)) return tensor;
  const Shape& shape = sought.shape;
  if (shape.rank() > 1 && shape[0] == shape[1]) return nullptr;  // a transposition would not be visible
  const auto has_gradient = [&](const onnx::BoundTensor& other) {
    return find(std::string(kPrefix) + other.name) != nullptr;
  };
  const auto is_parameter = [&](const std::string& name) {
    return std::ranges::any_of(model.parameters,
                               [&](const onnx::BoundTensor& other) { return other.name == name; });
  };
  // Exporters may also transpose a weight; extents do not tell which one.
  const auto sorted = [](std::vector<int64_t> extents) {
    std::ranges::sort(extents);
    return extents;
  };
  const std::vector<int64_t> extents(sought.shape.begin(), sought.shape.end());
  const auto is_left = [&](const onnx::BoundTensor& other) {
    return sorted({other.shape.begin(), other.shape.end()}) == sorted(extents) && !has_gradient(other);
  };
  if (std::ranges::count_if(model.parameters, is_left) != 1) return nullptr;
  const StoredTensor* found = nullptr;
  for (const StoredTensor& tensor : tensors_) {
    if (!tensor.name.starts_with(kPrefix) || is_parameter(tensor.name.substr(kPrefix.size()))) continue;
    if (sorted(tensor.extents) != sorted(extents)) continue;
    if (found != nullptr) return nullptr;
    found = &tensor;
  }
  return found != nullptr && found->extents == extents ? found : nullptr;
}

}  // namespace headroom
