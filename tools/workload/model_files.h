// Models from ONNX files as programs: their options, and tensors of data for them. Knows no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/safetensors.h"
#include "runtime/app/option_set.h"
#include "runtime/onnx/model_step.h"
#include "runtime/session/session.h"

namespace headroom {

struct ModelOptions {
  std::string path;               // path of the ONNX file; empty for a net by name
  std::string weights;            // a safetensors file beside it
  std::vector<std::string> dims;  // "NAME=N"
  LossKind loss = LossKind::kCrossEntropy;
  std::string output;  // that the loss is of; empty: the first
  Precision precision = Precision::kF32;
  int64_t lora = 0;  // rank of adapters; 0: all weights are trained
  double lora_alpha = 0;
  std::vector<std::string> lora_targets;
  std::vector<std::string> states;  // "INPUT=OUTPUT"

  // Throws InvalidArgument for targets or an alpha without a rank.
  onnx::LoraSettings lora_settings() const;
  // Throws InvalidArgument for text that is no pair.
  std::vector<onnx::StatePair> state_pairs() const;
  // The states of the model, by input. Throws InvalidArgument for names that it does not have.
  std::map<std::string, std::string> states_of(const onnx::Model& model) const;
  bool is_given() const { return !path.empty(); }
};

void add_model_options(OptionSet& set, ModelOptions& options);

// The file of the options. Throws as onnx::read_model does.
std::shared_ptr<const onnx::Model> read_model(const ModelOptions& options);
// The extents of "NAME=N". Throws InvalidArgument for anything else.
std::map<std::string, int64_t> parse_dims(const std::vector<std::string>& dims);

// Numbers that stand for data: below `bound` for i32, in [0, 1) for f32.
std::vector<std::byte> drawn_data(const TensorSpec& spec, int64_t bound, uint64_t seed);
// Copies bytes of a spec's size to the memory of an input.
void feed_bytes(Session& session, const Value& input, const std::vector<std::byte>& bytes);
// Returns what the last run computed of a value that is fetched: f32, i32 or u8.
NamedTensor fetched(Session& session, const Value& value, const std::string& name);
// The first index that a graph input must not hold: the fewest rows of a table that it picks from. 2 for
// inputs that pick from none, such as masks.
int64_t index_bound(const Graph& graph, const Value& input);

// A file of data for a model: each of its inputs by name, or `x` for the only one, labels as `y`, all with as
// many rows. The first values of `states` may be left out. It may also hold what a reference computed, to
// compare with: eval_output, and grad.NAME.
class ModelData {
 public:
  explicit ModelData(const std::string& path, const std::map<std::string, std::string>& states = {})
      : file_(path), tensors_(view_safetensors(file_)), states_(states) {}

  // Null if there is none of that name.
  const StoredTensor* find(std::string_view name) const;
  // Throws InvalidArgument naming what is missing.
  const StoredTensor& input(const onnx::Model& model, std::string_view name) const;
  const StoredTensor& labels() const;
  // Extents of free axes as the data has them, from axis `first` on: axis 0 is a training step's batch.
  std::map<std::string, int64_t> dims(const onnx::Model& model, size_t first = 1) const;
  // Throws InvalidArgument for inputs and labels that do not have as many rows.
  int64_t rows(const onnx::Model& model) const;
  // The first extent of the first input that has one; 1 without any.
  int64_t batch(const onnx::Model& model) const;
  // The inputs of a few whole numbers, such as lengths and rates: a run that has them may depend on them.
  std::map<std::string, onnx::HostTensor> known(const onnx::Model& model) const;
  // The first value of a state: zeros if there is none. Throws InvalidArgument if it does not fit.
  Initializer first_value(const std::string& state, const TensorSpec& spec) const;
  // Copies the whole tensor of an input to a session. Throws InvalidArgument if it does not fit.
  void feed(Session& session, const onnx::Model& model, const onnx::BoundTensor& input) const;
  // Rows [first, first + count) of a tensor, in our element types.
  static std::vector<std::byte> rows_of(const StoredTensor& tensor, int64_t first, int64_t count);
  // The reference's gradient of a parameter: by its name, or, as exporters name tied weights differently, by
  // its shape where only one of each is left. Null if there is none.
  const StoredTensor* gradient(const onnx::ImportedModel& model, size_t parameter) const;
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::string& path() const { return file_.path(); }

 private:
  // Calls use(input, tensor) for the model's inputs that have one.
  template <typename Use>
  void for_each_input(const onnx::Model& model, Use use) const {
    for (const onnx::ValueType& input : model.inputs) {
      if (!lacks(input)) use(input, this->input(model, input.name));
    }
  }
  // Returns true for a state without a first value.
  bool lacks(const onnx::ValueType& input) const {
    return states_.contains(input.name) && find(input.name) == nullptr;
  }
  std::vector<std::byte> bytes_of(const StoredTensor& tensor, const TensorSpec& spec) const;

  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> states_;  // outputs by input
};

}  // namespace headroom
