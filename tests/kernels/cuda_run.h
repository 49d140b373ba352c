// A GPU's kernel run once on copies of tensors in host memory, as run_op does on the CPU.
#pragma once

#include <algorithm>
#include <deque>
#include <stdexcept>

#include "device/gpus.h"
#include "tests/kernels/device_tensor.h"

namespace headroom::test {

// The memory of a run, and the way that it is queued.
struct CudaRun {
  int64_t shift = 0;                     // shift of every tensor, in elements, from an aligned address
  uint8_t garbage = 0xA5;                // content of outputs and workspace before the run
  bool in_place = false;                 // outputs in the memory of in_place_input
  bool recorded = false;                 // as the one task of a recording
  std::vector<TensorSpec> outputs = {};  // empty: what the op infers
};

// Runs the GPU's kernel of `op` once; returns its outputs. Updates change `inputs`.
inline std::vector<HostTensor> run_on_cuda(Device& device, const Op& op,
                                           const std::vector<HostTensor>& inputs,
                                           const KernelSettings& settings = {}, const CudaRun& way = {}) {
  const std::vector<TensorSpec> input_specs = specs_of(inputs);
  const std::vector<TensorSpec> output_specs =
      way.outputs.empty() ? infer_outputs(op, input_specs) : way.outputs;
  const std::unique_ptr<Kernel> kernel = make_cuda_kernel(op, input_specs, output_specs, device, settings);
  std::deque<DeviceTensor> device_inputs, device_outputs;
  std::vector<TensorView> input_views, output_views;
  for (const HostTensor& input : inputs) {
    input_views.push_back(device_inputs.emplace_back(device, input, way.shift).view());
  }
  const auto garbage = [&](const TensorSpec& spec) {
    HostTensor result(spec);
    std::fill_n(result.data<uint8_t>(), result.bytes(), way.garbage);
    return result;
  };
  for (const TensorSpec& output : output_specs) {
    output_views.push_back(device_outputs.emplace_back(device, garbage(output), way.shift).view());
  }
  std::vector<int> shared(output_specs.size(), -1);  // by output: the input whose memory it takes over
  for (size_t i = 0; way.in_place && i < output_specs.size(); ++i) {
    shared[i] = in_place_input(op, input_specs, output_specs[i], i);
    if (shared[i] >= 0) output_views[i].data = input_views[static_cast<size_t>(shared[i])].data;
  }
  const DeviceTensor workspace(device, garbage({DType::kU8, {kernel->workspace_bytes()}}));

  const auto queue = [&](Stream stream) {
    kernel->run(input_views, output_views, workspace.view().data, stream);
  };
  std::unique_ptr<Capture> recording;
  if (way.recorded) {
    recording = device.captures().capture(std::vector<Task>{{queue, {}, {}}}, 1);
    recording->launch({});
  } else {
    queue({});
  }
  device.streams().synchronize({});

  std::vector<HostTensor> outputs;
  for (size_t i = 0; i < device_outputs.size(); ++i) {
    const DeviceTensor& from =
        shared[i] >= 0 ? device_inputs[static_cast<size_t>(shared[i])] : device_outputs[i];
    outputs.push_back(from.read_as(output_specs[i]));
  }
  const std::vector<int> mutated = mutated_inputs(op, inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int position = static_cast<int>(i);
    const HostTensor now = device_inputs[i].read();
    if (std::find(mutated.begin(), mutated.end(), position) != mutated.end()) {
      std::copy_n(now.data<uint8_t>(), now.bytes(), inputs[i].data<uint8_t>());
    } else if (std::find(shared.begin(), shared.end(), position) == shared.end() &&
               !now.same_bytes(inputs[i])) {
      throw std::logic_error("the kernel changed an input");
    }
  }
  workspace.read();
  return outputs;
}

}  // namespace headroom::test
