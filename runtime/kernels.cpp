#include "runtime/kernels.h"

#include "runtime/core/errors.h"

namespace headroom {

namespace {

std::vector<std::unique_ptr<Kernel>> prepare(const Graph& graph, DeviceKind kind) {
  if (kind == DeviceKind::kCuda) throw InvalidArgument("this build has no CUDA kernels");
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (const Node& node : graph.nodes()) {
    std::vector<TensorSpec> inputs, outputs;
    for (int id : node.inputs) inputs.push_back(graph.value(id).spec);
    for (int id : node.outputs) outputs.push_back(graph.value(id).spec);
    kernels.push_back(make_cpu_kernel(node.op, inputs, outputs));
  }
  return kernels;
}

}  // namespace

Kernels::Kernels(const Graph& graph, DeviceKind kind) : Kernels(prepare(graph, kind)) {}

Kernels::Kernels(std::vector<std::unique_ptr<Kernel>> kernels) : kernels_(std::move(kernels)) {
  for (const auto& kernel : kernels_) workspace_bytes_.push_back(kernel->workspace_bytes());
}

}  // namespace headroom
