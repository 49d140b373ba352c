// A GPU's kernel run once on copies of tensors in host memory, as run_op does on the CPU.
#pragma once

#include <stdexcept>

#include "runtime/core/cuda/devices.h"
#include "tests/kernels/host_tensor.h"

namespace headroom::test {

// A tensor's memory on a device, with a guard behind the bytes.
class DeviceTensor {
 public:
  DeviceTensor(Device& device, const HostTensor& host) : DeviceTensor(device, host.spec()) {
    device.memory().copy_to_device(data_, host.data<void>(), static_cast<int64_t>(host.bytes()));
  }
  // Neither zero nor a usual number.
  DeviceTensor(Device& device, const TensorSpec& spec)
      : memory_(device.memory()), spec_(spec), data_(memory_.try_allocate(all_bytes())) {
    if (data_ == nullptr) throw std::runtime_error("no room on the GPU for the test's tensors");
    const std::vector<std::byte> pattern(static_cast<size_t>(all_bytes()), kPattern);
    memory_.copy_to_device(data_, pattern.data(), all_bytes());
  }
  DeviceTensor(DeviceTensor&& other) noexcept
      : memory_(other.memory_), spec_(other.spec_), data_(std::exchange(other.data_, nullptr)) {}
  ~DeviceTensor() {
    if (data_ != nullptr) memory_.release(data_, all_bytes());
  }

  TensorView view() const { return {data_, spec_}; }
  // Throws std::logic_error when something was written behind the bytes.
  void copy_to(const HostTensor& host) const {
    std::vector<std::byte> bytes(static_cast<size_t>(all_bytes()));
    memory_.copy_to_host(bytes.data(), data_, all_bytes());
    std::memcpy(host.data<void>(), bytes.data(), host.bytes());
    for (size_t i = host.bytes(); i < bytes.size(); ++i) {
      if (bytes[i] != kPattern) throw std::logic_error("the kernel wrote behind a tensor");
    }
  }

 private:
  static constexpr std::byte kPattern{0xA5};
  int64_t all_bytes() const { return spec_.bytes() + 256; }

  DeviceMemory& memory_;
  TensorSpec spec_;
  void* data_;
};

// Runs the GPU's kernel of `op` once; returns its outputs. Updates change `inputs`.
inline std::vector<HostTensor> run_on_cuda(Device& device, const Op& op,
                                           const std::vector<HostTensor>& inputs,
                                           const KernelSettings& settings = {}) {
  const std::vector<TensorSpec> input_specs = specs_of(inputs);
  const std::vector<TensorSpec> output_specs = infer_outputs(op, input_specs);
  const std::unique_ptr<Kernel> kernel = make_cuda_kernel(op, input_specs, output_specs, device, settings);
  std::vector<DeviceTensor> device_inputs, device_outputs;
  std::vector<TensorView> input_views, output_views;
  for (const HostTensor& input : inputs) {
    input_views.push_back(device_inputs.emplace_back(device, input).view());
  }
  for (const TensorSpec& output : output_specs) {
    output_views.push_back(device_outputs.emplace_back(device, output).view());
  }
  const HostTensor host_workspace({DType::kU8, {kernel->workspace_bytes()}});
  const DeviceTensor workspace(device, host_workspace.spec());
  kernel->run(input_views, output_views, workspace.view().data, {});
  device.synchronize({});
  std::vector<HostTensor> outputs(output_specs.begin(), output_specs.end());
  for (size_t i = 0; i < outputs.size(); ++i) device_outputs[i].copy_to(outputs[i]);
  for (int i : mutated_inputs(op, inputs.size())) {
    device_inputs[static_cast<size_t>(i)].copy_to(inputs[static_cast<size_t>(i)]);
  }
  workspace.copy_to(host_workspace);
  return outputs;
}

}  // namespace headroom::test
