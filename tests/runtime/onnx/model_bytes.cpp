#include "tests/runtime/onnx/model_bytes.h"

#include <protozero/pbf_writer.hpp>

// Numbers of fields are those of onnx.proto.
namespace headroom::test {
namespace {

using Writer = protozero::pbf_writer;

std::string entry(const std::string& key, const std::string& value) {
  std::string bytes;
  Writer writer(bytes);
  writer.add_string(1, key);
  writer.add_string(2, value);
  return bytes;
}

std::string value_info(const std::string& name, int type, const std::vector<std::string>& axes) {
  std::string shape, tensor, whole_type, info;
  {
    Writer writer(shape);
    for (const std::string& axis : axes) {
      std::string dimension;
      Writer one(dimension);
      if (axis.find_first_not_of("-0123456789") == std::string::npos) {
        one.add_int64(1, std::stoll(axis));
      } else {
        one.add_string(2, axis);
      }
      writer.add_message(1, dimension);
    }
  }
  Writer of_tensor(tensor);
  of_tensor.add_int32(1, type);
  of_tensor.add_message(2, shape);
  Writer(whole_type).add_message(1, tensor);
  Writer of_info(info);
  of_info.add_string(1, name);
  of_info.add_message(2, whole_type);
  return info;
}

std::string tensor_start(const std::string& name, int type, const std::vector<int64_t>& extents) {
  std::string tensor;
  Writer writer(tensor);
  writer.add_packed_int64(1, extents.begin(), extents.end());
  writer.add_int32(2, type);
  writer.add_string(8, name);
  return tensor;
}

// `add_value` adds the attribute's value, which has that type.
template <typename AddValue>
std::string attribute(const std::string& name, int type, const AddValue& add_value) {
  std::string bytes;
  Writer writer(bytes);
  writer.add_string(1, name);
  add_value(writer);
  writer.add_enum(20, type);
  return bytes;
}

}  // namespace

std::string int_attribute(const std::string& name, int64_t value) {
  return attribute(name, 2, [&](Writer& writer) { writer.add_int64(3, value); });
}

std::string ints_attribute(const std::string& name, const std::vector<int64_t>& values) {
  return attribute(name, 7, [&](Writer& writer) {
    for (const int64_t value : values) writer.add_int64(8, value);
  });
}

std::string float_attribute(const std::string& name, float value) {
  return attribute(name, 1, [&](Writer& writer) { writer.add_float(2, value); });
}

std::string text_attribute(const std::string& name, const std::string& value) {
  return attribute(name, 3, [&](Writer& writer) { writer.add_string(4, value); });
}

std::string texts_attribute(const std::string& name, const std::vector<std::string>& values) {
  return attribute(name, 8, [&](Writer& writer) {
    for (const std::string& value : values) writer.add_string(9, value);
  });
}

std::string graph_attribute(const std::string& name, const ModelBytes& graph) {
  return attribute(name, 5, [&](Writer& writer) { writer.add_message(6, graph.graph()); });
}

std::string attribute_of_call(const std::string& name, const std::string& of_call) {
  return attribute(name, 2, [&](Writer& writer) { writer.add_string(21, of_call); });
}

ModelBytes& ModelBytes::input(const std::string& name, int type, const std::vector<std::string>& axes) {
  Writer(graph_).add_message(11, value_info(name, type, axes));
  return *this;
}

ModelBytes& ModelBytes::output(const std::string& name) {
  Writer(graph_).add_message(12, value_info(name, 1, {}));
  return *this;
}

ModelBytes& ModelBytes::floats(const std::string& name, const std::vector<int64_t>& extents,
                               const std::vector<float>& data) {
  std::string tensor = tensor_start(name, 1, extents);
  Writer(tensor).add_bytes(9, reinterpret_cast<const char*>(data.data()), data.size() * sizeof(float));
  Writer(graph_).add_message(5, tensor);
  return *this;
}

ModelBytes& ModelBytes::tensor(const std::string& name, int type, const std::vector<int64_t>& extents,
                               const std::string& data) {
  std::string tensor = tensor_start(name, type, extents);
  Writer(tensor).add_bytes(9, data);
  Writer(graph_).add_message(5, tensor);
  return *this;
}

ModelBytes& ModelBytes::domain(const std::string& name) {
  domain_ = name;
  return *this;
}

ModelBytes& ModelBytes::function(const std::string& name, const std::vector<std::string>& inputs,
                                 const std::vector<std::string>& outputs, const ModelBytes& body) {
  std::string function, opsets;
  Writer writer(function);
  writer.add_string(1, name);
  for (const std::string& input : inputs) writer.add_string(4, input);
  for (const std::string& output : outputs) writer.add_string(5, output);
  for (const std::string& node : body.nodes_) writer.add_message(7, node);
  Writer(opsets).add_int64(2, 17);
  writer.add_message(9, opsets);
  writer.add_string(10, "own");
  functions_.push_back(std::move(function));
  return *this;
}

ModelBytes& ModelBytes::integers(const std::string& name, const std::vector<int64_t>& data) {
  std::string tensor = tensor_start(name, 7, {static_cast<int64_t>(data.size())});
  Writer(tensor).add_packed_int64(7, data.begin(), data.end());
  Writer(graph_).add_message(5, tensor);
  return *this;
}

ModelBytes& ModelBytes::external(const std::string& name, const std::vector<int64_t>& extents,
                                 const std::string& location, int64_t offset, int64_t bytes) {
  std::string tensor = tensor_start(name, 1, extents);
  Writer writer(tensor);
  writer.add_message(13, entry("location", location));
  writer.add_message(13, entry("offset", std::to_string(offset)));
  writer.add_message(13, entry("length", std::to_string(bytes)));
  writer.add_enum(14, 1);
  Writer(graph_).add_message(5, tensor);
  return *this;
}

ModelBytes& ModelBytes::node(const std::string& op, const std::vector<std::string>& inputs,
                             const std::vector<std::string>& outputs,
                             const std::vector<std::string>& attributes,
                             const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::string node;
  Writer writer(node);
  for (const std::string& input : inputs) writer.add_string(1, input);
  for (const std::string& output : outputs) writer.add_string(2, output);
  writer.add_string(4, op);
  for (const std::string& attribute : attributes) writer.add_message(5, attribute);
  if (!domain_.empty()) writer.add_string(7, domain_);
  for (const auto& [key, value] : metadata) writer.add_message(9, entry(key, value));
  nodes_.push_back(node);
  Writer(graph_).add_message(1, node);
  return *this;
}

std::string ModelBytes::bytes(int64_t opset) const {
  std::string model, opsets;
  Writer(opsets).add_int64(2, opset);
  Writer writer(model);
  writer.add_int64(1, 8);
  writer.add_string(2, "test");
  writer.add_message(7, graph_);
  writer.add_message(8, opsets);
  for (const std::string& function : functions_) writer.add_message(25, function);
  return model;
}

}  // namespace headroom::test
