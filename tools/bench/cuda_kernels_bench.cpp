// Times the CUDA kernels inside a recording, at the sizes of the MNIST conv net and at sizes that fill a GPU.
// Prints microseconds per op and the bandwidth of the bytes that it must move.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <vector>

#include "kernels/kernel.h"
#include "runtime/device/gpus.h"

namespace headroom {
namespace {

// Ops per launch: enough to hide the time of a launch.
constexpr int64_t kRepeats = 256;
constexpr int kLaunches = 8;

class Buffer {
 public:
  // Indices and labels are scattered over [0, index_end).
  Buffer(DeviceMemory& memory, const TensorSpec& spec, int64_t index_end)
      : memory_(memory), spec_(spec), data_(memory.try_allocate(bytes())) {
    if (data_ == nullptr) throw std::bad_alloc();
    std::vector<std::byte> values(static_cast<size_t>(bytes()));
    for (int64_t i = 0; 4 * i < spec.bytes(); ++i) {
      const float value = static_cast<float>(1 + i % 7) / 8;
      // Knuth's multiplicative hash: 2^32 times the golden ratio.
      const auto index = static_cast<int32_t>((i * 2654435769 >> 8) % index_end);
      if (spec.dtype == DType::kF32) std::memcpy(values.data() + 4 * i, &value, 4);
      if (spec.dtype == DType::kI32) std::memcpy(values.data() + 4 * i, &index, 4);
    }
    memory_.copy_to_device(data_, values.data(), bytes());
  }
  ~Buffer() { memory_.release(data_, bytes()); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  TensorView view() const { return {data_, spec_}; }

 private:
  int64_t bytes() const { return std::max<int64_t>(spec_.bytes(), 4); }
  DeviceMemory& memory_;
  TensorSpec spec_;
  void* data_;
};

struct Row {
  Op op;
  std::vector<TensorSpec> inputs;
  int64_t index_end = 10;
};

TensorSpec f32(const Shape& shape) {
  return {DType::kF32, shape};
}
TensorSpec i32(const Shape& shape) {
  return {DType::kI32, shape};
}
TensorSpec u8(const Shape& shape) {
  return {DType::kU8, shape};
}

std::vector<Row> rows() {
  std::vector<Row> rows;
  for (int64_t batch : {64, 4096}) {
    const TensorSpec logits = f32({batch, 10}), labels = i32({batch}), loss = f32({batch});
    const TensorSpec image = f32({batch, 26, 26, 32}), pooled = f32({batch, 13, 13, 32});
    rows.insert(rows.end(), {{Gather{}, {u8({60000, 28, 28, 1}), labels}, 60000},
                             {Cast{DType::kF32}, {u8({batch, 28, 28, 1})}},
                             {Unary{UnaryKind::kRelu}, {image}},
                             {Binary{BinaryKind::kAdd}, {image, f32({32})}},
                             {Reduce{ReduceKind::kSum, {0, 1, 2}}, {image}},
                             {MaxPool{}, {image}},
                             {MaxPoolGrad{{}, image.shape}, {pooled, u8(pooled.shape)}},
                             {AvgPool{}, {image}},
                             {AvgPoolGrad{{}, image.shape}, {pooled}},
                             {BatchNorm{}, {image, f32({32}), f32({32})}},
                             {BatchNormGrad{}, {image, image, f32({32}), f32({32}), f32({32})}},
                             {BatchNormInference{}, {image, f32({32}), f32({32}), f32({32}), f32({32})}},
                             {Dropout{}, {f32({batch, 576}), i32({})}},
                             {Transpose{{0, 3, 1, 2}}, {image}},
                             {Concat{3}, {image, image}},
                             {Slice{{0, 1, 1, 0}, {batch, 24, 24, 32}}, {image}},
                             {SliceGrad{{0, 1, 1, 0}, image.shape}, {f32({batch, 24, 24, 32})}},
                             {Softmax{}, {logits}},
                             {CrossEntropy{}, {logits, labels}},
                             {CrossEntropyGrad{}, {logits, labels, loss}},
                             {Reduce{ReduceKind::kMean, {0}}, {loss}},
                             {Reduce{ReduceKind::kSum, {0}}, {logits}},
                             {ArgMax{1}, {logits}},
                             {Accuracy{}, {logits, labels}}});
  }
  rows.push_back({Gather{}, {f32({30000, 256}), i32({8192})}, 30000});
  rows.push_back({GatherGrad{{30000, 256}}, {f32({8192, 256}), i32({8192})}, 30000});
  rows.push_back({GatherGrad{{30000, 256}}, {f32({8192, 256}), i32({8192})}, 1});  // one row, over and over
  rows.push_back({Softmax{}, {f32({4096, 30000})}});
  rows.push_back({Reduce{ReduceKind::kMax, {1}}, {f32({4096, 30000})}});
  rows.push_back({Reduce{ReduceKind::kSum, {0, 1}}, {f32({4096, 30000})}});
  rows.push_back({CounterUpdate{}, {i32({})}});
  return rows;
}

// Microseconds per run of kRepeats runs in sequence.
double time_us(Device& device, const Row& row, const std::vector<TensorSpec>& outputs) {
  const auto kernel = make_cuda_kernel(row.op, row.inputs, outputs, device, {});
  std::deque<Buffer> buffers;
  std::vector<TensorView> in, out;
  for (const TensorSpec& spec : row.inputs)
    in.push_back(buffers.emplace_back(device.memory(), spec, row.index_end).view());
  for (const TensorSpec& spec : outputs)
    out.push_back(buffers.emplace_back(device.memory(), spec, row.index_end).view());
  const Buffer workspace(device.memory(), {DType::kU8, {kernel->workspace_bytes()}}, 1);
  const Task task{[&](Stream stream) { kernel->run(in, out, workspace.view().data, stream); }, {}, {0}};
  const auto recording = device.captures().capture(std::vector<Task>{task}, kRepeats);
  recording->launch({});
  device.streams().synchronize({});
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunches; ++i) recording->launch({});
  device.streams().synchronize({});
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / (kLaunches * kRepeats);
}

int run() {
  const auto device = make_cuda_device({});
  device->initialise();
  fmt::print("{}\n{:<22} {:<28} {:>9} {:>10} {:>8}\n", device->description(), "op", "input 0", "us",
             "MiB moved", "GB/s");
  for (const Row& row : rows()) {
    const std::vector<TensorSpec> outputs = infer_outputs(row.op, row.inputs);
    int64_t bytes = 0;
    for (const TensorSpec& spec : row.inputs) bytes += spec.bytes();
    for (const TensorSpec& spec : outputs) bytes += spec.bytes();
    // A gather reads only the rows of its table that it writes.
    if (std::holds_alternative<Gather>(row.op)) bytes += outputs[0].bytes() - row.inputs[0].bytes();
    const double us = time_us(*device, row, outputs);
    fmt::print("{:<22} {:<28} {:>9.2f} {:>10.2f} {:>8.0f}\n", op_name(row.op), to_string(row.inputs[0]), us,
               static_cast<double>(bytes) / (1 << 20), static_cast<double>(bytes) / us / 1e3);
  }
  return 0;
}

}  // namespace
}  // namespace headroom

int main() {
  try {
    return headroom::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_kernels_bench: {}\n", error.what());
    return 1;
  }
}
