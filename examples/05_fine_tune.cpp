// Trains the net of an ONNX file on a batch of drawn numbers: 05_fine_tune NET.onnx. `headroom models` says
// how to export one.

#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>

#include "runtime/app/runtime.h"
#include "runtime/onnx/model_step.h"
#include "runtime/onnx/read_model.h"
#include "runtime/session/session.h"

int main(int argc, char** argv) try {
  using namespace headroom;
  if (argc != 2) return std::fprintf(stderr, "usage: 05_fine_tune NET.onnx\n"), 2;

  // The training step: forward, cross entropy of the first output, gradients, SGD.
  const auto model = std::make_shared<const onnx::Model>(onnx::read_model(argv[1]));
  const auto step = make_model_step(model, {.import = {.batch = 8}, .optimizer = "sgd"});

  // A simulated GPU; its variables hold the file's weights.
  Runtime runtime({.device = "sim", .strategy = "allow-growth"});
  Variables variables(step->graph, runtime.device(), runtime.allocator());
  Session session(step->graph, step->targets(), PlanMode::kPacked, variables);

  // One input of floats; the labels are classes.
  const onnx::BoundTensor& input = step->model.inputs.at(0);
  float number = 0;
  for (float& element : session.input<float>(input.value)) element = std::fmod(number += 0.618f, 1.0f);
  int32_t label = 0;
  for (int32_t& element : session.input<int32_t>(step->labels))
    element = label++ % static_cast<int32_t>(step->classes);
  session.input<float>(step->learning_rate)[0] = 0.1f;

  for (int i = 0; i < 5; ++i) {
    session.run();
    std::printf("step %d: loss %.4f\n", i + 1, session.output<float>(step->loss)[0]);
  }
  return 0;
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 2;
}
