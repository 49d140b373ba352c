// Layers for the nets of the zoo. Each creates its variables and appends its nodes. Knows no net.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/graph/functions.h"

namespace headroom {

class Layers {
 public:
  Layers(Graph& graph, uint64_t seed) : graph_(graph), seed_(seed) {}

  // The trained variables created so far.
  const std::vector<Value>& parameters() const { return parameters_; }

  Value dense(std::string_view name, Value x, int64_t units);  // (M,K) -> (M,units)
  // (N,H,W,C) -> (N,H/stride,W/stride,channels); stride divides H and W, `window` is odd.
  Value conv(std::string_view name, Value x, int window, int64_t channels, int stride = 1,
             bool with_bias = true);
  Value batch_norm(std::string_view name, Value x);  // over all axes but the last
  // i32 indices (I..) below `rows` -> (I..,columns)
  Value embedding(std::string_view name, Value indices, int64_t rows, int64_t columns);

 private:
  Value trained(std::string_view name, const Shape& shape, const Initializer& initializer);

  Graph& graph_;
  const uint64_t seed_;
  std::vector<Value> parameters_;
};

// (N,H,W,C) -> (N,2H,2W,C) by repeating pixels.
Value upsample(Value x);

// Mean cross-entropy. logits (M,C), labels i32 with M elements in any shape -> f32 []
Value classification_loss(Value logits, Value labels);

}  // namespace headroom
