// The interface for importing one node: its operands, its attributes and its results. Knows no op.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/onnx/importer.h"

namespace headroom::onnx {

class NodeImport {
 public:
  // Adds the nodes of a graph inside the node, of those inputs, and gives its outputs.
  using RunBody = std::function<std::vector<Item>(const Body&, std::vector<Item>)>;

  NodeImport(Importer& importer, const OnnxNode& of, std::vector<Item> inputs, int64_t version,
             RunBody body = {})
      : im(importer), node(of), opset(version), run_body(std::move(body)), inputs_(std::move(inputs)) {}

  [[noreturn]] void fail(std::string why) const { throw Unsupported{std::move(why)}; }

  // An operand that is left out has no place, or an empty name.
  bool has(size_t i) const { return i < inputs_.size() && !node.inputs[i].empty(); }
  const Item& in(size_t i) const;
  size_t operands() const { return inputs_.size(); }
  // The numbers of an operand that must be a constant.
  std::vector<int64_t> integers_in(size_t i) const;
  int64_t integer_in(size_t i) const;
  float number_in(size_t i) const;

  int64_t integer(std::string_view attribute, int64_t otherwise) const;
  float number(std::string_view attribute, float otherwise) const;
  std::string text(std::string_view attribute, std::string_view otherwise) const;
  const Body& body(std::string_view attribute) const;
  std::vector<int64_t> integers(std::string_view attribute) const;  // empty if it is not there
  bool has_attribute(std::string_view attribute) const { return node.find(attribute) != nullptr; }
  // The attribute in old versions, operand `i` in new ones; nothing if there is neither.
  std::optional<std::vector<int64_t>> integers_of(std::string_view attribute, size_t i) const;

  // An axis in [0, rank), or [-rank, 0) from the end.
  int axis(int64_t axis, int rank) const;
  std::vector<int> axes(const std::vector<int64_t>& axes, int rank) const;

  void out(Item item) { outputs.push_back(std::move(item)); }

  Importer& im;
  const OnnxNode& node;
  const int64_t opset;
  const RunBody run_body;
  int64_t padding_row = -1;  // padding row of a table that the node looks up, see Roles
  std::vector<Item> outputs;

 private:
  // The attribute if it is there; fails for one of another type.
  const Attribute* find(std::string_view attribute, Attribute::Type type, std::string_view type_name) const;

  std::vector<Item> inputs_;
};

}  // namespace headroom::onnx
