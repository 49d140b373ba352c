// A batch of matrix products through cuBLASLt, with an epilogue. Knows no op but MatMul's flags.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/library/algorithm_choice.h"
#include "kernels/cuda/library/few_rows.h"
#include "kernels/cuda/owned.h"

namespace headroom::cuda {

// (m,k) x (k,n) -> (m,n), all row-major, `batch` times. A transposed operand is stored as (k,m) or (n,k).
struct MatMulShape {
  int64_t m = 0, n = 0, k = 0;
  MatMul op;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_y = 0;  // elements from one product to the next
  DType read = DType::kF32, computed = DType::kF32;  // types of a and b; of y and the bias
  bool aligned = true;  // all operands start at multiples of 16 bytes, not just at any element
};

enum class Epilogue : uint8_t {
  kNone,
  kBias,     // y + bias (n)
  kBiasSum,  // y + bias (n) + c, a matrix like y
  // Relu of the two above. Some algorithms (cuBLASLt 13.1) make 0 of NaN.
  kBiasRelu,
  kBiasSumRelu,
  kSumB,  // also bias (n) = the sums of b over k: a bias' gradient where b is the gradient that arrives
  kSum,   // y + c
};

// Prepared for one shape with the fastest algorithm that fits, of cuBLASLt or for a few rows of our own.
// Extents must not be 0.
//
// Math::kF32 multiplies in f32 without tensor cores. The other modes let cuBLAS round both operands on their
// way into the tensor cores; they stay f32 in memory, so that no mode needs a copy of them. Operands stored
// in 16 bits are multiplied as they are, in every mode.
class Product {
 public:
  Product(const Request& request, const MatMulShape& shape, Epilogue epilogue = Epilogue::kNone);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // The early_inputs of a kernel whose operands are a and b.
  std::optional<std::vector<int>> early_inputs() const {
    return is_own_ ? early_inputs_of_few_rows(device_) : std::nullopt;
  }
  // Queues the products on `stream`. `bias` is read or written, and `c` read, as the epilogue says.
  void run(const void* a, const void* b, void* y, void* bias, const void* c, void* workspace,
           cudaStream_t stream) const;

 private:
  using Algorithm = cublasLtMatmulAlgo_t;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  // Returns the suggestions of cuBLASLt for a workspace of at most `limit_bytes`.
  std::vector<cublasLtMatmulHeuristicResult_t> suggestions(const KernelSettings& settings,
                                                           const MatMulShape& shape,
                                                           int64_t limit_bytes) const;
  std::vector<AlgorithmCandidate> candidates(const KernelSettings& settings, const MatMulShape& shape) const;
  // Returns the workspace bytes that cuBLASLt needs for an algorithm; nullopt if it refuses it.
  std::optional<int64_t> checked_workspace(const Algorithm& algorithm) const;
  bool use(const AlgorithmChoice& choice);
  void launch_own(const void* a, const void* b, void* y, const void* bias, const void* c,
                  cudaStream_t stream) const;
  void launch(const Algorithm& algorithm, const void* a, const void* b, void* y, void* bias, const void* c,
              void* workspace, int64_t workspace_bytes, cudaStream_t stream) const;

  const CudaGpu& device_;
  cublasLtHandle_t handle_;
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> description_;
  // cuBLASLt is column-major, so it computes y' = b' a': its first operand is our b.
  Layout first_, second_, result_;
  bool has_bias_, adds_;
  std::optional<FewRows> few_rows_ = {};  // without addresses: of a product that our own kernel takes
  bool is_own_ = false;                   // it is the fastest
  Algorithm algorithm_{};
  int64_t workspace_bytes_ = 0;
};

}  // namespace headroom::cuda
