// The graph: the computation, with the named device of each node. Nodes are only appended, and adding a node
// checks its shapes. Knows devices only by name, no plan and no memory.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/code_place.h"
#include "ops/ops.h"
#include "runtime/graph/initializer.h"

namespace headroom {

class Graph;

// A handle to one value of a graph; as cheap as an int to copy.
struct Value {
  Graph* graph = nullptr;
  int id = -1;

  const TensorSpec& spec() const;
  const Shape& shape() const { return spec().shape; }
  const std::string& name() const;
  bool operator==(const Value&) const = default;
};

enum class ValueKind : uint8_t {
  kInput,     // fed by the caller at each run
  kVariable,  // kept on the device between runs, changed by update nodes only
  kResult,    // output of a node
};

struct ValueInfo {
  std::string name;
  TensorSpec spec;
  ValueKind kind = ValueKind::kResult;
  Initializer initializer = {};  // for a variable
  std::string source = {};       // the line of code that made it: "net.cpp:31"
  bool backward = false;         // made by the backward pass
  std::string device = {};       // where it lives: "/device:GPU:1"; empty: on the default device
};

struct Node {
  Op op;
  std::string name;          // "dense/matmul", unique in the graph
  std::vector<int> inputs;   // value ids
  std::vector<int> outputs;  // value ids
  std::string device = {};   // where it runs, and where its outputs live
};

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;  // values point at their graph
  Graph& operator=(const Graph&) = delete;

  // A value that the caller feeds. Throws InvalidArgument when the name is taken, as the two below do.
  Value input(std::string_view name, const TensorSpec& spec, CodePlace place = CodePlace::here());
  // State that lives on the device between runs.
  Value variable(std::string_view name, const TensorSpec& spec, const Initializer& initializer,
                 CodePlace place = CodePlace::here());
  // Appends a node and returns its outputs. The name defaults to the op's. The node runs on the device of
  // the DeviceScope; without a scope on the device of its operands, or on the default device if they live
  // on several. An update always runs on the device of the variable that it changes. Throws
  // InvalidArgument with the op, its operands and their shapes when they do not fit, or when an update
  // would change something that is not a variable.
  std::vector<Value> add(const Op& op, std::span<const Value> inputs, std::string_view name = {},
                         CodePlace place = CodePlace::here());

  // Puts all inputs, variables and nodes from now on whose names contain the scope ("dense" in
  // "net/dense/kernel") on a device, unless a DeviceScope says otherwise. The longest matching scope
  // counts. Throws InvalidArgument if `device` is not a device name.
  void put_scope_on_device(std::string_view scope, std::string_view device);
  // References to nodes and values stay valid while the graph grows.
  const std::deque<Node>& nodes() const { return nodes_; }
  const std::deque<ValueInfo>& values() const { return values_; }
  const Node& node(int id) const { return nodes_[static_cast<size_t>(id)]; }
  const ValueInfo& value(int id) const { return values_[static_cast<size_t>(id)]; }
  // Returns the input or variable with that full name. Throws InvalidArgument with all such names if there is
  // none.
  Value find(std::string_view name);
  // Ids of all variables, in the order they were made.
  std::vector<int> variables() const;

  // Returns a copy with the same nodes and values under the same ids. Handles of this graph's values do not
  // belong to the copy.
  std::unique_ptr<Graph> copy() const;
  // For passes: replaces all nodes; values keep their ids. Each value must be made before it is read;
  // throws InvalidArgument otherwise. A value moves to the device of the node that makes it.
  void replace_nodes(std::vector<Node> nodes);
  // For passes: a result of a node to come; its name is made unique.
  Value new_result(ValueInfo info);
  // Sets the type in which a result or a variable is stored; the first value of a variable must have that
  // type.
  void set_dtype(int value, DType dtype) { values_[static_cast<size_t>(value)].spec.dtype = dtype; }
  void set_initializer(int variable, Initializer initializer) {
    values_[static_cast<size_t>(variable)].initializer = std::move(initializer);
  }
  // Moves an input or a variable.
  void set_device(int value, std::string device) {
    values_[static_cast<size_t>(value)].device = std::move(device);
  }

 private:
  friend class NameScope;
  friend class BackwardScope;
  friend class DeviceScope;
  std::optional<std::string> device_by_name(const std::string& name) const;
  std::string device_for(const Node& node, std::span<const Value> inputs) const;
  std::string unique_name(std::string_view name);
  std::string new_name(std::string_view what, std::string_view name);  // throws when it is taken
  Value new_value(ValueInfo info);

  std::deque<Node> nodes_;
  std::deque<ValueInfo> values_;
  std::vector<std::string> names_;  // names of nodes, inputs and variables; hashed
  std::string scope_;
  std::optional<std::string> device_;                                 // while a DeviceScope lives
  std::vector<std::pair<std::string, std::string>> device_of_scope_;  // the longest scopes first
  const std::string* backward_of_ = nullptr;                          // while a BackwardScope lives
};

// While it lives, names in the graph get a prefix: NameScope scope(graph, "dense") gives "dense/matmul".
class NameScope {
 public:
  NameScope(Graph& graph, std::string_view name);
  ~NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;

 private:
  Graph& graph_;
  std::string previous_;
};

// While it lives, everything added is on that device: any name that parse_device_name accepts, or an empty
// one for the default device. The innermost scope counts, as with TensorFlow's tf.device and PyTorch's
// torch.cuda.device. The device need not exist before the graph is placed. Throws InvalidArgument if `device`
// is not a device name.
class DeviceScope {
 public:
  DeviceScope(Graph& graph, std::string_view device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Graph& graph_;
  std::optional<std::string> previous_;
};

// Returns the result of `build`, whose additions to the graph are on that device.
template <typename F>
auto with_device(Graph& graph, std::string_view device, F&& build) {
  const DeviceScope scope(graph, device);
  return std::forward<F>(build)();
}

// While it lives, everything added belongs to the backward pass, and has the line of code and the device
// of `forward`.
class BackwardScope {
 public:
  BackwardScope(Graph& graph, const Value& forward);
  ~BackwardScope();
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

 private:
  Graph& graph_;
  const std::string* previous_;
  const DeviceScope device_;
};

}  // namespace headroom
