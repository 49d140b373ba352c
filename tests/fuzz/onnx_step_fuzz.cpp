#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "base/errors.h"
#include "runtime/onnx/model_step.h"
#include "runtime/onnx/read_model.h"
#include "runtime/plan/plan.h"
#include "tests/fuzz/fuzz_target.h"

// A model that the reader accepts becomes a training step with a plan, or is refused.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  try {
    const auto model = std::make_shared<const onnx::Model>(
        onnx::parse_model(std::as_bytes(std::span(data, size)), "fuzz.onnx"));
    const auto step = onnx::make_model_step(model, {.import = {.batch = 2}, .optimizer = "sgd"});
    const std::vector<int64_t> workspace(step->graph.nodes().size(), 0);
    const Plan plan = make_plan(step->graph, step->targets(), PlanMode::kPacked, workspace);
    if (find_fault(step->graph, plan, workspace)) std::abort();
  } catch (const InvalidArgument&) {
  }
  return 0;
}
