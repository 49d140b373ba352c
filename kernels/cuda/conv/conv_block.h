// Our own kernels for convolution blocks and their gradients: each is one pass over shared memory with bias,
// relu, pooling and routing inside. Where a shape does not suit them the maker returns null and the libraries
// compute the op.
#pragma once

#include <memory>

#include "kernels/cuda/conv/conv_choice.h"
#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

std::unique_ptr<Kernel> make_conv_forward(const ConvGeometry& geometry, const Request& request);
std::unique_ptr<Kernel> make_conv_input_grad(const ConvGeometry& geometry, const Request& request);
std::unique_ptr<Kernel> make_conv_filter_grad(const ConvGeometry& geometry, const Request& request);

// For images of few channels, as the first layer's: plain multiply-adds in f32 in every math mode.
std::unique_ptr<Kernel> make_thin_conv_forward(const ConvGeometry& geometry, const Request& request);
std::unique_ptr<Kernel> make_thin_conv_filter_grad(const ConvGeometry& geometry, const Request& request);

// The most shared memory that a block of threads can have, in bytes.
int64_t shared_limit_bytes(const CudaGpu& device);

// Lets blocks of a kernel have all of it but what the kernel has already. This holds wherever the kernel is
// used, so it must not be what one use needs: another, made later, may need less.
void allow_shared_memory(const void* kernel, const CudaGpu& device);

// What the request's kernels can have of its GPU.
GpuShare share_of(const Request& request);

// Blocks that share `tiles` evenly when each of `slices` slices of the filters gets as many as run at once on
// so many multiprocessors.
unsigned blocks_for(int64_t tiles, int64_t slices, int64_t shared_bytes, int multiprocessors,
                    const CudaGpu& device);

// out[i] = sum over s of parts[s][i] in the order of s, for i in [0, n): the last step of gradients that many
// blocks add up. The first n_first sums go to `first`, the others to `second`.
void sum_parts(const CudaGpu& device, const float* parts, int count, int64_t n, float* first, int64_t n_first,
               float* second, cudaStream_t stream);

}  // namespace headroom::cuda
