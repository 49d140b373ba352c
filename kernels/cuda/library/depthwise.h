// Convolutions in which each channel has a filter of its own, and their gradients, for images stored in 16
// bits. cuDNN compiles an engine for each such problem at run time, which takes half a second.
#pragma once

#include <memory>

#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

// Prepared for one shape. Reads and writes what it shares with a convolution through cuDNN: see there.
class Depthwise {
 public:
  virtual ~Depthwise() = default;
  int64_t workspace_bytes() const { return workspace_bytes_; }
  virtual void run(const void* a, const void* b, void* computed, void* workspace,
                   cudaStream_t stream) const = 0;

  // Returns null for a problem without such kernels: they take squares of 3, 5 or 7 with a padding of half of
  // that, a stride of 1 or 2, multiples of 8 channels, and operands and results of one type of 16 bits; only
  // the gradient of a filter may be f32. `filter` is (KH,KW,1,C).
  static std::shared_ptr<const Depthwise> of(const Request& request, ConvDirection direction,
                                             const Conv2d& conv, const Shape& image, const Shape& filter,
                                             const Shape& result, DType read, DType computed);

 protected:
  int64_t workspace_bytes_ = 0;
};

}  // namespace headroom::cuda
