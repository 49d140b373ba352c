// Kernels for convolution blocks and their gradients. Each of our own is one pass over shared memory,
// with bias, relu, pooling and routing inside; its maker returns null for a shape that it does not take.
#pragma once

#include <memory>

#include "kernels/cuda/conv/conv_choice.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/shared_memory.h"

namespace headroom::cuda {

std::unique_ptr<Kernel> make_conv_forward(const ConvGeometry& geometry, const Request& request);
std::unique_ptr<Kernel> make_conv_input_grad(const ConvGeometry& geometry, const Request& request);
std::unique_ptr<Kernel> make_conv_filter_grad(const ConvGeometry& geometry, const Request& request);

// For images of few channels, as in a first layer: plain multiply-adds in f32 in every math mode.
std::unique_ptr<Kernel> make_thin_conv_forward(const ConvGeometry& geometry, const Request& request);
std::unique_ptr<Kernel> make_thin_conv_filter_grad(const ConvGeometry& geometry, const Request& request);

// Blocks from cuDNN's convolution and small kernels around it, for all other shapes and settings.
std::unique_ptr<Kernel> library_conv_block(const ConvBlock& op, const Request& request);
std::unique_ptr<Kernel> library_conv_block_input_grad(const ConvBlockInputGrad& op, const Request& request);
std::unique_ptr<Kernel> library_conv_block_filter_grad(const ConvBlockFilterGrad& op, const Request& request);

// The share of the GPU for the request's kernels.
GpuShare share_of(const Request& request);

// Returns the number of blocks that share `tiles` evenly when `slices` slices of the filters run at once on
// `multiprocessors`.
unsigned blocks_for(int64_t tiles, int64_t slices, int64_t shared_bytes, int multiprocessors,
                    const CudaGpu& device);

// Queues out[i] = the sum of parts[s][i] in the order of s, for i in [0, n): the last step of gradients
// that many blocks add up. The first n_first sums go to `first`, the others to `second`.
void sum_parts(const CudaGpu& device, const float* parts, int count, int64_t n, float* first, int64_t n_first,
               float* second, cudaStream_t stream);

}  // namespace headroom::cuda
