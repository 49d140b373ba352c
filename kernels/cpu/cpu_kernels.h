// The families of CPU kernels, one factory each. Knows no graph and no strategy.
#pragma once

#include <memory>
#include <span>

#include "kernels/kernel.h"

namespace headroom::cpu {

using Specs = std::span<const TensorSpec>;

// Those that take `threads` share their work among them.
// conv_forward.cpp
std::unique_ptr<Kernel> make_conv2d(const Conv2d& op, Specs inputs, Specs outputs, ThreadPool* threads);
std::unique_ptr<Kernel> make_conv_block(const ConvBlock& op, Specs inputs, Specs outputs,
                                        ThreadPool* threads);
// conv_gradients.cpp
std::unique_ptr<Kernel> make_conv2d_input_grad(const Conv2dInputGrad& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_conv2d_filter_grad(const Conv2dFilterGrad& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_conv_block_input_grad(const ConvBlockInputGrad& op, Specs inputs, Specs outputs,
                                                   ThreadPool* threads);
std::unique_ptr<Kernel> make_conv_block_filter_grad(const ConvBlockFilterGrad& op, Specs inputs,
                                                    Specs outputs, ThreadPool* threads);

// Each prepares the kernel of one op for fixed shapes that have passed infer_outputs.
// matmul.cpp
std::unique_ptr<Kernel> make_kernel(const MatMul& op, Specs inputs, Specs outputs, ThreadPool* threads);
// dense.cpp
std::unique_ptr<Kernel> make_kernel(const Dense& op, Specs inputs, Specs outputs, ThreadPool* threads);
std::unique_ptr<Kernel> make_kernel(const DenseFilterGrad& op, Specs inputs, Specs outputs,
                                    ThreadPool* threads);
// pool.cpp
std::unique_ptr<Kernel> make_kernel(const MaxPool& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const MaxPoolGrad& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const AvgPool& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const AvgPoolGrad& op, Specs inputs, Specs outputs);
// elementwise.cpp
std::unique_ptr<Kernel> make_kernel(const Unary& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const UnaryGrad& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const Scale& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const Cast& op, Specs inputs, Specs outputs);
// binary.cpp
std::unique_ptr<Kernel> make_kernel(const Binary& op, Specs inputs, Specs outputs);
// dropout.cpp
std::unique_ptr<Kernel> make_kernel(const Dropout& op, Specs inputs, Specs outputs);
// shape_ops.cpp
std::unique_ptr<Kernel> make_kernel(const Reshape& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const CopyToDevice& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const Transpose& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const Concat& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const Slice& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const SliceGrad& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const BroadcastTo& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const Fill& op, Specs inputs, Specs outputs);
// gather.cpp
std::unique_ptr<Kernel> make_kernel(const Gather& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const GatherGrad& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const TakeBatch& op, Specs inputs, Specs outputs);
// reduce.cpp
std::unique_ptr<Kernel> make_kernel(const Reduce& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const ReduceMaxGrad& op, Specs inputs, Specs outputs);
// arg_max.cpp
std::unique_ptr<Kernel> make_kernel(const ArgMax& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const Accuracy& op, Specs inputs, Specs outputs);
// softmax.cpp
std::unique_ptr<Kernel> make_kernel(const Softmax& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const SoftmaxGrad& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const CrossEntropy& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const CrossEntropyGrad& op, Specs inputs, Specs outputs);
// classifier_head.cpp
std::unique_ptr<Kernel> make_kernel(const ClassifierHead& op, Specs inputs, Specs outputs);
// batch_norm.cpp
std::unique_ptr<Kernel> make_kernel(const BatchNorm& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const BatchNormGrad& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const BatchNormInference& op, Specs inputs, Specs outputs);
// updates.cpp
std::unique_ptr<Kernel> make_kernel(const SgdUpdate& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const RmspropUpdate& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const AdamUpdate& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const MovingAverageUpdate& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const CounterUpdate& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_kernel(const RowUpdate& op, Specs inputs, Specs outputs);

}  // namespace headroom::cpu
