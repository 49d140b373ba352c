#include "runtime/kernels.h"

#include "runtime/start_op.h"

namespace headroom {
namespace {

std::vector<std::unique_ptr<Kernel>> prepare(const Graph& graph, Device& device, Allocator& allocator,
                                             const KernelSettings& settings) {
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (const Node& node : graph.nodes()) {
    std::vector<TensorSpec> inputs, outputs;
    for (int id : node.inputs) inputs.push_back(graph.value(id).spec);
    for (int id : node.outputs) outputs.push_back(graph.value(id).spec);
    if (device.kind() == DeviceKind::kCuda) {
      kernels.push_back(with_idle_memory(
          allocator, [&] { return make_cuda_kernel(node.op, inputs, outputs, device, settings); }));
    } else {
      kernels.push_back(make_cpu_kernel(node.op, inputs, outputs, settings));
    }
  }
  return kernels;
}

}  // namespace

Kernels::Kernels(const Graph& graph, Device& device, Allocator& allocator, const KernelSettings& settings)
    : Kernels(prepare(graph, device, allocator, settings)) {}

Kernels::Kernels(std::vector<std::unique_ptr<Kernel>> kernels) : kernels_(std::move(kernels)) {
  for (const auto& kernel : kernels_) workspace_bytes_.push_back(kernel->workspace_bytes());
}

}  // namespace headroom
