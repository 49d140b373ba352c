#include "runtime/kernels.h"

#include "runtime/core/errors.h"

namespace headroom {

Kernels::Kernels(const Graph& graph, DeviceKind kind) {
  if (kind == DeviceKind::kCuda) throw InvalidArgument("this build has no CUDA kernels");
  for (const Node& node : graph.nodes()) {
    std::vector<TensorSpec> inputs, outputs;
    for (int id : node.inputs) inputs.push_back(graph.value(id).spec);
    for (int id : node.outputs) outputs.push_back(graph.value(id).spec);
    kernels_.push_back(make_cpu_kernel(node.op, inputs, outputs));
    workspace_bytes_.push_back(kernels_.back()->workspace_bytes());
  }
}

}  // namespace headroom
