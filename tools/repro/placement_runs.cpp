// B3, B7 and D1: on which device things are, by name, by number and by where their operands live.

#include <fmt/format.h>

#include "base/bytes.h"
#include "runtime/app/place.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/placement.h"
#include "runtime/session/session.h"
#include "tools/repro/runs.h"

namespace headroom::repro {
namespace {

const TensorSpec kMatrix{DType::kF32, {2, 2}};

// Returns the first element of the graph's result for its variables.
float first_of(const Value& value, const Graph& graph, const DeviceSet& devices) {
  Variables variables(graph, devices);
  Session session(graph, {.fetches = {value}}, PlanMode::kDynamic, variables);
  session.run();
  return session.output<float>(value)[0];
}

// The two matrices of TensorFlow's guide on the CPU, their product on `device`.
void multiply_on(const char* device, bool softly, Measured& measured) {
  Graph graph;
  const auto matrix = [&](const char* name) { return graph.variable(name, kMatrix, ones()); };
  const Value a = with_device(graph, "/CPU:0", [&] { return matrix("a"); });
  const Value b = with_device(graph, "/device:CPU:0", [&] { return matrix("b"); });
  const Value product = with_device(graph, device, [&] { return matmul(a, b); });
  Runtime runtime(
      {.device = kFourGpus, .device_policy = DevicePolicy::kSilent, .allow_soft_placement = softly});
  const DeviceSet devices = place(graph, runtime);
  for (const std::string& line : placement_lines(graph, runtime.current_device())) {
    measured.lines.push_back(line);
    if (line.starts_with("a: ")) measured.add("a", line);
    if (line.starts_with("matmul: ")) measured.add("product", line);
  }
  measured.add("value", fmt::format("{}", first_of(product, graph, devices)));
}

// PyTorch's questions, which torch.cuda answers for all visible GPUs.
void ask_about_four(Measured& measured) {
  const Environment all_visible(kVisible, nullptr);
  Runtime runtime({.device = kFourGpus});
  const DeviceMap& map = runtime.devices();
  const auto count = [&] { return static_cast<int64_t>(map.logical.size()); };
  measured.add("is_available", count() > 0 ? "yes" : "no");
  measured.add("is_initialized", runtime.initialized() ? "yes" : "no");
  measured.add("device_count", count());
  measured.add("current_device", int64_t{runtime.current_device().ordinal});
  runtime.set_current_device("/GPU:1");
  measured.add("current_after_set_device", int64_t{runtime.current_device().ordinal});
  measured.add("count_after_set_device", count());
  const PhysicalGpu& gpu = map.physical[static_cast<size_t>(map.find({DeviceType::kGpu, 1}).physical)];
  measured.add("device_name", gpu.name);
  measured.add("device_capability",
               fmt::format("{}.{}", gpu.compute_capability / 10, gpu.compute_capability % 10));
  const Device& used = runtime.device();
  measured.add("is_initialized_after_use", runtime.initialized() ? "yes" : "no");
  measured.lines.push_back(fmt::format("the current device, used first: {}", used.name()));
  measured.lines.emplace_back("versions of driver and libraries: headroom doctor");
}

}  // namespace

Measured run_b3(const Stage& stage) {
  const Environment all_visible(kVisible, nullptr);
  Measured measured;
  if (!stage.fixed) multiply_on("/job:localhost/replica:0/task:0/device:GPU:1", false, measured);
  note_refusal(measured, "[", [&] { multiply_on("/GPU:5", stage.fixed, measured); });
  return measured;
}

Measured run_b7(const Stage& stage) {
  Measured measured;
  if (!stage.fixed) ask_about_four(measured);
  const Environment one_visible(kVisible, "1");
  Runtime runtime({.device = kFourGpus});
  measured.add("count_with_one_visible", static_cast<int64_t>(runtime.devices().logical.size()));
  note_refusal(measured, ": no", [&] { runtime.set_current_device(stage.fixed ? "/GPU:0" : "/GPU:1"); });
  return measured;
}

Measured run_d1(const Stage& place_of_run) {
  const Environment all_visible(kVisible, nullptr);
  Measured measured;
  Graph graph;
  const Value x = graph.variable("x", kMatrix, ones());
  const Value y = with_device(graph, "/GPU:1", [&] { return graph.variable("y", kMatrix, ones()); });
  const Value z = with_device(graph, "/GPU:1", [&] {
    return with_device(graph, "/GPU:2", [&] { return graph.variable("z", kMatrix, ones()); });
  });
  const Value after_the_guard = graph.variable("after_the_guard", kMatrix, ones());
  const auto home = [&](const Value& value) {
    const std::string& name = graph.value(value.id).device;
    return name.empty() ? std::string("/device:GPU:0") : name;
  };
  measured.add("in_the_guard", home(y));
  measured.add("in_the_guard_inside", home(z));
  measured.add("after_the_guard", home(after_the_guard));
  measured.add("y_times_y", home(mul(y, y)));
  const Value sum = add(place_of_run.fixed ? to_device(x, "/GPU:1") : x, y);
  Runtime runtime({.device = kFourGpus});
  note_refusal(measured, "!", [&] {
    const DeviceSet devices = place(graph, runtime);
    for (const std::string& line : placement_lines(graph, runtime.current_device())) {
      measured.lines.push_back(line);
    }
    measured.add("x_plus_y", fmt::format("{} on {}", first_of(sum, graph, devices), home(sum)));
  });
  return measured;
}

}  // namespace headroom::repro
