// Adapters of low rank (LoRA: Hu et al. 2021) beside the matrices of a model, which are then not trained.
// Knows no op and no device.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/onnx/item.h"
#include "runtime/onnx/model.h"

namespace headroom::onnx {

class Importer;

struct LoraSettings {
  int64_t rank = 0;  // of each adapter; 0: none, all weights are trained
  double alpha = 0;  // the product is scaled by alpha / rank; 0: alpha is the rank
  // Parts of names: "q" and "q_proj" are parts of "layers.0.q_proj". Empty: every matrix that only products
  // read, but those that give an output of the model.
  std::vector<std::string> targets = {};

  bool is_on() const { return rank > 0; }
};

// True if the text stands in the name between its ends, dots, slashes and underscores.
bool has_part(const std::string& name, const std::string& part);

// The adapters of one model while it is imported.
class Adapters {
 public:
  explicit Adapters(LoraSettings settings) : settings_(std::move(settings)) {}

  // x (.., in) times the adapter (in, out) of a weight: x A^T B^T alpha / rank. Nothing for a weight that has
  // none. `node` multiplies by the source's tensor. Names are those of peft.
  std::optional<Item> product(Importer& im, const Item& x, const Item& weight, const OnnxNode& node,
                              const Model& model);
  // Throws InvalidArgument if no weight got one, with the names that there are.
  void require_any() const;

 private:
  struct Pair {
    Item a, b;  // (rank, in), (out, rank)
  };
  bool is_target(const std::string& name, const OnnxNode& node, const Model& model) const;

  const LoraSettings settings_;
  std::map<int, Pair> pairs_;        // by source of the weight
  std::vector<std::string> others_;  // weights that got none
};

}  // namespace headroom::onnx
