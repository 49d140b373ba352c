// An ONNX model as part of our graph: its inputs, its outputs, and the weights that are trained. Knows no
// loss and no device.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/onnx/importer.h"
#include "runtime/onnx/model.h"
#include "runtime/onnx/parameters.h"

namespace headroom::onnx {

struct ImportSettings {
  std::optional<int64_t> batch = {};         // the extent of the first axis of the inputs, where that is free
  std::map<std::string, int64_t> dims = {};  // sizes of other free axes, by name
  bool is_training = false;                  // normalization by the batch's statistics, and dropout
  uint64_t seed = 1;               // seed of dropout, and of weights that the file names but does not contain
  std::optional<Value> step = {};  // i32 [] counter, for dropout
  // For floats that will be stored in 16 bits: attention as one op, whose GPU kernel supports only these, and
  // no strided convolution of fewer channels than a tensor core loads at once.
  bool stores_half = false;
  LoraSettings lora = {};                        // of a training step
  std::map<std::string, HostTensor> known = {};  // inputs whose numbers are known now: they become constants
  std::vector<StatePair> states = {};
  // Returns the first value of a state by its name, type and shape; zeros without it.
  std::function<Initializer(const std::string&, const TensorSpec&)> first_state = {};
};

// A tensor of the file as the graph has it: axis i of `value` is axis order[i] of the file's.
struct BoundTensor {
  std::string name;
  ElementType type = ElementType::kFloat;
  Shape shape;  // as the file has it
  Value value;
  Axes order;
  bool is_merged = false;  // one of several weights that the file has as one, under the name of any of them
};

// One ONNX node, or several of a module, for people.
struct LayerSummary {
  std::string module, ops;  // "encoder.layer.0.linear", "MatMul Add"
  Shape output;
  int64_t parameters = 0;  // elements of weights that no layer above has
  // Ids in the graph: [first, last). Nodes of several layers may be merged later; values stay.
  int first_value = 0, last_value = 0;
};

// A state as the graph has it: a variable that holds what the file's input is, and what it is in the next
// run.
struct ImportedState {
  std::string input, output;
  ElementType type = ElementType::kFloat;
  Shape shape;     // as the file has it
  Value variable;  // in the file's order of axes, but of shape (1) if the file's has none
  Item next;
};

struct ImportedModel {
  std::shared_ptr<const Model> model;  // weights come from it
  std::vector<BoundTensor> inputs;     // those that the outputs depend on
  std::vector<Item> outputs;           // without those of states; see Importer::value_in
  std::vector<std::string> output_names;
  std::vector<BoundTensor> parameters;  // trained, in the order of the file; with LoRA the adapters alone
  std::vector<BoundTensor> statistics;  // running means and variances
  std::vector<ImportedState> states;
  std::vector<LayerSummary> layers;
  std::vector<std::string> notes;  // for people, a line each
  int64_t absent_bytes = 0;        // bytes of weights that the file names but does not contain
  std::shared_ptr<Importer> importer;

  // The value of an output whose axis i is the output's axis order[i].
  Value output_in(size_t i, const Axes& order) const { return importer->value_in(outputs[i], order); }
  // The position of the named output; the first one for an empty name. Throws InvalidArgument with all names.
  size_t find_output(std::string_view name) const;
};

// Adds the model to the graph, which must not outlive it. Throws InvalidArgument of one line that names the
// file: for free axes that nothing binds, and with every node that is not supported.
ImportedModel import_model(std::shared_ptr<const Model> model, const ImportSettings& settings, Graph& graph);

}  // namespace headroom::onnx
