#include "runtime/onnx/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/text.h"

namespace headroom::onnx {
namespace {

// PyTorch's record of a program's inputs, one line each: "p_weight: PARAMETER target='encoder.weight'".
struct Signature {
  std::unordered_set<std::string> parameters, buffers;
};

Signature signature_of(const Model& model) {
  Signature signature;
  const auto found = model.metadata.find("pkg.torch.export.ExportedProgram.graph_signature");
  if (found == model.metadata.end()) return signature;
  const std::string_view text = found->second;
  constexpr std::string_view kTarget = " target='";
  size_t at = 0;
  while ((at = text.find(kTarget, at)) != std::string_view::npos) {
    const std::string_view before = text.substr(0, at);
    at += kTarget.size();
    const size_t end = text.find('\'', at);
    if (end == std::string_view::npos) break;
    std::string name(text.substr(at, end - at));
    if (before.ends_with(": PARAMETER"))
      signature.parameters.insert(std::move(name));
    else if (before.ends_with(": BUFFER"))
      signature.buffers.insert(std::move(name));
    at = end;
  }
  return signature;
}

bool is_recurrent(const OnnxNode& node) {
  return node.op == "GRU" || node.op == "LSTM" || node.op == "RNN";
}

bool is_weight_place(const OnnxNode& node, size_t i) {
  const std::string_view op = node.op;
  if (op == "MatMul" || op == "Conv" || op == "ConvTranspose" || op == "Gemm")
    return i >= 1 || op == "MatMul" || op == "Gemm";
  if (op == "Gather") return i == 0;
  if (op == "PRelu") return i == 1;
  if (is_recurrent(node)) return (i >= 1 && i <= 3) || i == 7;
  return (op.ends_with("Normalization")) && (i == 1 || i == 2);
}

// Places whose numbers are settings, not weights.
bool is_setting_place(const OnnxNode& node, size_t i) {
  const std::string_view op = node.op;
  if (op == "Clip" || op == "Pad" || op == "Resize" || op == "Upsample" || op == "Dropout" || op == "Range" ||
      op == "OneHot" || op == "Trilu") {
    return i > 0;
  }
  return op == "Pow" && i == 1;
}

bool is_statistic_place(const OnnxNode& node, size_t i) {
  return node.op == "BatchNormalization" && i >= 3;
}

struct Uses {
  int all = 0, weights = 0, settings = 0, statistics = 0, tables = 0;
  int states = 0;                     // that a recurrent layer begins with
  int vectors = 0, factors = 0;       // scales, shifts and biases; operands of products of elements
  std::set<std::string_view> beside;  // the weights of the layers that it is the bias of, or other nodes
};

// Returns the elements if they are floats in the file, otherwise nullopt.
std::optional<std::vector<float>> numbers_of(const Tensor* tensor) {
  if (tensor == nullptr || tensor->is_absent || !is_float(tensor->type)) return std::nullopt;
  const std::vector<std::byte> bytes = convert_elements(tensor->type, tensor->data, tensor->elements());
  std::vector<float> numbers(bytes.size() / sizeof(float));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

bool are_all(const std::optional<std::vector<float>>& numbers, float number) {
  return numbers && std::ranges::all_of(*numbers, [&](float element) { return element == number; });
}

// Returns true if the tensor hides scores: it has -infinity or a number near the lowest one, which no
// training leaves in a weight.
bool is_mask(const Tensor& tensor) {
  constexpr float kHidden = -1e30f;
  constexpr int64_t kReadAtOnce = 1 << 16;  // a large weight is not copied for this
  if (tensor.is_absent) return false;
  for (int64_t at = 0; at < tensor.elements(); at += kReadAtOnce) {
    const int64_t count = std::min(kReadAtOnce, tensor.elements() - at), bytes = stored_bytes(tensor.type);
    Tensor part;
    part.type = tensor.type;
    part.extents = {count};
    part.data = tensor.data.subspan(static_cast<size_t>(at * bytes), static_cast<size_t>(count * bytes));
    const auto numbers = numbers_of(&part);
    if (numbers && std::ranges::any_of(*numbers, [](float x) { return x < kHidden; })) return true;
  }
  return false;
}

// Returns true if the elements of `a` (R,C) are those of `b` (C,R), and not all one number.
bool is_transposed(const Tensor& a, const Tensor& b) {
  if (a.type != b.type) return false;
  const auto bytes = static_cast<size_t>(stored_bytes(a.type));
  const auto rows = static_cast<size_t>(a.extents[0]), columns = static_cast<size_t>(a.extents[1]);
  bool varies = false;
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      const std::byte* const element = a.data.data() + (i * columns + j) * bytes;
      if (std::memcmp(element, b.data.data() + (j * rows + i) * bytes, bytes) != 0) return false;
      varies = varies || std::memcmp(element, a.data.data(), bytes) != 0;
    }
  }
  return varies;
}

// Returns true if each use of a vector may have been a weight of its own. Factors, and biases of more axes
// such as those of Keras's heads, qualify if they are fresh: then all their elements are equal.
bool is_merged(const Tensor& tensor, const Uses& use) {
  if (use.all < 2 || tensor.extents.empty()) return false;
  if (use.beside.size() == 1) return false;  // one layer that is used several times
  if (tensor.extents.size() == 1 && use.vectors == use.all) return true;
  if (use.vectors + use.factors != use.all) return false;
  const auto numbers = numbers_of(&tensor);
  return numbers && numbers->size() > 1 && are_all(numbers, numbers->front());
}

// An exporter that folds constants turns the head that shares its weight with a table of embeddings into a
// transposed copy of the table.
void find_transposed_tables(const Model& model, const std::unordered_map<std::string_view, Uses>& uses,
                            Roles& roles) {
  std::map<std::pair<int64_t, int64_t>, std::vector<const Tensor*>> tables;  // by extents
  const auto is_matrix = [&](const Tensor& tensor) {
    return tensor.extents.size() == 2 && tensor.elements() > 1 && !tensor.is_absent &&
           roles.kind_of(tensor.name) == SourceKind::kParameter;
  };
  for (const Tensor& tensor : model.initializers) {
    if (is_matrix(tensor) && uses.at(tensor.name).tables > 0)
      tables[{tensor.extents[0], tensor.extents[1]}].push_back(&tensor);
  }
  for (const Tensor& tensor : model.initializers) {
    if (!is_matrix(tensor) || uses.at(tensor.name).tables > 0) continue;
    const auto found = tables.find({tensor.extents[1], tensor.extents[0]});
    if (found == tables.end()) continue;
    for (const Tensor* table : found->second) {
      if (!is_transposed(tensor, *table)) continue;
      roles.copies[tensor.name] = table;
      roles.notes.push_back(fmt::format("'{}' is '{}' transposed: they stay one weight",
                                        printable(tensor.name), printable(table->name)));
      break;
    }
  }
}

// Returns the only row of a table that is all zeros, -1 if there is none or several.
int64_t row_of_zeros(const Tensor& table) {
  if (table.is_absent || table.extents.size() != 2 || table.extents[0] < 2 || table.extents[1] < 1) return -1;
  const size_t row_bytes = static_cast<size_t>(table.extents[1] * stored_bytes(table.type));
  int64_t found = -1;
  for (int64_t row = 0; row < table.extents[0]; ++row) {
    const std::byte* const begin = table.data.data() + static_cast<size_t>(row) * row_bytes;
    if (!std::all_of(begin, begin + row_bytes, [](std::byte byte) { return byte == std::byte{0}; })) continue;
    if (found >= 0) return -1;
    found = row;
  }
  return found;
}

// PyTorch does not train the row of an embedding that stands for padding (padding_idx). Its newer exporter
// writes the row with the lookup. The older one drops it, but the row is recognized by its zeros: PyTorch
// writes them when it makes the table, and initializes all other rows randomly.
void find_padding_rows(const Model& model, Roles& roles) {
  std::unordered_map<std::string_view, const Tensor*> tables;
  for (const Tensor& tensor : model.initializers) {
    if (tensor.extents.size() == 2 && is_float(tensor.type) &&
        roles.kind_of(tensor.name) == SourceKind::kParameter)
      tables.emplace(tensor.name, &tensor);
  }
  std::unordered_map<const Tensor*, int64_t> guessed;
  for_each_node(model.nodes, [&](const OnnxNode& node) {
    if (node.op != "Gather" || node.inputs.size() != 2) return;
    const Attribute* const axis = node.find("axis");
    const auto found = tables.find(node.inputs[0]);
    if (found == tables.end() || (axis != nullptr && axis->integer != 0 && axis->integer != -2)) return;
    const Tensor& table = *found->second;
    int64_t row = -1;
    if (node.padding_row) {
      row = *node.padding_row;
    } else {
      const auto [known, is_new] = guessed.try_emplace(&table, -1);
      if (is_new) {
        known->second = row_of_zeros(table);
        if (known->second >= 0) {
          roles.notes.push_back(
              fmt::format("row {} of '{}' is zeros: taken for padding, which is not trained", known->second,
                          printable(table.name)));
        }
      }
      row = known->second;
    }
    if (row >= 0 && row < table.extents[0] && row <= (1 << 24)) roles.padding_rows[&node] = row;
  });
}

// PyTorch's older exporter runs a net once to trace it. In training mode this run moves the running
// statistics by one batch, also those of a net that was never trained. Such a net is known by its scales,
// which are all 1 (or all 0, as the last ones of residual branches), its shifts, which are 0, and its
// variances, which one step from 1 leaves at or above the momentum.
void find_moved_statistics(const Model& model, Roles& roles) {
  std::unordered_map<std::string_view, const Tensor*> tensors;
  for (const Tensor& tensor : model.initializers) tensors.emplace(tensor.name, &tensor);
  std::unordered_map<std::string_view, float> before;
  bool has_moved = false;
  for (const OnnxNode& node : model.nodes) {
    if (node.op != "BatchNormalization") continue;
    const Attribute* const mode = node.find("training_mode");
    if (mode == nullptr || mode->integer == 0 || node.inputs.size() != 5) return;
    const auto tensor = [&](size_t i) {
      const auto found = tensors.find(node.inputs[i]);
      return found == tensors.end() ? nullptr : found->second;
    };
    if (tensor(1) == nullptr || roles.kind_of(node.inputs[1]) != SourceKind::kParameter) return;
    const auto scale = numbers_of(tensor(1)), shift = numbers_of(tensor(2));
    const auto mean = numbers_of(tensor(3)), variance = numbers_of(tensor(4));
    if (!(are_all(scale, 1) || are_all(scale, 0)) || !are_all(shift, 0) || !mean || !variance) return;
    const Attribute* const stays = node.find("momentum");
    const float least = (stays == nullptr ? 0.9f : stays->number) * (1 - 1e-6f);
    const auto is_below = [&](float number) { return !(number >= least); };
    if (std::ranges::any_of(*variance, is_below)) return;
    has_moved = has_moved || !are_all(mean, 0) || !are_all(variance, 1);
    before[tensor(3)->name] = 0;
    before[tensor(4)->name] = 1;
  }
  if (!has_moved) return;
  roles.moved = std::move(before);
  roles.notes.push_back(
      "the export ran the untrained net once, which moved its running statistics: they start at 0 and 1 "
      "again");
}

// Matrices and filters of integers that only DequantizeLinear reads.
void find_stored(const Model& model, Roles& roles) {
  for (const Tensor& tensor : model.initializers) {
    const bool is_small =
        stored_bits(tensor.type) <= 8 && !is_float(tensor.type) && tensor.type != ElementType::kBool;
    if (is_small && tensor.extents.size() > 1 && tensor.elements() > 0) roles.stored.insert(tensor.name);
  }
  for_each_node(model.nodes, [&](const OnnxNode& node) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.op != "DequantizeLinear" || i > 0) roles.stored.erase(node.inputs[i]);
    }
    for (const Attribute& attribute : node.attributes) {
      if (!attribute.body) continue;
      for (const std::string& output : attribute.body->outputs) roles.stored.erase(output);
    }
  });
  for (const ValueType& output : model.outputs) roles.stored.erase(output.name);
}

}  // namespace

Roles find_roles(const Model& model, bool is_training) {
  const Signature signature = signature_of(model);
  const bool is_told = !signature.parameters.empty();
  std::unordered_map<std::string_view, Uses> uses;
  for (const Tensor& tensor : model.initializers) uses.emplace(tensor.name, Uses());
  // A weight that is only transposed or passed on is used where the result is.
  std::unordered_map<std::string_view, std::string_view> passed, products;
  const auto origin_of = [&](std::string_view name) {
    const auto origin = passed.find(name);
    return origin == passed.end() ? name : origin->second;
  };
  int batch_norms = 0, convolutions = 0;
  for_each_node(model.nodes, [&](const OnnxNode& node) {
    if (node.op == "BatchNormalization") ++batch_norms;
    if (node.op == "Conv") ++convolutions;
    const bool takes_bias = node.op == "Gemm" || node.op.starts_with("Conv");
    if (node.op == "MatMul" && node.inputs.size() == 2 && !node.outputs.empty())
      products[node.outputs[0]] = origin_of(node.inputs[1]);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto found = uses.find(origin_of(node.inputs[i]));
      if (found == uses.end()) continue;
      const bool passes = (node.op == "Transpose" || node.op == "Identity" || node.op == "Reshape" ||
                           node.op == "Unsqueeze" || node.op == "Squeeze") &&
                          i == 0;
      if (passes && !node.outputs.empty()) {
        passed[node.outputs[0]] = found->first;
        continue;
      }
      Uses& use = found->second;
      ++use.all;
      if (is_weight_place(node, i)) ++use.weights;
      if (is_setting_place(node, i)) ++use.settings;
      if (is_statistic_place(node, i)) ++use.statistics;
      if (is_recurrent(node) && (i == 5 || i == 6)) ++use.states;
      if (node.op.ends_with("Normalization") || (takes_bias && i == 2) || node.op == "Add") {
        ++use.vectors;
      }
      std::string_view beside = node.outputs.empty() ? node.name : node.outputs[0];
      if (takes_bias && i == 2) beside = origin_of(node.inputs[1]);
      if (node.op == "Add" && node.inputs.size() == 2) {
        const auto product = products.find(node.inputs[1 - i]);
        if (product != products.end()) beside = product->second;
      }
      use.beside.insert(beside);
      if (node.op == "Mul" || node.op == "PRelu") ++use.factors;
      if (node.op == "Gather" && i == 0) ++use.tables;
    }
  });
  Roles roles;
  int64_t shared_matrices = 0, present = 0;
  for (const Tensor& tensor : model.initializers) {
    if (!is_float(tensor.type)) continue;
    const Uses& use = uses[tensor.name];
    if (use.statistics > 0) {
      roles.kinds[tensor.name] = SourceKind::kStatistic;
      continue;
    }
    if (use.all == 0 || use.settings == use.all) continue;
    const bool is_parameter = signature.parameters.contains(tensor.name);
    if (is_parameter) ++present;
    if (signature.buffers.contains(tensor.name)) continue;
    const bool is_weight = use.weights > 0 && !tensor.extents.empty();
    // If the file does not tell, a tensor with more than one number that meets the data is a weight.
    const bool looks_so =
        !is_told && !tensor.extents.empty() && tensor.elements() > 1 && use.states < use.all;
    if (!is_parameter && !is_weight && (!looks_so || is_mask(tensor))) continue;
    roles.kinds[tensor.name] = SourceKind::kParameter;
    if (use.tables > 0) roles.tables.insert(tensor.name);
    if (tensor.extents.size() > 1 && use.weights > 1) ++shared_matrices;
  }
  find_moved_statistics(model, roles);
  find_transposed_tables(model, uses, roles);
  if (is_training) find_padding_rows(model, roles);
  find_stored(model, roles);
  // An exporter that merges equal tensors makes one of all fresh scales and shifts. Matrices that are shared
  // are tied by the program; if a layer is used twice, so are its vectors.
  const bool has_merged =
      is_told ? present < static_cast<int64_t>(signature.parameters.size()) : shared_matrices <= 1;
  int64_t merged = 0, made = 0;
  for (const Tensor& tensor : model.initializers) {
    const Uses& use = uses[tensor.name];
    if (!has_merged || roles.kind_of(tensor.name) != SourceKind::kParameter || !is_merged(tensor, use))
      continue;
    roles.merges[tensor.name] = &tensor;
    ++merged;
    made += use.all;
  }
  if (merged > 0) {
    roles.notes.push_back(fmt::format("{} vector{} stood for {} equal weights, which are trained apart",
                                      merged, merged == 1 ? "" : "s", made));
  }
  if (is_told && batch_norms == 0 && convolutions > 0) {
    const bool was_normalized = std::ranges::any_of(
        signature.buffers, [](const std::string& name) { return name.ends_with("running_mean"); });
    if (was_normalized) {
      roles.notes.push_back(
          "the export has folded batch normalization into the convolutions: training goes on without it "
          "(export with optimize=False to keep it)");
    }
  }
  return roles;
}

std::map<std::string, std::string> find_states(const Model& model, std::span<const StatePair> pairs) {
  const auto names_of = [](const std::vector<ValueType>& values) {
    std::vector<std::string> names;
    for (const ValueType& value : values) names.push_back(value.name);
    return names;
  };
  const std::vector<std::string> inputs = names_of(model.inputs), outputs = names_of(model.outputs);
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  const auto listed = [](const std::vector<std::string>& names) {
    return printable(fmt::format("{}", fmt::join(names, ", ")));
  };
  std::map<std::string, std::string> states;
  for (const StatePair& pair : pairs) {
    const bool is_exact = has(inputs, pair.input);
    const size_t before = states.size();
    for (const std::string& input : inputs) {
      if (is_exact ? input != pair.input : !input.starts_with(pair.input)) continue;
      const std::string output = pair.output + input.substr(pair.input.size());
      if (!has(outputs, output)) {
        throw InvalidArgument(fmt::format("has no output '{}' for its state '{}'; there are: {}",
                                          printable(output), printable(input), listed(outputs)));
      }
      if (!states.emplace(input, output).second)
        throw InvalidArgument(fmt::format("state '{}' has two outputs", printable(input)));
    }
    if (states.size() == before) {
      throw InvalidArgument(fmt::format("has no input '{}', or one whose name begins so; there are: {}",
                                        printable(pair.input), listed(inputs)));
    }
  }
  return states;
}

}  // namespace headroom::onnx
