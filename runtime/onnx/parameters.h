// Finds the trained tensors of a file, and the pairs that are its states. Exporters mark them in different
// ways: PyTorch's newer one lists the parameters, others show them only by their use. Knows no graph of ours.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/onnx/importer.h"

namespace headroom::onnx {

struct Roles {
  std::unordered_map<std::string_view, SourceKind> kinds;      // by initializer; others are constants
  std::unordered_map<std::string_view, const Tensor*> merges;  // vectors that stood for several
  std::unordered_map<std::string_view, const Tensor*> copies;  // matrices that are tables transposed
  // Running statistics that the export itself has moved, and their earlier values.
  std::unordered_map<std::string_view, float> moved;
  // By lookup in a table of embeddings: the row that is padding and gets no gradient from it.
  std::unordered_map<const OnnxNode*, int64_t> padding_rows;
  std::unordered_set<std::string_view> tables;  // that a lookup reads
  // Integers of 8 or 4 bits that only DequantizeLinear reads: they stay as they are stored.
  std::unordered_set<std::string_view> stored;
  std::vector<std::string> notes;  // findings, one line each

  SourceKind kind_of(std::string_view name) const {
    const auto found = kinds.find(name);
    return found == kinds.end() ? SourceKind::kConstant : found->second;
  }
  // -1 without one.
  int64_t padding_row(const OnnxNode& node) const {
    const auto found = padding_rows.find(&node);
    return found == padding_rows.end() ? -1 : found->second;
  }
  // Returns the tensor if each of its uses is a weight of its own, otherwise null.
  const Tensor* merged(std::string_view name) const {
    const auto found = merges.find(name);
    return found == merges.end() ? nullptr : found->second;
  }
};

// The keys point into the model. Padding in tables is looked for only for training.
Roles find_roles(const Model& model, bool is_training);

// An output of a run that is an input of the next one, or the beginnings of the names of several:
// past=present pairs past.0.key with present.0.key.
struct StatePair {
  std::string input, output;
};
// The output of each input that is a state. Throws InvalidArgument for names that the model does not have.
std::map<std::string, std::string> find_states(const Model& model, std::span<const StatePair> pairs);

}  // namespace headroom::onnx
