// Times the kernels of the conv net's layers on GPU 0 as nodes of a recording, from cuBLASLt and cuDNN if
// they have the op: cuda_library_bench [BATCH...]
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "runtime/base/errors.h"
#include "runtime/device/gpus.h"

namespace headroom {
namespace {

constexpr int kRepeats = 20, kLaunches = 10;

struct Layer {
  std::string name;
  Op op;
  std::vector<TensorSpec> inputs;
};

std::vector<Layer> layers(int64_t batch) {
  std::vector<Layer> result;
  const auto spec = [](const Shape& shape) { return TensorSpec{DType::kF32, shape}; };
  const auto conv = [&](const std::string& name, const Shape& x, const Shape& filter) {
    const Shape y = infer_outputs(Conv2d{}, std::vector{spec(x), spec(filter)})[0].shape;
    result.push_back({name + " forward", Conv2d{}, {spec(x), spec(filter)}});
    result.push_back({name + " filter gradient", Conv2dFilterGrad{{}, filter}, {spec(x), spec(y)}});
    if (x[3] > 1)
      result.push_back({name + " input gradient", Conv2dInputGrad{{}, x}, {spec(y), spec(filter)}});
  };
  const auto dense = [&](const std::string& name, int64_t k, int64_t n) {
    result.push_back({name + " forward", MatMul{}, {spec({batch, k}), spec({k, n})}});
    result.push_back(
        {name + " with bias and relu", Dense{true}, {spec({batch, k}), spec({k, n}), spec({n})}});
    result.push_back({name + " filter gradient", MatMul{true, false}, {spec({batch, k}), spec({batch, n})}});
    result.push_back(
        {name + " filter and bias gradient", DenseFilterGrad{}, {spec({batch, k}), spec({batch, n})}});
    result.push_back({name + " input gradient", MatMul{false, true}, {spec({batch, n}), spec({k, n})}});
  };
  const auto block = [&](const std::string& name, const ConvBlock& op, const Shape& x, const Shape& filter) {
    const std::vector<TensorSpec> inputs = {spec(x), spec(filter), spec({filter[3]})};
    const std::vector<TensorSpec> outputs = infer_outputs(op, inputs);
    const TensorSpec &y = outputs[0], &route = outputs.back();
    result.push_back({name + " forward", op, inputs});
    result.push_back({name + " filter gradient", ConvBlockFilterGrad{op, filter}, {inputs[0], y, route}});
    if (x[3] > 1)
      result.push_back({name + " input gradient", ConvBlockInputGrad{op, x}, {y, route, inputs[1]}});
  };
  const auto pool = [&](const std::string& name, const Shape& x) {
    const std::vector<TensorSpec> outputs = infer_outputs(MaxPool{}, std::vector{spec(x)});
    result.push_back({name + " forward", MaxPool{}, {spec(x)}});
    result.push_back({name + " gradient", MaxPoolGrad{{}, x}, outputs});
  };
  conv("conv 28x28x1->32", {batch, 28, 28, 1}, {3, 3, 1, 32});
  pool("max_pool 26x26x32", {batch, 26, 26, 32});
  conv("conv 13x13x32->64", {batch, 13, 13, 32}, {3, 3, 32, 64});
  pool("max_pool 11x11x64", {batch, 11, 11, 64});
  conv("conv 5x5x64->64", {batch, 5, 5, 64}, {3, 3, 64, 64});
  dense("dense 576->64", 576, 64);
  dense("dense 64->10", 64, 10);
  block("block 28x28x1->32, pooled", {{}, Pool2d{}}, {batch, 28, 28, 1}, {3, 3, 1, 32});
  block("block 13x13x32->64, pooled", {{}, Pool2d{}}, {batch, 13, 13, 32}, {3, 3, 32, 64});
  block("block 5x5x64->64", {}, {batch, 5, 5, 64}, {3, 3, 64, 64});
  return result;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Memory {
 public:
  Memory(DeviceMemory& memory, int64_t bytes)
      : memory_(memory), bytes_(bytes + 256), data_(memory.try_allocate(bytes_)) {
    if (data_ == nullptr) throw std::runtime_error("no device memory");
    // Random sign and mantissa in [1, 2): multiplying zeros takes less power and may be faster.
    std::vector<uint32_t> words(static_cast<size_t>(bytes_ / 4));
    uint32_t state = 1;
    for (uint32_t& word : words) word = ((state = state * 1664525 + 1013904223) & 0x807fffffu) | 0x3f800000u;
    memory_.copy_to_device(data_, words.data(), static_cast<int64_t>(4 * words.size()));
  }
  ~Memory() { memory_.release(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }

 private:
  DeviceMemory& memory_;
  const int64_t bytes_;
  void* const data_;
};

struct Result {
  double us = 0, prepare_ms = 0;
  int64_t workspace_bytes = 0;
};

Result measure(Device& device, const Layer& layer, Math math) {
  const std::vector<TensorSpec> outputs = infer_outputs(layer.op, layer.inputs);
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<Kernel> kernel =
      make_cuda_kernel(layer.op, layer.inputs, outputs, device, {.math = math, .library_only = true});
  Result result{0, 1e3 * seconds_since(begin), kernel->workspace_bytes()};
  std::vector<std::unique_ptr<Memory>> memory;
  const auto views = [&](const std::vector<TensorSpec>& specs) {
    std::vector<TensorView> all;
    for (const TensorSpec& spec : specs)
      all.push_back(
          {memory.emplace_back(std::make_unique<Memory>(device.memory(), spec.bytes()))->data(), spec});
    return all;
  };
  const std::vector<TensorView> in = views(layer.inputs), out = views(outputs);
  const Memory workspace(device.memory(), kernel->workspace_bytes());
  const Task task{[&](Stream stream) { kernel->run(in, out, workspace.data(), stream); }, {}, {0}};
  task.run({});
  device.streams().synchronize({});
  const std::unique_ptr<Capture> recording = device.captures().capture(std::vector{task}, kRepeats);
  recording->launch({});
  device.streams().synchronize({});
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunches; ++i) recording->launch({});
  device.streams().synchronize({});
  result.us = 1e6 * seconds_since(start) / (kLaunches * kRepeats);
  return result;
}

int run(int argc, char** argv) {
  static constexpr const char* kNames[] = {"f32", "tf32", "bf16", "f16"};
  const std::unique_ptr<Device> device = make_cuda_device({});
  fmt::print("| {} | batch |", device->description());
  for (const char* name : kNames) fmt::print(" {} us | KiB |", name);
  fmt::print(" to prepare, ms |\n");
  std::vector<int64_t> batches = {64, 512, 4096};
  if (argc > 1) batches.clear();
  for (int i = 1; i < argc; ++i) batches.push_back(std::atoll(argv[i]));
  for (int64_t batch : batches) {
    for (const Layer& layer : layers(batch)) {
      fmt::print("| {} | {} |", layer.name, batch);
      double prepare_ms = 0;
      for (Math math : {Math::kF32, Math::kTf32, Math::kBf16, Math::kF16}) {
        const Result result = measure(*device, layer, math);
        fmt::print(" {:.2f} | {} |", result.us, result.workspace_bytes >> 10);
        prepare_ms += result.prepare_ms;
      }
      fmt::print(" {:.0f} |\n", prepare_ms);
    }
  }
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  try {
    return headroom::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_library_bench: {}\n", error.what());
    return headroom::exit_code(error);
  }
}
