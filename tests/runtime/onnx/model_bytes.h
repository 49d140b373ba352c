// Writes small ONNX files for tests, message by message, also wrong ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace headroom::test {

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Attributes of a node, as bytes of AttributeProto.
std::string int_attribute(const std::string& name, int64_t value);
std::string ints_attribute(const std::string& name, const std::vector<int64_t>& values);
std::string float_attribute(const std::string& name, float value);
std::string text_attribute(const std::string& name, const std::string& value);
std::string texts_attribute(const std::string& name, const std::vector<std::string>& values);

class ModelBytes;
std::string graph_attribute(const std::string& name, const ModelBytes& graph);
// The attribute `of_call` of a call, in a function.
std::string attribute_of_call(const std::string& name, const std::string& of_call);

class ModelBytes {
 public:
  // A free axis has a name, a bound one a number as its text.
  ModelBytes& input(const std::string& name, int type, const std::vector<std::string>& axes);
  ModelBytes& output(const std::string& name);
  // A tensor of an ONNX type, with its bytes as the file stores them.
  ModelBytes& tensor(const std::string& name, int type, const std::vector<int64_t>& extents,
                     const std::string& data);
  ModelBytes& floats(const std::string& name, const std::vector<int64_t>& extents,
                     const std::vector<float>& data);
  ModelBytes& integers(const std::string& name, const std::vector<int64_t>& data);  // int64, rank 1
  // A float tensor whose bytes lie in another file.
  ModelBytes& external(const std::string& name, const std::vector<int64_t>& extents,
                       const std::string& location, int64_t offset, int64_t bytes);
  ModelBytes& node(const std::string& op, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& outputs, const std::vector<std::string>& attributes = {},
                   const std::vector<std::pair<std::string, std::string>>& metadata = {});
  // The domain of the nodes that follow; "" is ONNX's own.
  ModelBytes& domain(const std::string& name);
  // A function of the nodes of `body`, of the domain "own".
  ModelBytes& function(const std::string& name, const std::vector<std::string>& inputs,
                       const std::vector<std::string>& outputs, const ModelBytes& body);
  const std::string& graph() const { return graph_; }
  // The whole file.
  std::string bytes(int64_t opset = 17) const;

 private:
  std::string graph_, domain_;
  std::vector<std::string> nodes_, functions_;
};

}  // namespace headroom::test
