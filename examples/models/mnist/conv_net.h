// The small conv net of Chollet's "Deep Learning with Python" (2017) for 28x28 digits: 93,322 parameters.
// Knows no device and no data.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/graph/graph.h"

namespace headroom {

// From a pixel's byte to [0, 1].
inline constexpr float kPixelScale = 1.0f / 255;

class ConvNet {
 public:
  // Creates the ten trained variables: Glorot-uniform kernels and zero biases, as Keras does.
  ConvNet(Graph& graph, uint64_t seed);

  // images (N,28,28,1), u8 or as f32 in [0, 1] -> logits f32 (N,10)
  Value logits(Value images) const;
  const std::vector<Value>& parameters() const { return parameters_; }

 private:
  std::vector<Value> parameters_;  // kernel, bias of each layer
};

}  // namespace headroom
