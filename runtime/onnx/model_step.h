// A training step, or the inference, of an ONNX model as a graph. Knows no device and no data.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.h"
#include "runtime/graph/data_parallel.h"
#include "runtime/graph/placement.h"
#include "runtime/graph/precision.h"
#include "runtime/onnx/import_model.h"
#include "runtime/plan/plan.h"

namespace headroom {

enum class LossKind : uint8_t { kCrossEntropy, kMse };
constexpr auto value_names(LossKind) {
  return std::to_array<std::string_view>({"cross-entropy", "mse"});
}

namespace onnx {

struct ModelStepSettings {
  ImportSettings import = {};
  LossKind loss = LossKind::kCrossEntropy;
  std::string output = {};  // that the loss is of; the first one if empty
  // Shape of the labels, if the data has them. Classes then lie along axis 1 or the last one, depending on
  // the extents; otherwise along axis 1 of images, and the last axis of all other outputs.
  std::optional<Shape> label_shape = {};
  std::string optimizer = "adam";
  Precision precision = Precision::kF32;  // with f16, the loss is scaled
  bool fused = true;
  bool fetches_gradients = false;
  std::vector<ScopeOnDevice> placed = {};
  int replicas = 1;
  Shard shard = {};
  BucketSettings buckets = {};
};

struct ModelStep {
  Graph graph;
  ImportedModel model;
  Value labels;                             // i32 below `classes`, or f32 like the output
  Value learning_rate;                      // f32 []
  Value loss;                               // f32 []
  int64_t classes = 0;                      // 0 for labels that are numbers
  std::vector<Value> gradients;             // by parameter of the model, times the loss scale if there is one
  std::optional<Value> inverse_scale = {};  // f32 []: 1 / the loss scale of f16

  std::vector<Value> parameters() const;
  Targets targets() const { return {{loss}, true}; }
};

// Forward, loss, gradients, updates. Throws InvalidArgument as import_model does, for an unknown optimizer or
// output, and for a model without weights or with labels that do not fit.
std::unique_ptr<ModelStep> make_model_step(std::shared_ptr<const Model> model,
                                           const ModelStepSettings& settings);

struct ModelInference {
  Graph graph;
  ImportedModel model;
  std::vector<Value> outputs;  // f32 in every precision, in the file's order of axes

  std::vector<Value> parameters() const;
  Targets targets() const { return {outputs, !model.states.empty()}; }
};
// Makes only the forward pass, and updates of its states, with the running statistics of normalizations;
// weights that products read are stored in the precision. Ignores the settings for training.
std::unique_ptr<ModelInference> make_model_inference(std::shared_ptr<const Model> model,
                                                     const ModelStepSettings& settings);

}  // namespace onnx
}  // namespace headroom
