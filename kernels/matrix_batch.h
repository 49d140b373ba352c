// How the batch of a product of matrices is walked. Knows no op.
#pragma once

#include <span>

#include "kernels/loop_nest.h"

namespace headroom {

// The leading axes of a batch of matrices.
inline Shape batch_of(const Shape& shape) {
  return Shape(std::span(shape.begin(), shape.end() - 2));
}

// broadcast_strides of an operand's batch, in elements.
inline Strides batch_strides(const Shape& operand, const Shape& batch) {
  Strides strides = broadcast_strides(batch_of(operand), batch);
  const int rank = operand.rank();
  for (int64_t& stride : strides) stride *= operand[rank - 2] * operand[rank - 1];
  return strides;
}

}  // namespace headroom
