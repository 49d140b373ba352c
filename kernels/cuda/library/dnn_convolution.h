// A convolution or one of its gradients through cuDNN, or by kernels of our own, on tensors of ours: chooses
// the algorithm, and brings operands into the type and layout that it takes, and the result back. Knows no
// bias, relu or pooling.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/library/algorithm_choice.h"
#include "kernels/cuda/library/depthwise.h"
#include "kernels/cuda/library/dnn_graph.h"

namespace headroom::cuda {

// Math::kF32 uses engines that multiply in unrounded f32, kTf32 also those on tensor cores. In kBf16 and kF16
// operands may also be rounded to that type in workspace first. The fastest is chosen, so a small problem
// stays with kTf32, which is more exact. Operands stored in 16 bits are multiplied as they are, in every
// mode.
class DnnConvolution {
 public:
  // The types of the two operands that are read, which are equal, and of the one that is computed.
  struct Types {
    DType read = DType::kF32, computed = DType::kF32;
  };

  // An image is (N,H,W,C), a filter (KH,KW,C/groups,K), regardless of its order in memory by
  // conv.filter_by_result, the result (N,OH,OW,K). None may be empty.
  DnnConvolution(const Request& request, ConvDirection direction, const Conv2d& conv, const Shape& image,
                 const Shape& filter, const Shape& result, const Types& types);

  DnnConvolution(const DnnConvolution&) = delete;
  DnnConvolution& operator=(const DnnConvolution&) = delete;

  int64_t workspace_bytes() const { return own_ ? own_->workspace_bytes() : chosen_->workspace_bytes; }
  // Queues it on `stream`: image, filter -> result; result, filter -> image; or image, result -> filter.
  void run(const void* a, const void* b, void* computed, void* workspace, cudaStream_t stream) const;

 private:
  // An algorithm with the positions in workspace of tensors converted before and after it; -1 if there are
  // none.
  struct Prepared {
    DType type;  // type of the operands that cuDNN reads; sums are f32
    DnnAlgorithm algorithm;
    int64_t a_at = -1, b_at = -1, computed_at = -1, algorithm_at = 0, workspace_bytes = 0;
  };

  const Shape& computed() const;
  DType computed_type(DType type) const;
  DnnGraph graph(DType type) const;
  std::shared_ptr<const Prepared> prepare(DType type, const DnnGraph& graph, const std::string& engine) const;
  std::vector<AlgorithmCandidate> candidates(const KernelSettings& settings, size_t enough) const;
  bool use(const AlgorithmChoice& choice, Math math);
  void run(const Prepared& prepared, const void* a, const void* b, void* computed, void* workspace,
           cudaStream_t stream) const;

  const ConvDirection direction_;
  const Conv2d conv_;
  const Shape image_, filter_, result_;
  const Types types_;
  const Shape &a_, &b_;  // the two that are read
  const CudaGpu& device_;
  const cudnnHandle_t handle_;
  const std::string name_;                // of the problem
  std::shared_ptr<const Depthwise> own_;  // null where cuDNN computes it
  std::shared_ptr<const Prepared> chosen_;
};

}  // namespace headroom::cuda
