// Helpers of the tests of imported models: models from bytes, numbers for their weights, and a few steps of
// training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/app/runtime.h"
#include "runtime/onnx/model_step.h"

namespace headroom::test {

std::shared_ptr<const onnx::Model> model_of(const std::string& bytes);
// Returns numbers of both signs; adjacent ones differ.
std::vector<float> wave(int64_t count, float scale = 0.5f);
// The nodes of that op.
int count_of(const Graph& graph, std::string_view op);
// What the forward pass computes of float inputs, a list for each output; integers as floats.
std::vector<std::vector<float>> answers_of(const std::string& bytes, const onnx::ImportSettings& settings,
                                           const std::vector<std::vector<float>>& inputs,
                                           const std::string& device = "cpu",
                                           Precision precision = Precision::kF32);
// The message of the refusal; empty if the model is imported.
std::string refusal_of(const std::string& bytes, const onnx::ImportSettings& settings = {.batch = 2});
// Trains on one batch and returns the losses.
std::vector<float> losses_of(const onnx::ModelStep& step, const RuntimeOptions& options, int steps);

}  // namespace headroom::test
