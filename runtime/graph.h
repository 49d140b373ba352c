// The graph: what is computed. Append-only nodes over values; building a node checks its shapes at once.
// Knows no device, no plan and no memory.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/code_place.h"
#include "runtime/core/ops.h"
#include "runtime/initializer.h"

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
  Initializer initializer;  // of a variable
  std::string source = {};  // the line of code that asked for it: "net.cpp:31"
  bool backward = false;    // made on the way back from a loss
};

struct Node {
  Op op;
  std::string name;          // "dense/matmul", unique in the graph
  std::vector<int> inputs;   // value ids
  std::vector<int> outputs;  // value ids
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
  // Appends a node and returns its outputs. The name defaults to the op's. Throws InvalidArgument naming the
  // op, its operands and their shapes when they do not fit, or when an update is asked to change what is no
  // variable.
  std::vector<Value> add(const Op& op, std::span<const Value> inputs, std::string_view name = {},
                         CodePlace place = CodePlace::here());

  // References to nodes and values stay valid while the graph grows.
  const std::deque<Node>& nodes() const { return nodes_; }
  const std::deque<ValueInfo>& values() const { return values_; }
  const Node& node(int id) const { return nodes_[static_cast<size_t>(id)]; }
  const ValueInfo& value(int id) const { return values_[static_cast<size_t>(id)]; }
  // The input or variable of that full name; throws InvalidArgument listing what there is.
  Value find(std::string_view name);
  // Ids of all variables, in the order they were made.
  std::vector<int> variables() const;

  // Rewriting for passes: puts other nodes in place of the present ones; values keep their ids. The new nodes
  // must be in an order in which each value is made before it is read; throws InvalidArgument otherwise.
  void replace_nodes(std::vector<Node> nodes);

 private:
  friend class NameScope;
  friend class BackwardScope;
  std::string unique_name(std::string_view name);
  std::string new_name(std::string_view what, std::string_view name);  // throws when it is taken
  Value new_value(ValueInfo info);

  std::deque<Node> nodes_;
  std::deque<ValueInfo> values_;
  std::vector<std::string> names_;  // of nodes, inputs and variables; sorted
  std::string scope_;
  const std::string* backward_of_ = nullptr;  // while a BackwardScope lives
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

// While it lives, what is added is on the way back from a loss, and its place is that of `forward`.
class BackwardScope {
 public:
  BackwardScope(Graph& graph, const Value& forward);
  ~BackwardScope();
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

 private:
  Graph& graph_;
  const std::string* previous_;
};

}  // namespace headroom
