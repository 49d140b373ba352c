#include "runtime/onnx/node_import.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom::onnx {

const Item& NodeImport::in(size_t i) const {
  if (!has(i)) fail(fmt::format("operand {} is missing", i));
  return inputs_[i];
}

std::vector<int64_t> NodeImport::integers_in(size_t i) const {
  const Item& item = in(i);
  if (!item.constant) fail(fmt::format("operand {} ({}) depends on the data", i, node.inputs[i]));
  return onnx::integers_of(im.dense(item));
}

int64_t NodeImport::integer_in(size_t i) const {
  const std::vector<int64_t> all = integers_in(i);
  if (all.size() != 1) fail(fmt::format("operand {} has {} elements, not 1", i, all.size()));
  return all[0];
}

float NodeImport::number_in(size_t i) const {
  const Item& item = in(i);
  if (!item.constant) fail(fmt::format("operand {} ({}) depends on the data", i, node.inputs[i]));
  const HostTensor all = im.dense(im.cast(item, ElementType::kFloat));
  if (all.elements() != 1) fail(fmt::format("operand {} has {} elements, not 1", i, all.elements()));
  return all.data<float>()[0];
}

const Attribute* NodeImport::find(std::string_view attribute, Attribute::Type type,
                                  std::string_view type_name) const {
  const Attribute* const found = node.find(attribute);
  if (found != nullptr && found->type != Attribute::Type::kUnknown && found->type != type)
    fail(fmt::format("its attribute {} is not {}", attribute, type_name));
  return found;
}

int64_t NodeImport::integer(std::string_view attribute, int64_t otherwise) const {
  const Attribute* found = find(attribute, Attribute::Type::kInt, "a whole number");
  return found == nullptr ? otherwise : found->integer;
}

float NodeImport::number(std::string_view attribute, float otherwise) const {
  const Attribute* found = find(attribute, Attribute::Type::kFloat, "a float");
  return found == nullptr ? otherwise : found->number;
}

std::string NodeImport::text(std::string_view attribute, std::string_view otherwise) const {
  const Attribute* found = find(attribute, Attribute::Type::kString, "a text");
  return found == nullptr ? std::string(otherwise) : found->text;
}

const Body& NodeImport::body(std::string_view attribute) const {
  const Attribute* found = find(attribute, Attribute::Type::kGraph, "a graph");
  if (found == nullptr || !found->body) fail(fmt::format("has no graph {}", attribute));
  return *found->body;
}

std::vector<int64_t> NodeImport::integers(std::string_view attribute) const {
  const Attribute* found = find(attribute, Attribute::Type::kInts, "a list of whole numbers");
  return found == nullptr ? std::vector<int64_t>() : found->integers;
}

std::optional<std::vector<int64_t>> NodeImport::integers_of(std::string_view attribute, size_t i) const {
  if (has_attribute(attribute)) return integers(attribute);
  if (has(i)) return integers_in(i);
  return std::nullopt;
}

int NodeImport::axis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank) fail(fmt::format("axis {} is outside rank {}", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int> NodeImport::axes(const std::vector<int64_t>& list, int rank) const {
  std::vector<int> result;
  for (int64_t one : list) result.push_back(axis(one, rank));
  std::ranges::sort(result);
  if (std::ranges::adjacent_find(result) != result.end()) fail("an axis is named twice");
  return result;
}

}  // namespace headroom::onnx
