#include "runtime/session/kernels.h"

#include "runtime/graph/placement.h"
#include "runtime/session/start_op.h"

namespace headroom {
namespace {

// Copies between the memories of two devices.
class DeviceCopy final : public Kernel {
 public:
  DeviceCopy(Device& from, Device& to, int64_t bytes) : from_(from), to_(to), bytes_(bytes) {}

  void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void*,
           Stream stream) override {
    copy_between(from_, inputs[0].data, to_, outputs[0].data, bytes_, stream);
  }

 private:
  Device &from_, &to_;
  const int64_t bytes_;
};

// Copies between a device and its page-locked host memory.
class HostCopy final : public Kernel {
 public:
  HostCopy(Device& device, bool to_host, int64_t bytes) : device_(device), to_host_(to_host), bytes_(bytes) {}

  void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void*,
           Stream stream) override {
    if (bytes_ == 0) return;
    if (to_host_) {
      device_.memory().copy_to_host(outputs[0].data, inputs[0].data, bytes_, stream);
    } else {
      device_.memory().copy_to_device(outputs[0].data, inputs[0].data, bytes_, stream);
    }
  }

 private:
  Device& device_;
  const bool to_host_;
  const int64_t bytes_;
};

std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node, const DeviceSet& devices,
                                const KernelSettings& settings) {
  const PlacedDevice& here = devices.find(node.device);
  std::vector<TensorSpec> inputs, outputs;
  for (int id : node.inputs) inputs.push_back(graph.value(id).spec);
  for (int id : node.outputs) outputs.push_back(graph.value(id).spec);
  if (is_host_copy(graph, node)) {
    return std::make_unique<HostCopy>(*here.device, is_store_to_host(node), inputs[0].bytes());
  }
  if (std::holds_alternative<CopyToDevice>(node.op)) {
    Device& from = *devices.find(graph.value(node.inputs[0]).device).device;
    // Virtual devices of one GPU share its memory, and its streams.
    if (&from != here.device) return std::make_unique<DeviceCopy>(from, *here.device, inputs[0].bytes());
  }
  KernelSettings there = settings;
  there.collective = here.collective;
  if (const KernelTarget target = here.device->kernel_target(); target.gpu == nullptr) {
    there.threads = target.threads;
    return make_cpu_kernel(node.op, inputs, outputs, there);
  }
  if (here.allocator->limit_bytes()) {
    const MemoryFacts facts = here.allocator->facts(0);
    if (facts.limit_is_on_process) there.timing_limit_bytes = facts.limit_room.value_or(0);
  }
  return with_idle_memory(*here.allocator,
                          [&] { return make_cuda_kernel(node.op, inputs, outputs, *here.device, there); });
}

}  // namespace

Kernels::Kernels(const Graph& graph, const DeviceSet& devices, const KernelSettings& settings) {
  for (const Node& node : graph.nodes()) {
    kernels_.push_back(prepare(graph, node, devices, settings));
    workspace_bytes_.push_back(kernels_.back()->workspace_bytes());
  }
}

Kernels::Kernels(std::vector<std::unique_ptr<Kernel>> kernels) : kernels_(std::move(kernels)) {
  for (const auto& kernel : kernels_) workspace_bytes_.push_back(kernel->workspace_bytes());
}

}  // namespace headroom
