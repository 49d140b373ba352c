#include "runtime/onnx/import_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/errors.h"
#include "base/text.h"
#include "runtime/onnx/expand_model.h"
#include "runtime/onnx/merge_nodes.h"
#include "runtime/onnx/op_table.h"
#include "runtime/onnx/parameters.h"

namespace headroom::onnx {
namespace {

// All nodes that cannot be imported, reported at once: those of one op and one reason together.
class Refusals {
 public:
  void add(const OnnxNode& node, const std::string& why) {
    auto [row, is_new] = rows_.try_emplace({node.op, why});
    if (is_new) row->second.first = node.text();
    ++row->second.count;
  }
  bool empty() const { return rows_.empty(); }
  std::string text() const {
    std::vector<std::string> parts;
    for (const auto& [key, row] : rows_) {
      std::string part = row.first;
      if (!key.second.empty()) part += fmt::format(": {}", key.second);
      if (row.count > 1) part += fmt::format(" (and {} more)", row.count - 1);
      parts.push_back(std::move(part));
    }
    return fmt::format("not supported: {}", fmt::join(parts, "; "));
  }

 private:
  struct Row {
    std::string first;
    int count = 0;
  };
  std::map<std::pair<std::string, std::string>, Row> rows_;
};

// Binds the free axes of all inputs, or says which are left.
class AxisBinder {
 public:
  explicit AxisBinder(const ImportSettings& settings) : dims_(settings.dims), batch_(settings.batch) {}

  Shape bind(const ValueType& input) {
    if (!input.shape) throw InvalidArgument(fmt::format("input '{}' has no shape", printable(input.name)));
    if (input.shape->size() > static_cast<size_t>(Shape::kMaxRank)) {
      throw InvalidArgument(fmt::format("input '{}' has rank {}; {} is the most", printable(input.name),
                                        input.shape->size(), Shape::kMaxRank));
    }
    std::vector<int64_t> extents;
    for (size_t axis = 0; axis < input.shape->size(); ++axis) {
      const Dimension& dimension = (*input.shape)[axis];
      const std::string name = axis_name(input, axis), place = fmt::format("{}.{}", input.name, axis);
      // One axis of several with the same name may be bound apart.
      const auto placed = dims_.find(place), named = placed == dims_.end() ? dims_.find(name) : placed;
      const bool is_named = name != place;
      if (dimension.extent >= 0) {
        extents.push_back(dimension.extent);
        if (axis == 0 && !fixed_batch_) fixed_batch_ = dimension.extent;
      } else if (named != dims_.end()) {
        used_.insert(named->first);
        extents.push_back(named->second);
        if (axis == 0) has_free_batch_ = true;
      } else if (axis == 0 && batch_ && (batch_name_.empty() || !is_named || batch_name_ == name)) {
        has_free_batch_ = true;
        if (is_named) batch_name_ = name;
        if (is_named) dims_[name] = *batch_;
        extents.push_back(*batch_);
      } else {
        left_.insert(name);
        extents.push_back(1);
      }
    }
    return Shape(std::span<const int64_t>(extents));
  }

  // The number of an input of one whole number that a size is given for: as lengths and rates are.
  std::optional<HostTensor> number_of(const ValueType& input, const Shape& shape) {
    const auto found = dims_.find(input.name);
    if (found == dims_.end() || is_float(input.type) || shape.elements() != 1) return std::nullopt;
    used_.insert(input.name);
    return integers_tensor({found->second}).with_shape(shape);
  }

  void check(const ImportSettings& settings) const {
    if (!left_.empty()) {
      std::vector<std::string> options;
      for (const std::string& name : left_) options.push_back(fmt::format("--dim {}=N", shell_word(name)));
      throw InvalidArgument(fmt::format("has free axes; bind them by {}", fmt::join(options, " ")));
    }
    for (const auto& [name, extent] : settings.dims) {
      if (!used_.contains(name))
        throw InvalidArgument(fmt::format("no input has a free axis '{}'", printable(name)));
    }
    if (settings.batch && !has_free_batch_ && fixed_batch_ && *fixed_batch_ != *settings.batch) {
      throw InvalidArgument(fmt::format("its batch was fixed at {} by the export; pass --batch {}",
                                        *fixed_batch_, *fixed_batch_));
    }
  }

 private:
  std::map<std::string, int64_t> dims_;
  const std::optional<int64_t> batch_;
  std::string batch_name_;
  std::set<std::string> used_, left_;
  std::optional<int64_t> fixed_batch_;
  bool has_free_batch_ = false;
};

class ModelImport {
 public:
  ModelImport(const std::shared_ptr<const Model>& model, const ImportSettings& settings, Graph& graph)
      : model_(*model), settings_(settings), graph_(graph), adapters_(settings.lora) {
    result_.model = model;
    result_.importer = std::make_shared<Importer>(graph, *model, settings.is_training, settings.stores_half,
                                                  settings.seed, settings.step);
    im().set_adapters(&adapters_);
  }
  ~ModelImport() {
    if (result_.importer) result_.importer->set_adapters(nullptr);
  }
  ModelImport(const ModelImport&) = delete;
  ModelImport& operator=(const ModelImport&) = delete;

  ImportedModel run() {
    refuse_unknown_ops();
    add_inputs();
    add_initializers();
    for (const OnnxNode& node : model_.nodes) add(node);
    if (!refusals_.empty()) throw InvalidArgument(refusals_.text());
    adapters_.require_any();
    for (const ValueType& output : model_.outputs) {
      Item item = items_.at(output.name);
      if (item.quantized) item = im().item_of(im().plain(item), item.type, in_order(item.rank()));
      if (item.is_missing) {
        throw InvalidArgument(
            fmt::format("output '{}' is a result that is not computed", printable(output.name)));
      }
      if (item.list) throw InvalidArgument(fmt::format("output '{}' is a sequence", printable(output.name)));
      // Floats of 16 bits are computed in 32; what goes out has their values.
      const bool is_exact = settings_.is_training || settings_.stores_half;
      if (is_half(item.type) && !is_exact && item.source < 0) item = im().rounded(item, item.type);
      // An input that is passed on, perhaps transposed, must also be an input of the graph.
      if (item.source >= 0) im().value_in(item, in_order(item.rank()));
      if (set_next(output.name, item)) continue;
      result_.outputs.push_back(item);
      result_.output_names.push_back(output.name);
    }
    bind_sources();
    merge();
    im().set_adapters(nullptr);
    return std::move(result_);
  }

 private:
  Importer& im() { return *result_.importer; }

  void merge() {
    std::vector<Value> kept;
    for (const Item& output : result_.outputs) {
      if (output.is_runtime() && output.source < 0) kept.push_back(output.value);
    }
    for (const ImportedState& state : result_.states) {
      if (state.next.is_runtime() && state.next.source < 0) kept.push_back(state.next.value);
    }
    const std::map<int, float> scalars = im().scalar_values();
    merge_gelus(graph_, scalars, kept);
    merge_softmaxes(graph_, scalars, kept);
    std::vector<Value> parameters;
    for (const BoundTensor& parameter : result_.parameters) parameters.push_back(parameter.value);
    merge_attentions(graph_, parameters, kept, !settings_.stores_half);
  }

  // Before any work, so that the list is whole.
  void refuse_unknown_ops() {
    for_each_node(model_.nodes, [&](const OnnxNode&) { ++model_nodes_; });
    for (const OnnxNode& node : model_.nodes) {  // those of a branch only if it is taken
      if (find_row(node) == nullptr) refuse_unknown(node);
    }
    if (!refusals_.empty()) throw InvalidArgument(refusals_.text());
    constexpr int64_t kOldest = 7, kNewest = 28;
    const int64_t opset = model_.opset();
    if (opset < kOldest || opset > kNewest) {
      throw InvalidArgument(fmt::format("opset {} is not supported; {} to {} are", opset, kOldest, kNewest));
    }
  }

  void refuse_unknown(const OnnxNode& node) {
    refusals_.add(node, std::string(why_unknown(node.domain, node.op)));
  }

  static const OpRow* find_row(const OnnxNode& node) {
    return node.domain.empty() ? find_op(node.op) : nullptr;
  }

  Item add_state(const ValueType& input, const std::string& output, const Shape& shape) {
    // Rows of a state are replaced, so that a number is a vector of one.
    const Shape stored = shape.rank() == 0 ? Shape{1} : shape;
    Source source{SourceKind::kState, input.name, input.type, stored};
    source.first = settings_.first_state
                       ? settings_.first_state(input.name, {dtype_of_element(input.type), shape})
                       : zeros();
    const Item item = im().add_source(std::move(source));
    result_.states.push_back({input.name, output, input.type, shape, im().plain(item), {}});
    return stored == shape ? item : im().reshape(item, shape);
  }

  // Returns true if the output is that of states, which it must fit.
  bool set_next(const std::string& output, const Item& item) {
    bool is_next = false;
    for (ImportedState& state : result_.states) {
      if (state.output != output) continue;
      if (item.type != state.type || item.shape != state.shape) {
        throw InvalidArgument(fmt::format("output '{}' is {} {}, and cannot be the next '{}', which is {} {}",
                                          printable(output), to_string(item.type), to_string(item.shape),
                                          printable(state.input), to_string(state.type),
                                          to_string(state.shape)));
      }
      state.next = item.rank() == 0 ? im().reshape(item, {1}) : item;
      is_next = true;
    }
    return is_next;
  }

  void add_inputs() {
    const std::map<std::string, std::string> states = find_states(model_, settings_.states);
    AxisBinder binder(settings_);
    std::vector<Shape> shapes;
    for (const ValueType& input : model_.inputs) {
      if (stored_bytes(input.type) == 0) {
        throw InvalidArgument(fmt::format("input '{}' is of {}, which is not supported",
                                          printable(input.name), to_string(input.type)));
      }
      shapes.push_back(binder.bind(input));
      if (const std::optional<HostTensor> number = binder.number_of(input, shapes.back()))
        items_[input.name] = im().cast(im().constant(*number, ElementType::kInt32), input.type);
    }
    binder.check(settings_);
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (items_.contains(model_.inputs[i].name)) continue;
      if (const auto state = states.find(model_.inputs[i].name); state != states.end()) {
        items_[state->first] = add_state(model_.inputs[i], state->second, shapes[i]);
        continue;
      }
      const auto known = settings_.known.find(model_.inputs[i].name);
      if (known != settings_.known.end()) {
        if (known->second.spec() != TensorSpec{dtype_of_element(model_.inputs[i].type), shapes[i]}) {
          throw InvalidArgument(fmt::format("input '{}' is known as {}, not {}",
                                            printable(model_.inputs[i].name), to_string(known->second.spec()),
                                            to_string(shapes[i])));
        }
        items_[known->first] = im().constant(known->second, model_.inputs[i].type);
        continue;
      }
      Source source{SourceKind::kInput, model_.inputs[i].name, model_.inputs[i].type, shapes[i]};
      items_[model_.inputs[i].name] = im().add_source(std::move(source));
    }
  }

  void add_initializers() {
    roles_ = find_roles(model_, settings_.is_training);
    for (const std::string& note : roles_.notes) result_.notes.push_back(note);
    for (const Tensor& tensor : model_.initializers) {
      if (tensor.extents.size() > static_cast<size_t>(Shape::kMaxRank)) {
        throw InvalidArgument(fmt::format("tensor '{}' has rank {}; {} is the most", printable(tensor.name),
                                          tensor.extents.size(), Shape::kMaxRank));
      }
      if (!roles_.copies.contains(tensor.name)) items_[tensor.name] = item_of(tensor, tensor.name);
    }
    for (const auto& [name, table] : roles_.copies) {
      items_[std::string(name)] = im().transpose(items_.at(table->name), {1, 0});
    }
  }

  Item item_of(const Tensor& tensor, const std::string& name) {
    const Shape shape{std::span<const int64_t>(tensor.extents)};
    const SourceKind kind = roles_.kind_of(tensor.name);
    if (roles_.stored.contains(tensor.name)) {
      Source source{kind, name, tensor.type, shape, &tensor};
      source.is_stored = true;
      return im().add_source(std::move(source));
    }
    if (kind == SourceKind::kConstant && !tensor.is_absent) {
      const HostTensor values({dtype_of_element(tensor.type), shape},
                              convert_elements(tensor.type, tensor.data, tensor.elements()));
      return im().constant(values, tensor.type);
    }
    Source source{kind, name, tensor.type, shape, &tensor};
    const auto moved = roles_.moved.find(tensor.name);
    if (moved != roles_.moved.end()) source.number = moved->second;
    source.is_merged = roles_.merged(tensor.name) != nullptr;
    source.is_looked_up = roles_.tables.contains(tensor.name);
    return im().add_source(std::move(source));
  }

  // A graph inside a node: its values are known until its end.
  std::vector<Item> run_body(const OnnxNode& outer, const Body& body, std::vector<Item> inputs) {
    charge();  // also for a body without nodes
    if (inputs.size() != body.inputs.size()) {
      throw Unsupported{
          fmt::format("gives its graph {} values; it takes {}", inputs.size(), body.inputs.size())};
    }
    std::vector<std::pair<std::string, std::optional<Item>>> hidden;
    const auto hide = [&](const std::string& name) {
      const auto found = items_.find(name);
      hidden.emplace_back(name,
                          found == items_.end() ? std::nullopt : std::optional(std::move(found->second)));
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      hide(body.inputs[i]);
      items_[body.inputs[i]] = std::move(inputs[i]);
    }
    for (const OnnxNode& node : body.nodes) {
      for (const std::string& output : node.outputs) {
        if (!output.empty()) hide(output);
      }
      add(node);
    }
    std::vector<Item> outputs;
    for (const std::string& output : body.outputs) outputs.push_back(items_.at(output));
    for (auto row = hidden.rbegin(); row != hidden.rend(); ++row) {
      items_.erase(row->first);
      if (row->second) items_.emplace(row->first, std::move(*row->second));
    }
    im().set_node(&outer);
    return outputs;
  }

  // Loops repeat their nodes, and recurrent layers make some for each step.
  void charge() {
    constexpr size_t kMostOfOurs = size_t{1} << 19;
    if (++imported_ > model_nodes_ + kMostNodes || im().graph().nodes().size() > kMostOfOurs) {
      throw InvalidArgument(fmt::format(
          "its loops stand for too much: more than {} nodes, or {} of the graph", kMostNodes, kMostOfOurs));
    }
  }

  void add(const OnnxNode& node) {
    charge();
    std::vector<Item> inputs;
    bool is_missing = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::string& input = node.inputs[i];
      Item item = input.empty() ? Item() : items_.at(input);
      is_missing = is_missing || item.is_missing;
      // A vector that the exporter merged with its equals becomes one weight for each use again.
      if (const Tensor* tensor = roles_.merged(input)) {
        const auto [use, is_new] = uses_[input].try_emplace({&node, i});
        if (is_new && uses_[input].size() > 1) {
          use->second = item_of(*tensor, fmt::format("{}.{}", input, uses_[input].size() - 1));
        } else if (is_new) {
          use->second = item;
        }
        item = use->second;
      }
      inputs.push_back(std::move(item));
    }
    std::vector<Item> outputs;
    const auto first_value = static_cast<int>(im().graph().values().size());
    const OpRow* const row = find_row(node);
    if (row == nullptr) {
      refuse_unknown(node);
    } else if (!is_missing) {
      im().set_node(&node);
      NodeImport import(
          im(), node, inputs, node.opset > 0 ? node.opset : model_.opset(),
          [&](const Body& body, std::vector<Item> given) { return run_body(node, body, std::move(given)); });
      import.padding_row = roles_.padding_row(node);
      try {
        require_known_attributes(*row, node);
        row->import(import);
        outputs = std::move(import.outputs);
      } catch (const Unsupported& unsupported) {
        refusals_.add(node, unsupported.why);
      } catch (const InvalidArgument& error) {  // shapes that do not fit
        refusals_.add(node, error.what());
      } catch (const DeviceError& error) {  // from a constant that was computed
        refusals_.add(node, error.what());
      }
      im().set_node(nullptr);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      Item item;
      if (i < outputs.size()) {
        item = outputs[i];
      } else {
        item.is_missing = true;
        if (!outputs.empty()) side_results_.insert(node.outputs[i]);
      }
      items_[node.outputs[i]] = std::move(item);
    }
    for (const std::string& input : node.inputs) {
      if (side_results_.contains(input))
        refusals_.add(node, fmt::format("reads '{}', a result that is not computed", printable(input)));
    }
    const bool has_body = std::ranges::any_of(
        node.attributes, [](const Attribute& attribute) { return attribute.body != nullptr; });
    if (!has_body) summarize(node, inputs, outputs, first_value);
  }

  static void require_known_attributes(const OpRow& row, const OnnxNode& node) {
    for (const Attribute& attribute : node.attributes) {
      if (takes_attribute(row, attribute.name)) continue;
      throw Unsupported{fmt::format(
          "has an attribute '{}'{}", printable(attribute.name, 40),
          row.attributes.empty() ? "; none is known" : fmt::format("; known are {}", row.attributes))};
    }
  }

  void summarize(const OnnxNode& node, const std::vector<Item>& inputs, const std::vector<Item>& outputs,
                 int first_value) {
    const auto last_value = static_cast<int>(im().graph().values().size());
    if (outputs.empty() || (last_value == first_value && !outputs[0].is_runtime())) return;
    const std::string& module = node.module.empty() ? node.name : node.module;
    if (result_.layers.empty() || result_.layers.back().module != module) {
      result_.layers.push_back({module, "", {}, 0, first_value, first_value});
    }
    LayerSummary& layer = result_.layers.back();
    if (!layer.ops.ends_with(node.op)) layer.ops += (layer.ops.empty() ? "" : " ") + node.op;
    layer.last_value = last_value;
    if (!outputs[0].list) layer.output = outputs[0].shape;
    for (const Item& input : inputs) {
      if (input.source < 0 ||
          im().sources()[static_cast<size_t>(input.source)].kind != SourceKind::kParameter)
        continue;
      if (counted_.insert(input.source).second)
        layer.parameters += im().sources()[static_cast<size_t>(input.source)].shape.elements();
    }
  }

  void bind_sources() {
    for (const Source& source : im().sources()) {
      if (!source.value) continue;
      BoundTensor bound{source.name,   source.type,  source.shape,
                        *source.value, source.order, source.is_merged};
      if (source.tensor != nullptr && source.tensor->is_absent)
        result_.absent_bytes += bound.value.spec().bytes();
      if (source.kind == SourceKind::kInput) result_.inputs.push_back(bound);
      if (source.kind == SourceKind::kParameter && source.is_adapter == settings_.lora.is_on())
        result_.parameters.push_back(bound);
      if (source.kind == SourceKind::kStatistic) result_.statistics.push_back(bound);
    }
  }

  const Model& model_;
  const ImportSettings& settings_;
  Graph& graph_;
  Adapters adapters_;
  ImportedModel result_;
  Roles roles_;
  Refusals refusals_;
  std::unordered_map<std::string, Item> items_;
  // The weights that stood for one, by the operand that each is.
  std::unordered_map<std::string, std::map<std::pair<const OnnxNode*, size_t>, Item>> uses_;
  int64_t imported_ = 0, model_nodes_ = 0;
  std::unordered_set<std::string> side_results_;  // outputs that an op of ours does not give
  std::unordered_set<int> counted_;
};

}  // namespace

size_t ImportedModel::find_output(std::string_view name) const {
  if (name.empty()) return 0;
  const auto found = std::ranges::find(output_names, name);
  if (found != output_names.end()) return static_cast<size_t>(found - output_names.begin());
  throw InvalidArgument(fmt::format("{}: has no output '{}'; there are: {}", model->path, printable(name),
                                    printable(fmt::format("{}", fmt::join(output_names, ", ")))));
}

ImportedModel import_model(std::shared_ptr<const Model> model, const ImportSettings& settings, Graph& graph) {
  try {
    return ModelImport(model, settings, graph).run();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", model->path, error.what()));
  }
}

}  // namespace headroom::onnx
