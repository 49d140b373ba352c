// The CUDA kernel of each op, for make_kernel.cpp: an op without one does not compile. Knows no
// graph and no strategy.
#pragma once

#include <memory>

#include "device/cuda/cuda_gpu.h"
#include "kernels/function_kernel.h"

namespace headroom::cuda {

// A convolution computes its result, or the gradient of an operand.
enum class ConvDirection : uint8_t { kForward, kInputGrad, kFilterGrad };

struct Request : KernelRequest {
  CudaGpu& device;
  Device& owner;     // the device of that GPU, or its faulty twin
  int replicas = 1;  // number of replicas that run the same kernels on this GPU at once

  // The libraries' handles. Throw LibraryError when a library cannot start.
  cublasHandle_t blas() const {
    owner.libraries().start(Library::kBlas);
    return device.blas();
  }
  cudnnHandle_t dnn() const {
    owner.libraries().start(Library::kDnn);
    return device.dnn();
  }
};

struct Call : KernelCall {
  cudaStream_t stream;
  Call(const KernelCall& call) : KernelCall(call), stream(stream_of(call.stream)) {}
};

// attention/attend.cu
std::unique_ptr<Kernel> make_kernel(const MaskTiles& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const Attention& op, const Request& request);
// attention/attend_grad.cu
std::unique_ptr<Kernel> make_kernel(const AttentionGrad& op, const Request& request);
// attention/attend_cached.cu
std::unique_ptr<Kernel> make_kernel(const CachedAttention& op, const Request& request);
// classifier_head.cu
std::unique_ptr<Kernel> make_kernel(const ClassifierHead& op, const Request& request);
// conv_block.cpp
std::unique_ptr<Kernel> make_kernel(const ConvBias& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const ConvBlock& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const ConvBlockInputGrad& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const ConvBlockFilterGrad& op, const Request& request);
// generated/expression.cpp
std::unique_ptr<Kernel> make_kernel(const Expression& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const ReducedExpression& op, const Request& request);
// elementwise.cu
std::unique_ptr<Kernel> make_kernel(const Scale& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const Cast& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const Fill& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const AddPairs& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const Dropout& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const RandomUniform& op, const Request& request);
// unary.cu
std::unique_ptr<Kernel> make_kernel(const Unary& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const UnaryGrad& op, const Request& request);
// binary.cu
std::unique_ptr<Kernel> make_kernel(const Binary& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const Compare& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const Where& op, const Request& request);
// pool.cu
std::unique_ptr<Kernel> make_kernel(const MaxPool& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const MaxPoolGrad& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const AvgPool& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const AvgPoolGrad& op, const Request& request);
// gather.cu
std::unique_ptr<Kernel> make_kernel(const Gather& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const GatherGrad& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const TakeBatch& op, const Request& request);
// reduce.cu
std::unique_ptr<Kernel> make_kernel(const Reduce& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const ReduceMaxGrad& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const AllFinite& op, const Request& request);
// arg_max.cu
std::unique_ptr<Kernel> make_kernel(const ArgMax& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const Accuracy& op, const Request& request);
// softmax.cu
std::unique_ptr<Kernel> make_kernel(const Softmax& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const SoftmaxGrad& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const CrossEntropy& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const CrossEntropyGrad& op, const Request& request);
// shape_ops.cu
std::unique_ptr<Kernel> make_kernel(const Reshape& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const CopyToDevice& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const Transpose& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const Slice& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const SliceGrad& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const BroadcastTo& op, const Request& request);
// concat.cu
std::unique_ptr<Kernel> make_kernel(const Concat& op, const Request& request);
// batch_norm.cu
std::unique_ptr<Kernel> make_kernel(const BatchNorm& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const BatchNormGrad& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const BranchGrad& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const ConvNormApply& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const BatchNormStatistics& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const BatchNormApply& op, const Request& request);
// layer_norm.cu
std::unique_ptr<Kernel> make_kernel(const LayerNorm& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const LayerNormGrad& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const CumulativeSum& op, const Request& request);
// make_kernel.cpp
std::unique_ptr<Kernel> make_kernel(const Custom& op, const Request& request);
// updates.cu
std::unique_ptr<Kernel> make_kernel(const SgdUpdate& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const RmspropUpdate& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const AdamUpdate& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const MovingAverageUpdate& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const LossScaleUpdate& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const CounterUpdate& op, const Request& request);
// replace_rows.cu
std::unique_ptr<Kernel> make_kernel(const RowUpdate& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const ReplaceRows& op, const Request& request);
// matmul.cpp
std::unique_ptr<Kernel> make_kernel(const MatMul& op, const Request& request);
// conv_norm_grad.cu
std::unique_ptr<Kernel> make_kernel(const ConvNormGrad& op, const Request& request);
// dense.cpp
std::unique_ptr<Kernel> make_kernel(const Dense& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const DenseFilterGrad& op, const Request& request);
// conv2d.cpp
std::unique_ptr<Kernel> make_kernel(const Conv2d& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const Conv2dInputGrad& op, const Request& request);
std::unique_ptr<Kernel> make_kernel(const Conv2dFilterGrad& op, const Request& request);

}  // namespace headroom::cuda
