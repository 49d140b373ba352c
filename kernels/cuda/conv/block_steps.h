// The steps of a convolution block around a library's convolution: bias, relu, pooling and their
// gradients. Knows no convolution.
#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

// Maps a convolution's result (images,height,width,channels) to a block's (images,out_h,out_w,channels).
// Without a pool both are the same.
struct BlockShape {
  int64_t images, height, width, channels;
  int64_t out_h, out_w;
  bool pooled;
  Pool2d pool;  // a window of one without a pool

  BlockShape(const ConvBlock& block, const Shape& convolved);
  int64_t elements() const { return images * height * width * channels; }
  int64_t outputs() const { return images * out_h * out_w * channels; }
  // Returns the shape of the same block over some of the images.
  BlockShape with_images(int64_t count) const;
};

// Queues y = relu(z + bias), then the pool; `index` may be null. If there is no pool, z may be y.
void bias_relu_pool(const CudaGpu& device, cudaStream_t stream, const BlockShape& shape, const float* z,
                    const float* bias, float* y, uint8_t* index);

// Queues the gradient dz that reaches the convolution. `route` is the block's index with a pool, its y
// without.
void route_gradient(const CudaGpu& device, cudaStream_t stream, const BlockShape& shape, const float* dy,
                    const void* route, float* dz);

// Workspace of sum_gradient.
int64_t sum_gradient_bytes(const BlockShape& shape);
// Queues dbias (channels) = the sums of dz, computed from dy and the route, in the same order on every run.
void sum_gradient(const CudaGpu& device, cudaStream_t stream, const BlockShape& shape, const float* dy,
                  const void* route, float* dbias, void* workspace);

}  // namespace headroom::cuda
