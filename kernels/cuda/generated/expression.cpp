// Expressions, and what they are reduced to, by kernels that are generated for their shapes.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/early_start.cuh"
#include "kernels/cuda/generated/compiled_kernel.h"
#include "kernels/cuda/generated/expression_source.h"

namespace headroom::cuda {
namespace {

// A kernel for operands at addresses from which 16 bytes can be read, and one for any others: made when the
// first such operands come.
template <typename Source>
class ForAddresses {
 public:
  ForAddresses(const CudaGpu& device, Source source)
      : device_(device), source_(std::move(source)), aligned_(made(true)) {}

  struct Made {
    std::shared_ptr<const CompiledKernel> kernel;
    KernelSource source;
  };
  const Made& at(const KernelCall& call, void* result) {
    const auto is_aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
    const bool all =
        is_aligned(result) && std::all_of(call.inputs.begin(), call.inputs.end(),
                                          [&](const TensorView& view) { return is_aligned(view.data); });
    if (all || aligned_.source.lanes == 1) return aligned_;
    if (!any_.kernel) any_ = made(false);
    return any_;
  }

 private:
  Made made(bool in_lanes) const {
    Made result{nullptr, source_(in_lanes)};
    result.kernel = CompiledKernel::of(result.source.text, device_);
    return result;
  }

  const CudaGpu& device_;
  const Source source_;
  Made aligned_, any_;
};
template <typename Source>
auto for_addresses(const CudaGpu& device, Source source) {
  return std::make_shared<ForAddresses<Source>>(device, std::move(source));
}

struct Operands {
  std::vector<TensorSpec> inputs;
  TensorSpec output;
  explicit Operands(const Request& request)
      : inputs(request.inputs.begin(), request.inputs.end()), output(request.outputs[0]) {}
};

void launch(const CompiledKernel& kernel, const KernelSource& source, int64_t most_blocks, const Call& call,
            void* result) {
  std::array<const void*, Expression::kMaxOperands + 1> addresses{};
  for (size_t i = 0; i < call.inputs.size(); ++i) addresses[i] = call.inputs[i].data;
  addresses[call.inputs.size()] = result;
  kernel.launch(
      dim3(static_cast<unsigned>(std::min(source.blocks, most_blocks)), static_cast<unsigned>(source.parts)),
      kGeneratedThreads, std::span(addresses).first(call.inputs.size() + 1), call.stream);
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Expression& op, const Request& request) {
  const Operands operands(request);
  if (operands.output.shape.elements() == 0) return function_kernel([](const Call&) {});
  auto kernels = for_addresses(request.device, [=](bool in_lanes) {
    return elementwise_source(op, operands.inputs, operands.output,
                              in_lanes ? lanes_of_expression(op, operands.inputs, operands.output) : 1);
  });
  // Two waves of full occupancy: enough to balance the load, few enough to start quickly.
  const int64_t most_blocks = int64_t{16} * request.device.multiprocessors();
  return function_kernel(
      [=](const Call& call) {
        const auto& made = kernels->at(call, call.outputs[0].data);
        launch(*made.kernel, made.source, most_blocks, call, call.outputs[0].data);
      },
      0, starts_early(request.device, {}));
}

std::unique_ptr<Kernel> make_kernel(const ReducedExpression& op, const Request& request) {
  const Operands operands(request);
  if (operands.output.shape.elements() == 0) return function_kernel([](const Call&) {});
  const int64_t blocks = int64_t{8} * request.device.multiprocessors();  // eight fill a multiprocessor
  const ReductionShape shape = reduction_shape(op, operands.inputs, operands.output, blocks, true);
  auto kernels = for_addresses(request.device, [=](bool in_lanes) {
    ReductionShape by_lanes = shape;
    if (!in_lanes) {
      by_lanes = reduction_shape(op, operands.inputs, operands.output, blocks, false);
      by_lanes.parts = shape.parts;  // for which the workspace has room
    }
    return reduction_source(op, operands.inputs, operands.output, by_lanes);
  });
  constexpr int64_t kAllBlocks = int64_t{1} << 31;
  if (shape.parts == 1) {
    return function_kernel(
        [=](const Call& call) {
          const auto& made = kernels->at(call, call.outputs[0].data);
          launch(*made.kernel, made.source, kAllBlocks, call, call.outputs[0].data);
        },
        0, starts_early(request.device, {}));
  }
  const KernelSource join = join_source(op.by, shape, operands.output);
  const std::shared_ptr<const CompiledKernel> joins = CompiledKernel::of(join.text, request.device);
  return function_kernel(
      [=](const Call& call) {
        const auto& made = kernels->at(call, call.workspace);
        launch(*made.kernel, made.source, kAllBlocks, call, call.workspace);
        std::array<const void*, 2> addresses = {call.workspace, call.outputs[0].data};
        joins->launch(dim3(static_cast<unsigned>(join.blocks)), kGeneratedThreads, addresses, call.stream);
      },
      shape.parts * shape.results * static_cast<int64_t>(sizeof(double)), starts_early(request.device, {}));
}

}  // namespace headroom::cuda
