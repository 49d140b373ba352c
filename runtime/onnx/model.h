// An ONNX model in memory, as in its file: plain structs, whose large tensors stay in the mapped file. Knows
// no op and no graph of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "runtime/onnx/element_type.h"

namespace headroom::onnx {

// The location of a tensor's bytes outside the file.
struct ExternalData {
  std::string location;  // a path in the model's folder
  int64_t offset = 0;
  std::optional<int64_t> length;
};

struct Tensor {
  std::string name;
  ElementType type = ElementType::kUndefined;
  std::vector<int64_t> extents;
  std::span<const std::byte> data;  // little-endian elements; empty while is_absent
  std::optional<ExternalData> external;
  bool is_absent = false;  // its external file is not there

  int64_t elements() const;  // below 2^63: the reader checks it
};

struct Body;

struct Attribute {
  enum class Type : uint8_t { kUnknown, kFloat, kInt, kString, kTensor, kGraph, kFloats, kInts, kStrings };

  std::string name;
  Type type = Type::kUnknown;  // as the file says; others of its types are kUnknown
  float number = 0;
  int64_t integer = 0;
  std::string text;
  std::shared_ptr<const Tensor> tensor;
  std::vector<float> numbers;
  std::vector<int64_t> integers;
  std::vector<std::string> texts;
  std::shared_ptr<const Body> body;  // the graph of an If, a Loop or a Scan
  std::string of_call;               // in a function: the attribute of the call that gives the value
};

struct OnnxNode {
  std::string op, domain, name;
  std::vector<std::string> inputs, outputs;  // an empty name stands for an operand that is left out
  std::vector<Attribute> attributes;
  std::string module;  // "encoder.layer.0", where the exporter says so
  std::string source;  // "net.py:31", likewise
  int64_t opset = 0;   // of the function that the node comes from; 0: the model's
  // For a lookup in a table of embeddings, if the exporter records it: the row that is not trained, -1 for
  // none.
  std::optional<int64_t> padding_row;

  // Returns null if there is no attribute of that name.
  const Attribute* find(std::string_view attribute) const;
  // Returns the name for messages: "node Conv_3 (Conv) in encoder.layer.0, net.py:31".
  std::string text() const;
};

// A graph inside a node: it also reads values of the graphs around it.
struct Body {
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxNode> nodes;
  std::vector<Tensor> initializers;  // until expand_model() makes them the model's
};

// A function that the file defines, which nodes call as an op.
struct Function {
  std::string domain, name;
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> defaults;
  std::vector<OnnxNode> nodes;
};

// Calls f(node) for each node, and for those of its bodies right after it.
template <typename Nodes, typename F>
void for_each_node(Nodes& nodes, const F& f) {
  for (auto& node : nodes) {
    f(node);
    for (const Attribute& attribute : node.attributes) {
      if (attribute.body) for_each_node(attribute.body->nodes, f);
    }
  }
}

// One axis of an input: a number, or a name that --batch and --dim bind.
struct Dimension {
  int64_t extent = -1;    // -1: free
  std::string parameter;  // its name, if it has one
};

struct ValueType {
  std::string name;
  ElementType type = ElementType::kUndefined;  // kUndefined for a sequence or a map
  std::optional<std::vector<Dimension>> shape;
};

// The name that binds a free axis: its own, or "x.1" for one without a name and for "?".
std::string axis_name(const ValueType& input, size_t axis);

struct Model {
  std::string path;
  int64_t ir_version = 0;
  std::string producer, producer_version;
  std::map<std::string, int64_t> opsets;  // by domain; "" and "ai.onnx" are the same
  std::map<std::string, std::string> metadata;
  std::string graph_name;
  std::vector<OnnxNode> nodes;  // each after the nodes that it reads from; none calls a function
  std::vector<Tensor> initializers;
  std::vector<ValueType> inputs, outputs;  // inputs without initializers
  std::vector<Function> functions;
  int64_t opset() const;  // opset of the standard ops

  // Storage of the tensors' data.
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::deque<std::vector<std::byte>> converted;
};

}  // namespace headroom::onnx
