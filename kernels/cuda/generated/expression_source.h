// The CUDA source of expressions, elementwise or reduced, for fixed shapes and types. Text: needs no GPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/tensor.h"
#include "ops/ops.h"

namespace headroom::cuda {

inline constexpr int kGeneratedThreads = 256;  // of a block

// A kernel with the parameters (const void* operand.., void* result). For a reduction in parts, the result
// is (parts, results) of double, or of float for maxima, and join_source() gives the kernel that joins them.
struct KernelSource {
  std::string text;
  int64_t blocks = 0;  // that have work: more would be idle
  int lanes = 1;       // neighbors that a thread takes at once
  int64_t parts = 1;   // the grid's second extent
};

// The number of neighbors, 8, 4 or 1, that shapes and types allow a thread to take at once.
int lanes_of_expression(const Expression& op, std::span<const TensorSpec> inputs, const TensorSpec& output);
// y = the expression of each element. `lanes` is 1 for operands at any address.
KernelSource elementwise_source(const Expression& op, std::span<const TensorSpec> inputs,
                                const TensorSpec& output, int lanes);

// The places of a reduction's terms, and the division of these among threads.
struct ReductionShape {
  bool terms_are_neighbors = false;  // the last axis is reduced
  int lanes = 1;
  int64_t results = 0, terms = 0;
  int threads_of_result = 1;  // of a block
  int64_t parts = 1;          // blocks that share a result
};
// Chooses the places and shares of a reduction on a GPU that so many `blocks` fill; `in_lanes` is false for
// operands at any address.
ReductionShape reduction_shape(const ReducedExpression& op, std::span<const TensorSpec> inputs,
                               const TensorSpec& output, int64_t blocks, bool in_lanes);
// y = the expression reduced, or its parts.
KernelSource reduction_source(const ReducedExpression& op, std::span<const TensorSpec> inputs,
                              const TensorSpec& output, const ReductionShape& shape);
// (const void* parts, void* y): joins the parts of reduction_source().
KernelSource join_source(const Reduce& by, const ReductionShape& shape, const TensorSpec& output);

}  // namespace headroom::cuda
