// Times the CPU kernels at the sizes of the MNIST conv net, batch 64, beside memcpy, the limit of kernels
// that only move bytes.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel.h"

namespace headroom {
namespace {

// Aligned memory. Zero is a valid index, label, count and variance.
class Buffer {
 public:
  explicit Buffer(const TensorSpec& spec)
      : spec_(spec), memory_(::operator new(static_cast<size_t>(spec.bytes()), kAlignment), &release) {
    std::memset(memory_.get(), 0, static_cast<size_t>(spec.bytes()));
    // Different values, none denormal.
    if (spec.dtype != DType::kF32) return;
    for (int64_t i = 0; i < spec.shape.elements(); ++i)
      view().as<float>()[i] = static_cast<float>(1 + i % 7) / 8;
  }
  TensorView view() const { return {memory_.get(), spec_}; }

 private:
  static constexpr std::align_val_t kAlignment{256};
  static void release(void* memory) { ::operator delete(memory, kAlignment); }

  TensorSpec spec_;
  std::unique_ptr<void, void (*)(void*)> memory_;
};

// Bytes that a kernel must read and write; an input that it changes counts twice.
int64_t moved_bytes(const Op& op, const std::vector<TensorSpec>& inputs,
                    const std::vector<TensorSpec>& outputs) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : inputs) bytes += spec.bytes();
  for (const TensorSpec& spec : outputs) bytes += spec.bytes();
  for (int i : mutated_inputs(op, inputs.size())) bytes += inputs[static_cast<size_t>(i)].bytes();
  return bytes;
}

void run_kernel(benchmark::State& state, const Op& op, const std::vector<TensorSpec>& inputs) {
  const std::vector<TensorSpec> outputs = infer_outputs(op, inputs);
  const std::unique_ptr<Kernel> kernel = make_cpu_kernel(op, inputs, outputs);
  std::vector<Buffer> buffers(inputs.begin(), inputs.end());
  for (const TensorSpec& spec : outputs) buffers.emplace_back(spec);
  std::vector<TensorView> views;
  for (const Buffer& buffer : buffers) views.push_back(buffer.view());
  const std::span<const TensorView> all(views);
  const Buffer workspace({DType::kU8, {kernel->workspace_bytes()}});
  for (auto _ : state) {
    kernel->run(all.first(inputs.size()), all.subspan(inputs.size()), workspace.view().data, {});
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * moved_bytes(op, inputs, outputs));
}

// Bytes read and written.
void run_memcpy(benchmark::State& state) {
  const Buffer from({DType::kU8, {state.range(0)}}), to({DType::kU8, {state.range(0)}});
  for (auto _ : state) {
    std::memcpy(to.view().data, from.view().data, static_cast<size_t>(state.range(0)));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * state.range(0));
}

TensorSpec f32(Shape shape) {
  return {DType::kF32, shape};
}
TensorSpec i32(Shape shape) {
  return {DType::kI32, shape};
}
TensorSpec u8(Shape shape) {
  return {DType::kU8, shape};
}

void add(const char* name, Op op, std::vector<TensorSpec> inputs) {
  benchmark::RegisterBenchmark(name, [op = std::move(op), inputs = std::move(inputs)](
                                         benchmark::State& state) { run_kernel(state, op, inputs); });
}

void add_all() {
  // In the second-level cache, the third, and memory.
  benchmark::RegisterBenchmark("memcpy", run_memcpy)->Arg(1 << 18)->Arg(1 << 22)->Arg(1 << 26);
  const Shape conv1 = {64, 26, 26, 32}, pool1 = {64, 13, 13, 32};
  add("relu/64x26x26x32", Unary{UnaryKind::kRelu}, {f32(conv1)});
  add("relu_grad/64x26x26x32", UnaryGrad{UnaryKind::kRelu}, {f32(conv1), f32(conv1)});
  add("tanh/64x26x26x32", Unary{UnaryKind::kTanh}, {f32(conv1)});
  add("gelu/64x26x26x32", Unary{UnaryKind::kGelu}, {f32(conv1)});
  add("bias/64x26x26x32", Binary{BinaryKind::kAdd}, {f32(conv1), f32({32})});
  add("bias_grad/64x26x26x32", Reduce{ReduceKind::kSum, {0, 1, 2}}, {f32(conv1)});
  add("sum_all/64x26x26x32", Reduce{ReduceKind::kSum, {0, 1, 2, 3}}, {f32(conv1)});
  add("dropout/64x26x26x32", Dropout{}, {f32(conv1), i32({})});
  add("batch_norm/64x26x26x32", BatchNorm{}, {f32(conv1), f32({32}), f32({32})});
  add("max_pool/64x26x26x32", MaxPool{}, {f32(conv1)});
  add("max_pool_grad/64x26x26x32", MaxPoolGrad{{}, conv1}, {f32(pool1), u8(pool1)});
  add("avg_pool/64x26x26x32", AvgPool{}, {f32(conv1)});
  add("cast_u8_f32/64x28x28x1", Cast{DType::kF32}, {u8({64, 28, 28, 1})});
  add("transpose/1024x1024", Transpose{{1, 0}}, {f32({1024, 1024})});
  add("matmul/64x576x64", MatMul{}, {f32({64, 576}), f32({576, 64})});
  add("softmax/64x10", Softmax{}, {f32({64, 10})});
  add("softmax/4096x1024", Softmax{}, {f32({4096, 1024})});
  add("cross_entropy/64x10", CrossEntropy{}, {f32({64, 10}), i32({64})});
  add("cross_entropy_grad/64x10", CrossEntropyGrad{}, {f32({64, 10}), i32({64}), f32({64})});
  // The parameters of the net, and a model that fits in no cache.
  for (int64_t n : {93322, 1 << 24}) {
    const TensorSpec w = f32({n}), scalar = f32({});
    const std::string size = std::to_string(n);
    add(("sgd_momentum/" + size).c_str(), SgdUpdate{0.9f}, {scalar, w, w, w});
    add(("rmsprop/" + size).c_str(), RmspropUpdate{}, {scalar, w, w, w});
    add(("adam/" + size).c_str(), AdamUpdate{}, {scalar, i32({}), w, w, w, w});
  }
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
