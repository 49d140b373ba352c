#include "runtime/onnx/read_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/errors.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "runtime/onnx/decode.h"
#include "runtime/onnx/expand_model.h"

namespace headroom::onnx {
namespace {

namespace fs = std::filesystem;

// Returns the file that external data names, if it exists. Throws InvalidArgument for one outside the folder.
std::optional<fs::path> confined_path(const fs::path& model, const std::string& location) {
  const auto refuse = [&] {
    throw InvalidArgument(
        fmt::format("external data '{}' lies outside the model's folder", printable(location)));
  };
  const fs::path relative(location);
  if (location.empty() || location.find('\0') != std::string::npos || relative.is_absolute()) refuse();
  for (const fs::path& part : relative) {
    if (part == "..") refuse();
  }
  std::error_code error;
  const fs::path folder = fs::canonical(model.has_parent_path() ? model.parent_path() : fs::path("."), error);
  if (error) return std::nullopt;
  const fs::path whole = fs::weakly_canonical(folder / relative, error);
  if (error) return std::nullopt;
  // After links are followed.
  if (std::mismatch(folder.begin(), folder.end(), whole.begin(), whole.end()).first != folder.end()) refuse();
  if (!fs::exists(whole, error)) return std::nullopt;
  return whole;
}

void find_external_data(Model& model) {
  std::unordered_map<std::string, std::shared_ptr<const MappedFile>> files;  // null: not there
  const auto find = [&](Tensor& tensor) {
    if (!tensor.external) return;
    const ExternalData& external = *tensor.external;
    auto [file, is_new] = files.try_emplace(external.location);
    if (is_new) {
      if (const std::optional<fs::path> path = confined_path(model.path, external.location)) {
        file->second = std::make_shared<const MappedFile>(path->string());
        model.files.push_back(file->second);
      }
    }
    tensor.is_absent = file->second == nullptr;
    if (tensor.is_absent) return;
    const std::span<const std::byte> all = file->second->bytes();
    const int64_t need = stored_bytes(tensor.type, tensor.elements()),
                  have = static_cast<int64_t>(all.size());
    if (external.length.value_or(need) != need) {
      throw InvalidArgument(fmt::format("tensor '{}': {} bytes of external data, its extents need {}",
                                        tensor.name, *external.length, need));
    }
    if (external.offset > have || need > have - external.offset) {
      throw InvalidArgument(fmt::format("tensor '{}': its external data ends after '{}', which has {} bytes",
                                        tensor.name, printable(external.location), have));
    }
    tensor.data = all.subspan(static_cast<size_t>(external.offset), static_cast<size_t>(need));
  };
  for (Tensor& tensor : model.initializers) find(tensor);
  for_each_node(model.nodes, [](const OnnxNode& node) {
    for (const Attribute& attribute : node.attributes) {
      if (attribute.tensor && attribute.tensor->external)
        throw InvalidArgument(fmt::format("{}: a constant is external data", node.text()));
    }
  });
}

// Throws for a value that nothing makes; of a graph inside a node, also for its results.
void require_made(const std::vector<OnnxNode>& nodes, std::unordered_set<std::string_view>& known,
                  std::span<const std::string> results) {
  std::vector<std::string_view> made;  // here: unknown outside
  for (const OnnxNode& node : nodes) {
    for (const std::string& input : node.inputs) {
      if (!input.empty() && !known.contains(input))
        throw InvalidArgument(
            fmt::format("{} reads '{}', which nothing makes", node.text(), printable(input)));
    }
    for (const Attribute& attribute : node.attributes) {
      if (!attribute.body) continue;
      std::vector<std::string_view> inputs;
      for (const std::string& input : attribute.body->inputs) {
        if (known.insert(input).second) inputs.push_back(input);
      }
      require_made(attribute.body->nodes, known, attribute.body->outputs);
      for (const std::string_view input : inputs) known.erase(input);
    }
    for (const std::string& output : node.outputs) {
      if (known.insert(output).second) made.push_back(output);
    }
  }
  for (const std::string& result : results) {
    if (!known.contains(result))
      throw InvalidArgument(fmt::format("nothing makes the output '{}'", printable(result)));
  }
  for (const std::string_view name : made) known.erase(name);
}

// Each value has one maker.
void check_values(Model& model) {
  std::unordered_map<std::string_view, const OnnxNode*> made_later;
  for (const OnnxNode& node : model.nodes) {
    for (const std::string& output : node.outputs) {
      if (!output.empty() && !made_later.emplace(output, &node).second) {
        throw InvalidArgument(fmt::format("two nodes make the value '{}'", printable(output)));
      }
    }
  }
  std::unordered_set<std::string_view> known;
  for (const Tensor& tensor : model.initializers) {
    if (made_later.contains(tensor.name) || !known.insert(tensor.name).second) {
      throw InvalidArgument(fmt::format("two values are named '{}'", printable(tensor.name)));
    }
  }
  // Old files list initializers among the inputs, as their default values.
  std::erase_if(model.inputs, [&](const ValueType& input) { return known.contains(input.name); });
  for (const ValueType& input : model.inputs) {
    if (made_later.contains(input.name) || !known.insert(input.name).second) {
      throw InvalidArgument(fmt::format("two values are named '{}'", printable(input.name)));
    }
  }
  std::vector<std::string> results;
  for (const ValueType& output : model.outputs) results.push_back(output.name);
  require_made(model.nodes, known, results);
  if (model.outputs.empty()) throw InvalidArgument("the graph has no output");
}

void take_weights(Model& model, const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  std::unordered_map<std::string_view, Tensor*> by_name;
  for (Tensor& tensor : model.initializers) by_name.emplace(tensor.name, &tensor);
  int64_t taken = 0;
  for (const StoredTensor& stored : view_safetensors(*file)) {
    const auto found = by_name.find(stored.name);
    if (found == by_name.end()) continue;
    Tensor& tensor = *found->second;
    if (stored.extents != tensor.extents) {
      throw InvalidArgument(fmt::format("{}: tensor '{}' has extents [{}], the model's has [{}]", path,
                                        printable(stored.name), fmt::join(stored.extents, ","),
                                        fmt::join(tensor.extents, ",")));
    }
    tensor.type = type_of_safetensors(stored.type);
    tensor.data = stored.data;
    tensor.is_absent = false;
    ++taken;
  }
  if (taken == 0)
    throw InvalidArgument(fmt::format("{}: none of its tensors is a weight of the model", path));
  model.files.push_back(std::move(file));
}

// Calls f, and prepends the file's name to exceptions.
template <typename F>
void with_name(const std::string& path, F f) {
  try {
    f();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace

int64_t Tensor::elements() const {
  int64_t product = 1;
  for (int64_t extent : extents) product *= extent;
  return product;
}

const Attribute* OnnxNode::find(std::string_view attribute) const {
  for (const Attribute& one : attributes) {
    if (one.name == attribute) return &one;
  }
  return nullptr;
}

std::string OnnxNode::text() const {
  std::string text =
      fmt::format("node {} ({})", printable(name), printable(domain.empty() ? op : domain + "." + op));
  if (!module.empty()) text += fmt::format(" in {}", printable(module));
  if (!source.empty()) text += fmt::format(", {}", printable(source));
  return text;
}

std::string axis_name(const ValueType& input, size_t axis) {
  const std::string& name = (*input.shape)[axis].parameter;
  return name.empty() || name == "?" ? fmt::format("{}.{}", input.name, axis) : name;
}

int64_t Model::opset() const {
  const auto found = opsets.find("");
  return found == opsets.end() ? 0 : found->second;
}

Model parse_model(std::span<const std::byte> bytes, const std::string& name) {
  Model model;
  model.path = name;
  with_name(name, [&] {
    decode_model(bytes, model);
    for (Tensor& tensor : model.initializers) tensor.is_absent = tensor.external.has_value();
    expand_model(model);
    check_values(model);
  });
  return model;
}

Model read_model(const std::string& path, const ReadModelSettings& settings) {
  Model model;
  model.path = path;
  const auto file = std::make_shared<const MappedFile>(path);
  model.files.push_back(file);
  with_name(path, [&] {
    decode_model(file->bytes(), model);
    expand_model(model);
    check_values(model);
    find_external_data(model);
  });
  if (!settings.weights.empty()) take_weights(model, settings.weights);
  return model;
}

}  // namespace headroom::onnx
