// Times kernels on any device, each inside a capture: the net's layers and the ops around them, at the sizes
// of the MNIST conv net and at sizes that fill a GPU. The copy is the limit of kernels that only move bytes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <iostream>
#include <new>
#include <vector>

#include "kernels/kernel.h"
#include "ops/op_check.h"
#include "runtime/app/options.h"
#include "runtime/app/run_main.h"

namespace headroom {
namespace {

// Runs in a capture, at most: enough to hide the time of a launch.
constexpr double kMaxRepeats = 256, kCaptureUs = 20'000;
constexpr int kLaunches = 8;

// Device memory. Numbers are neither zero nor denormal: multiplying zeros takes less power and may be faster.
// Indices and labels are scattered over [0, index_end); bytes are zero, a position in any window of a pool.
class Buffer {
 public:
  Buffer(DeviceMemory& memory, const TensorSpec& spec, int64_t index_end = 1)
      : memory_(memory), spec_(spec), data_(memory.try_allocate(bytes())) {
    if (data_ == nullptr) throw std::bad_alloc();
    std::vector<uint32_t> words(static_cast<size_t>(bytes() / 4));
    for (size_t i = 0; i < words.size(); ++i) {
      const auto random = static_cast<uint32_t>(i * 2654435769);  // Knuth's multiplicative hash
      if (spec.dtype == DType::kI32) words[i] = static_cast<uint32_t>((random >> 8) % index_end);
      if (spec.dtype == DType::kF32) words[i] = (random & 0x007fffff) | 0x3f800000;   // in [1, 2)
      if (spec.dtype == DType::kBf16) words[i] = (random & 0x007f007f) | 0x3f803f80;  // in [1, 2)
    }
    memory_.copy_to_device(data_, words.data(), bytes());
  }
  ~Buffer() { memory_.release(data_, bytes()); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  TensorView view() const { return {data_, spec_}; }

 private:
  int64_t bytes() const { return std::max<int64_t>(4, (spec_.bytes() + 3) / 4 * 4); }
  DeviceMemory& memory_;
  TensorSpec spec_;
  void* data_;
};

struct Row {
  Op op;
  std::vector<TensorSpec> inputs;
  int64_t index_end = 10;
  std::optional<DType> restored = {};  // type of normalized values restored from codes
};

// Output types of a graph stored in 16 bits: results of the first operand's shape have its type.
std::vector<TensorSpec> outputs_of(const Row& row) {
  std::vector<TensorSpec> wide = row.inputs;
  for (TensorSpec& spec : wide) {
    if (is_half(spec.dtype)) spec.dtype = DType::kF32;
  }
  std::vector<TensorSpec> outputs = infer_outputs(row.op, wide);
  if (row.restored) outputs[0].dtype = *row.restored;
  if (row.inputs.empty() || !is_half(row.inputs[0].dtype)) return outputs;
  for (TensorSpec& spec : outputs) {
    const auto is_like = [&](const TensorSpec& input) {
      return is_half(input.dtype) && input.shape == spec.shape && spec.dtype == DType::kF32;
    };
    if (std::any_of(row.inputs.begin(), row.inputs.end(), is_like)) spec.dtype = row.inputs[0].dtype;
  }
  return outputs;
}

// A layer, the rest of whose operands follow from its image and its filter.
void add_conv(std::vector<Row>& rows, const Shape& x, const Shape& filter, const ConvBlock& op) {
  const Shape y = infer_outputs(Conv2d{}, std::vector{f32(x), f32(filter)})[0].shape;
  rows.push_back({Conv2d{}, {f32(x), f32(filter)}});
  rows.push_back({Conv2dFilterGrad{{}, filter}, {f32(x), f32(y)}});
  const std::vector<TensorSpec> inputs = {f32(x), f32(filter), f32({filter[3]})};
  const std::vector<TensorSpec> outputs = infer_outputs(op, inputs);
  rows.push_back({op, inputs});
  rows.push_back({ConvBlockFilterGrad{op, filter}, {inputs[0], outputs[0], outputs.back()}});
  if (x[3] == 1) return;  // a first layer has no gradient of its input
  rows.push_back({Conv2dInputGrad{{}, x}, {f32(y), f32(filter)}});
  rows.push_back({ConvBlockInputGrad{op, x}, {outputs[0], outputs.back(), inputs[1]}});
}

void add_dense(std::vector<Row>& rows, int64_t batch, int64_t k, int64_t n) {
  const TensorSpec x = f32({batch, k}), w = f32({k, n}), y = f32({batch, n});
  rows.insert(rows.end(), {{MatMul{}, {x, w}},
                           {Dense{true}, {x, w, f32({n})}},
                           {MatMul{true, false}, {x, y}},
                           {DenseFilterGrad{}, {x, y}},
                           {MatMul{false, true}, {y, w}}});
}

std::vector<Row> rows_of(int64_t batch) {
  std::vector<Row> rows;
  add_conv(rows, {batch, 28, 28, 1}, {3, 3, 1, 32}, {{}, Pool2d{}});
  add_conv(rows, {batch, 13, 13, 32}, {3, 3, 32, 64}, {{}, Pool2d{}});
  add_conv(rows, {batch, 5, 5, 64}, {3, 3, 64, 64}, {});
  add_dense(rows, batch, 576, 64);
  add_dense(rows, batch, 64, 10);
  for (const int64_t channels : {32, 64}) {
    const int64_t side = channels == 32 ? 26 : 11;
    const TensorSpec image = f32({batch, side, side, channels});
    const std::vector<TensorSpec> pooled = infer_outputs(MaxPool{}, std::vector{image});
    rows.insert(rows.end(), {{MaxPool{}, {image}}, {MaxPoolGrad{{}, image.shape}, pooled}});
  }
  const TensorSpec logits = f32({batch, 10}), labels = i32({batch}), loss = f32({batch});
  const TensorSpec image = f32({batch, 26, 26, 32}), channels = f32({32});
  rows.insert(rows.end(), {{Gather{}, {u8({60000, 28, 28, 1}), labels}, 60000},
                           {Cast{DType::kF32}, {u8({batch, 28, 28, 1})}},
                           {Reshape{image.shape}, {image}},
                           {Unary{UnaryKind::kRelu}, {image}},
                           {UnaryGrad{UnaryKind::kRelu}, {image, image}},
                           {Unary{UnaryKind::kTanh}, {image}},
                           {Unary{UnaryKind::kGelu}, {image}},
                           {Binary{BinaryKind::kAdd}, {image, channels}},
                           {Reduce{ReduceKind::kSum, {0, 1, 2}}, {image}},
                           {Reduce{ReduceKind::kSum, {0, 1, 2, 3}}, {image}},
                           {AvgPool{}, {image}},
                           {AvgPoolGrad{{}, image.shape}, {f32({batch, 13, 13, 32})}},
                           {BatchNorm{}, {image, channels, channels}},
                           {BatchNormGrad{}, {image, image, channels, channels, channels}},
                           {BatchNormApply{}, {image, channels, channels, channels, channels}},
                           {Dropout{}, {f32({batch, 576}), i32({})}},
                           {Dropout{}, {image, i32({})}},
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
  return rows;
}

// Batch norms of a residual net for images, stored in 16 bits as `half`.
std::vector<Row> norms_in_half(DType half) {
  std::vector<Row> rows;
  for (const auto& [side, channels] : {std::pair{56, 64}, {56, 256}, {28, 128}, {28, 512}, {14, 1024}}) {
    const TensorSpec x{half, {256, side, side, channels}}, of_channel = f32({channels});
    const std::vector<TensorSpec> apply = {x, of_channel, of_channel, of_channel, of_channel};
    const std::vector<TensorSpec> gradient = {x, x, of_channel, of_channel, of_channel};
    const auto with = [](std::vector<TensorSpec> specs, std::initializer_list<TensorSpec> more) {
      specs.insert(specs.end(), more);
      return specs;
    };
    rows.insert(rows.end(), {{BatchNormStatistics{}, {x}},
                             {BatchNormApply{1e-3f, true}, apply},
                             {BatchNormApply{1e-3f, true}, with(apply, {x})},
                             {BatchNormGrad{1e-3f, true}, with(gradient, {of_channel})},
                             {BatchNormGrad{1e-3f, true, false, true}, with(gradient, {of_channel})},
                             {BatchNormGrad{1e-3f, true, true}, with(gradient, {x, x})}});
    // Adds the rows with normalized values in 8 bits.
    const TensorSpec codes = u8(x.shape);
    const std::vector<TensorSpec> of_codes = {x, codes, of_channel, of_channel, of_channel, of_channel};
    rows.insert(rows.end(), {{BatchNormApply{.relu = true, .compresses = true}, apply},
                             {BatchNormApply{.relu = true, .compressed = true},
                              {codes, of_channel, of_channel, of_channel, of_channel},
                              10,
                              half},
                             {BatchNormGrad{.relu = true, .compressed = true}, of_codes},
                             {BatchNormGrad{.relu = true, .again = true, .compressed = true}, of_codes}});
  }
  return rows;
}

// The end of a bottleneck of a residual net, stored in 16 bits as `half`: the gradients of the norm and of
// the convolution of single pixels before it, fused and separate.
std::vector<Row> ends_of_bottlenecks(DType half) {
  std::vector<Row> rows;
  for (const auto& [side, k] : {std::pair{56, 64}, {28, 128}, {14, 256}}) {
    const int c = 4 * k;
    const TensorSpec x{half, {256, side, side, k}}, z{half, {256, side, side, c}}, filter{half, {c, 1, 1, k}};
    const TensorSpec of_channel = f32({c});
    const Conv2d conv{.filter_by_result = true};
    rows.insert(rows.end(),
                {{BranchGrad{}, {z, z, z}},
                 {ConvNormGrad{1e-3f, true}, {z, of_channel, x, filter, of_channel, of_channel}},
                 {BatchNormGrad{1e-3f, true, true}, {z, z, of_channel, of_channel, of_channel, z, z}},
                 {Conv2dInputGrad{conv, x.shape}, {z, filter}},
                 {Conv2dFilterGrad{conv, filter.shape}, {x, z}},
                 {ConvNormApply{.relu = true, .filter_by_result = true},
                  {x, filter, of_channel, of_channel, of_channel, of_channel, z}},
                 {conv, {x, filter}}});
  }
  return rows;
}

// Rows independent of the batch: copies in a cache and in memory, tables, long rows, and the parameters of
// the net and those of a model that fits in no cache.
std::vector<Row> rows_without_batch() {
  const TensorSpec table = f32({30000, 256}), words = f32({8192, 256}), indices = i32({8192});
  std::vector<Row> rows = {{Gather{}, {table, indices}, 30000},
                           {GatherGrad{table.shape}, {words, indices}, 30000},
                           {GatherGrad{table.shape}, {words, indices}, 1},  // one row, over and over
                           {Softmax{}, {f32({4096, 1024})}},
                           {Softmax{}, {f32({4096, 30000})}},
                           {Reduce{ReduceKind::kMax, {1}}, {f32({4096, 30000})}},
                           {Reduce{ReduceKind::kSum, {0, 1}}, {f32({4096, 30000})}},
                           {Transpose{{1, 0}}, {f32({1024, 1024})}},
                           {CounterUpdate{}, {i32({})}}};
  for (const int64_t bytes : {1 << 18, 1 << 22, 1 << 26}) rows.push_back({Reshape{{bytes}}, {u8({bytes})}});
  for (const int64_t n : {93322, 1 << 24}) {
    const TensorSpec w = f32({n}), scalar = f32({});
    rows.push_back({SgdUpdate{0.9f}, {scalar, w, w, w}});
    rows.push_back({RmspropUpdate{}, {scalar, w, w, w}});
    rows.push_back({AdamUpdate{}, {scalar, i32({}), w, w, w, w}});
  }
  return rows;
}

// Bytes that a kernel must read and write; an input that it changes counts twice. A gather reads only the
// rows of its table that it writes.
int64_t moved_bytes(const Row& row, const std::vector<TensorSpec>& outputs) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : row.inputs) bytes += spec.bytes();
  for (const TensorSpec& spec : outputs) bytes += spec.bytes();
  for (const int i : mutated_inputs(row.op, row.inputs.size())) {
    bytes += row.inputs[static_cast<size_t>(i)].bytes();
  }
  if (std::holds_alternative<Gather>(row.op)) bytes += outputs[0].bytes() - row.inputs[0].bytes();
  return bytes;
}

template <typename F>
double us_of(F f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

struct Figures {
  double us = 0, prepare_us = 0;
  int64_t workspace_bytes = 0;
};

Figures measure(Device& device, const Row& row, const std::vector<TensorSpec>& outputs,
                KernelSettings settings) {
  settings.threads = device.kernel_target().threads;
  std::unique_ptr<Kernel> kernel;
  Figures figures;
  figures.prepare_us = us_of([&] {
    kernel = device.kernel_target().gpu != nullptr
                 ? make_cuda_kernel(row.op, row.inputs, outputs, device, settings)
                 : make_cpu_kernel(row.op, row.inputs, outputs, settings);
  });
  figures.workspace_bytes = kernel->workspace_bytes();
  std::deque<Buffer> buffers;
  std::vector<TensorView> in, out;
  const auto view = [&](const TensorSpec& spec) {
    return buffers.emplace_back(device.memory(), spec, row.index_end).view();
  };
  for (const TensorSpec& spec : row.inputs) in.push_back(view(spec));
  for (const TensorSpec& spec : outputs) out.push_back(view(spec));
  void* const workspace = view(u8({figures.workspace_bytes})).data;
  const auto run = [&](Stream stream) { kernel->run(in, out, workspace, stream); };
  const auto wait = [&] { device.streams().synchronize({}); };
  const auto run_and_wait = [&] { run({}), wait(); };
  run_and_wait();  // loads what it needs
  const double repeats = std::clamp(kCaptureUs / us_of(run_and_wait), 1.0, kMaxRepeats);
  const auto capture =
      device.captures().capture(std::vector{Task{run, {}, {0}}}, static_cast<int64_t>(repeats));
  capture->launch({});
  wait();
  figures.us = us_of([&] {
    for (int i = 0; i < kLaunches; ++i) capture->launch({});
    wait();
  });
  figures.us /= kLaunches * static_cast<double>(static_cast<int64_t>(repeats));
  return figures;
}

struct Options {
  RuntimeOptions runtime;
  std::vector<std::string> math = {"tf32"}, ops;
  int64_t batch = 64;
  bool library_only = false;
};

int run(int argc, char** argv) {
  Options options;
  OptionSet set("kernels_bench", "Times kernels on a device: one line per op and precision of products.");
  set.add_arguments("OP", "Ops to time (default: all)", &options.ops, false);
  add_device_options(set, options.runtime);
  set.add_integer("batch", "Images in a batch", &options.batch, 1);
  set.add_list("math", "Precision of products on a GPU: f32, tf32, bf16, f16", &options.math);
  set.add_switch("library-only", "Use cuBLAS and cuDNN instead of our fused kernels", &options.library_only);
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  const std::unique_ptr<Device> device = make_device(options.runtime);
  device->initialize();
  std::vector<Row> rows = rows_of(options.batch);
  for (Row& row : rows_without_batch()) rows.push_back(std::move(row));
  if (device->kernel_target().gpu != nullptr) {
    for (Row& row : norms_in_half(DType::kBf16)) rows.push_back(std::move(row));
    for (Row& row : ends_of_bottlenecks(DType::kBf16)) rows.push_back(std::move(row));
  }
  fmt::print("{}\n{:<22} {:<26} {:<5} {:>10} {:>10} {:>8} {:>14} {:>12}\n", device->description(), "op",
             "largest input", "math", "us", "MiB moved", "GB/s", "workspace, KiB", "to make, ms");
  for (const Row& row : rows) {
    const std::string op(op_name(row.op));
    if (!options.ops.empty() && std::find(options.ops.begin(), options.ops.end(), op) == options.ops.end()) {
      continue;
    }
    const std::vector<TensorSpec> outputs = outputs_of(row);
    const auto moved = static_cast<double>(moved_bytes(row, outputs));
    const TensorSpec& largest =
        *std::max_element(row.inputs.begin(), row.inputs.end(),
                          [](const TensorSpec& x, const TensorSpec& y) { return x.bytes() < y.bytes(); });
    for (const std::string& name : options.math) {
      const Figures figures =
          measure(*device, row, outputs,
                  {.math = parse_enum<Math>(name, "math"), .library_only = options.library_only});
      fmt::print("{:<22} {:<26} {:<5} {:>10.2f} {:>10.2f} {:>8.0f} {:>14} {:>12.1f}\n", op,
                 to_string(largest), name, figures.us, moved / (1 << 20), moved / figures.us / 1e3,
                 figures.workspace_bytes >> 10, figures.prepare_us / 1e3);
      std::fflush(stdout);
    }
  }
  return kExitDone;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  return headroom::run_main("kernels_bench", headroom::run, argc, argv);
}
