#include "runtime/onnx/expand_model.h"

#include <fmt/format.h>

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/errors.h"
#include "base/text.h"

namespace headroom::onnx {
namespace {

// Bytes of names and numbers that count as much as a node.
constexpr size_t kBytesOfANode = 1024;

class Expansion {
 public:
  explicit Expansion(Model& model) : model_(model) {
    for (const Function& function : model.functions)
      functions_.emplace(function.domain + "." + function.name, &function);
    for (const Tensor& tensor : model.initializers) taken_.insert(tensor.name);
    for (const ValueType& input : model.inputs) taken_.insert(input.name);
    for_each_node(model.nodes,
                  [&](const OnnxNode& node) { taken_.insert(node.outputs.begin(), node.outputs.end()); });
  }

  void run() {
    const std::vector<OnnxNode> nodes = std::move(model_.nodes);
    model_.nodes.clear();
    expand(nodes, {}, 0, model_.nodes);
  }

 private:
  // The names of a function's or a graph's values as the expanded model has them.
  struct Scope {
    const Scope* outer = nullptr;                             // the graph around a graph
    std::string prefix;                                       // of the values of a call
    std::unordered_map<std::string, std::string> names = {};  // of those with other ones
    const OnnxNode* call = nullptr;
    const Function* function = nullptr;

    std::string of(const std::string& name) const {
      if (name.empty()) return name;
      for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
        const auto found = scope->names.find(name);
        if (found != scope->names.end()) return found->second;
      }
      return prefix + name;
    }
  };

  // Functions that only call functions cost as much as nodes.
  void charge(const OnnxNode& node) {
    size_t bytes = node.name.size() + node.op.size() + node.module.size() + node.source.size();
    for (const std::string& name : node.inputs) bytes += name.size() + sizeof name;
    for (const std::string& name : node.outputs) bytes += name.size() + sizeof name;
    for (const Attribute& one : node.attributes) {
      bytes +=
          sizeof one + one.name.size() + one.text.size() + 4 * one.numbers.size() + 8 * one.integers.size();
      for (const std::string& text : one.texts) bytes += text.size() + sizeof text;
    }
    cost_ += bytes;
    if (calls_ > 0 && cost_ > static_cast<size_t>(kMostNodes) * kBytesOfANode) {
      throw InvalidArgument(fmt::format("its functions stand for too much: more than {} nodes of {} bytes",
                                        kMostNodes, kBytesOfANode));
    }
  }

  void expand(const std::vector<OnnxNode>& nodes, const Scope& scope, int depth, std::vector<OnnxNode>& to) {
    constexpr int kDeepest = 32;
    if (depth > kDeepest) throw InvalidArgument("its functions call each other in a circle, or too deep");
    for (const OnnxNode& node : nodes) {
      charge(node);
      OnnxNode renamed = renamed_node(node, scope, depth);
      const auto found = functions_.find(node.domain + "." + node.op);
      if (found == functions_.end()) {
        to.push_back(std::move(renamed));
        continue;
      }
      cost_ += kBytesOfANode;
      expand(found->second->nodes, scope_of_call(renamed, *found->second), depth + 1, to);
    }
  }

  Scope scope_of_call(const OnnxNode& call, const Function& function) {
    Scope scope{nullptr, fmt::format("call_{}/", ++calls_), {}, &call, &function};
    const auto bind = [&](const std::vector<std::string>& of_function,
                          const std::vector<std::string>& of_call) {
      if (of_call.size() > of_function.size()) {
        throw InvalidArgument(fmt::format("{} has {} operands or results; its function has {}", call.text(),
                                          of_call.size(), of_function.size()));
      }
      for (size_t i = 0; i < of_function.size(); ++i) {
        const bool has = i < of_call.size() && !of_call[i].empty();
        const bool is_result = &of_function == &function.outputs;
        if (has || !is_result) scope.names.emplace(of_function[i], has ? of_call[i] : std::string());
      }
    };
    bind(function.inputs, call.inputs);
    bind(function.outputs, call.outputs);
    return scope;
  }

  OnnxNode renamed_node(const OnnxNode& node, const Scope& scope, int depth) {
    OnnxNode renamed = node;
    for (std::string& name : renamed.inputs) name = scope.of(name);
    for (std::string& name : renamed.outputs) name = scope.of(name);
    if (scope.call != nullptr) {
      if (renamed.module.empty())
        renamed.module = scope.call->module.empty() ? scope.call->name : scope.call->module;
      if (renamed.source.empty()) renamed.source = scope.call->source;
    }
    renamed.attributes.clear();
    for (const Attribute& attribute : node.attributes) {
      Attribute mine = attribute;
      if (!attribute.of_call.empty()) {
        const Attribute* const given = attribute_of_call(scope, attribute.of_call);
        if (given == nullptr) continue;  // the call leaves it out
        mine = *given;
        mine.name = attribute.name;
      } else if (attribute.body) {
        mine.body = renamed_body(*attribute.body, scope, depth);
      }
      renamed.attributes.push_back(std::move(mine));
    }
    return renamed;
  }

  static const Attribute* attribute_of_call(const Scope& scope, const std::string& name) {
    const Scope* root = &scope;
    while (root->outer != nullptr) root = root->outer;
    if (root->call == nullptr) return nullptr;
    if (const Attribute* given = root->call->find(name)) return given;
    for (const Attribute& one : root->function->defaults) {
      if (one.name == name) return &one;
    }
    return nullptr;
  }

  std::shared_ptr<const Body> renamed_body(const Body& body, const Scope& outer, int depth) {
    Scope scope{&outer, outer.prefix, {}, outer.call, outer.function};
    for (const Tensor& tensor : body.initializers) {
      std::string name = outer.prefix + tensor.name;
      if (!taken_.insert(name).second) {
        do name = fmt::format("{}{}.{}", outer.prefix, tensor.name, ++renames_);
        while (!taken_.insert(name).second);
      }
      scope.names[tensor.name] = name;
      model_.initializers.push_back(tensor);
      model_.initializers.back().name = name;
      cost_ += sizeof(Tensor) + 2 * name.size();
    }
    auto result = std::make_shared<Body>();
    for (const std::string& name : body.inputs) result->inputs.push_back(scope.of(name));
    for (const std::string& name : body.outputs) result->outputs.push_back(scope.of(name));
    expand(body.nodes, scope, depth + 1, result->nodes);
    return result;
  }

  Model& model_;
  std::unordered_map<std::string, const Function*> functions_;  // by domain and name
  std::unordered_set<std::string> taken_;                       // names of values
  size_t cost_ = 0;                                             // in bytes
  int calls_ = 0, renames_ = 0;
};

// Keeps the order of nodes that stand after those that they read from.
void sort(std::vector<OnnxNode>& nodes) {
  std::unordered_map<std::string_view, size_t> makers;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i].outputs) makers.emplace(output, i);
  }
  std::vector<std::vector<size_t>> before(nodes.size());
  bool is_sorted = true;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for_each_read(nodes[i], [&](const std::string& name) {
      const auto maker = makers.find(name);
      if (maker == makers.end()) return;
      before[i].push_back(maker->second);
      is_sorted = is_sorted && maker->second < i;
    });
  }
  if (is_sorted) return;
  enum class State : uint8_t { kNew, kOpen, kDone };
  std::vector<State> states(nodes.size(), State::kNew);
  std::vector<OnnxNode> sorted;
  std::vector<std::pair<size_t, size_t>> path;  // a node, and how many before it were looked at
  for (size_t first = 0; first < nodes.size(); ++first) {
    if (states[first] == State::kNew) path.emplace_back(first, 0);
    while (!path.empty()) {
      auto& [node, looked] = path.back();
      states[node] = State::kOpen;
      if (looked == before[node].size()) {
        states[node] = State::kDone;
        sorted.push_back(std::move(nodes[node]));
        path.pop_back();
        continue;
      }
      const size_t next = before[node][looked++];
      if (states[next] == State::kOpen) {
        throw InvalidArgument(fmt::format("{} reads what is made of its own result: the graph has a cycle",
                                          nodes[next].text()));
      }
      if (states[next] == State::kNew) path.emplace_back(next, 0);
    }
  }
  nodes = std::move(sorted);
}

}  // namespace

void for_each_read(const OnnxNode& node, const std::function<void(const std::string&)>& f) {
  for (const std::string& input : node.inputs) {
    if (!input.empty()) f(input);  // one that is left out has no maker, though a result may be left out too
  }
  for (const Attribute& attribute : node.attributes) {
    if (!attribute.body) continue;
    const Body& body = *attribute.body;
    std::unordered_set<std::string_view> own(body.inputs.begin(), body.inputs.end());
    for (const OnnxNode& inner : body.nodes) own.insert(inner.outputs.begin(), inner.outputs.end());
    const auto read = [&](const std::string& name) {
      if (!own.contains(name)) f(name);
    };
    for (const OnnxNode& inner : body.nodes) for_each_read(inner, read);
    for (const std::string& output : body.outputs) read(output);
  }
}

void expand_model(Model& model) {
  bool has_bodies = false;
  for_each_node(model.nodes, [&](const OnnxNode& node) {
    for (const Attribute& attribute : node.attributes) has_bodies = has_bodies || attribute.body;
  });
  if (has_bodies || !model.functions.empty()) Expansion(model).run();
  sort(model.nodes);
  const auto sort_bodies = [](OnnxNode& node, const auto& self) -> void {
    for (Attribute& attribute : node.attributes) {
      if (!attribute.body) continue;
      auto body = std::make_shared<Body>(*attribute.body);
      sort(body->nodes);
      for (OnnxNode& inner : body->nodes) self(inner, self);
      attribute.body = std::move(body);
    }
  };
  for (OnnxNode& node : model.nodes) sort_bodies(node, sort_bodies);
}

}  // namespace headroom::onnx
