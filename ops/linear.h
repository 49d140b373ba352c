// Products of matrices, and dense layers with their bias, residual and relu.
#pragma once

#include "ops/op.h"

namespace headroom {

// a (B..,M,K), b (B..,K,N) -> (B..,M,N). Leading axes broadcast. transpose_a: a is (B..,K,M), likewise b.
struct MatMul {
  static constexpr OpTraits kTraits{.name = "matmul", .library = Library::kBlas};
  bool transpose_a = false;
  bool transpose_b = false;
  Outputs infer(const OpCheck& c) const;
  bool operator==(const MatMul&) const = default;
};

// A product with its neighbors (fuse() makes it).
// x (..,K), w (K,N), bias (N), [residual] -> y (..,N) = x w + bias + residual, or relu of that. K > 0. A
// residual may stand in the place of the bias; it has as many rows as y, which gets its shape. transpose_b: w
// is (N,K).
struct Dense {
  static constexpr OpTraits kTraits{.name = "dense", .library = Library::kBlas};
  bool relu = false;
  bool transpose_b = false;
  Outputs infer(const OpCheck& c) const;
};
// x (M,K), dy (M,N), the gradient at x w + bias -> dw (K,N) = x^T dy, dbias (N) = the sums of dy over M
struct DenseFilterGrad {
  static constexpr OpTraits kTraits{
      .name = "dense_filter_grad", .library = Library::kBlas, .differentiable = false};
  Outputs infer(const OpCheck& c) const;
};

}  // namespace headroom
