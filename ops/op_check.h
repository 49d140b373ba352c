// Checks of one op's operands, and helpers for the inference of its outputs. Knows no op.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "ops/op.h"

namespace headroom {

// Every message starts with the op's name and its operands, and throws InvalidArgument.
class OpCheck {
 public:
  OpCheck(std::string_view op, std::span<const TensorSpec> inputs) : op_(op), inputs_(inputs) {}

  [[noreturn]] void fail(const std::string& why) const;
  // For a reason that takes no time to write: nearly every condition holds.
  void require(bool condition, const std::string& why) const {
    if (!condition) fail(why);
  }
  void count(size_t n) const;
  void dtype(size_t i, DType dtype) const;
  void floats(size_t n) const;  // `n` operands, all f32
  void rank(size_t i, int rank) const;
  void same_shape(size_t i, const Shape& expected) const;
  void scalar(size_t i, DType type) const;

  const Shape& shape(size_t i) const { return inputs_[i].shape; }
  const TensorSpec& input(size_t i) const { return inputs_[i]; }
  std::span<const TensorSpec> inputs() const { return inputs_; }
  size_t size() const { return inputs_.size(); }

 private:
  const std::string_view op_;
  const std::span<const TensorSpec> inputs_;
};

inline TensorSpec f32(const Shape& shape) {
  return {DType::kF32, shape};
}
inline TensorSpec i32(const Shape& shape) {
  return {DType::kI32, shape};
}
inline TensorSpec u8(const Shape& shape) {
  return {DType::kU8, shape};
}

inline std::span<const int64_t> extents_of(const Shape& shape) {
  return {shape.begin(), shape.end()};
}
inline Shape shape_of(const std::vector<int64_t>& extents) {
  return Shape(std::span<const int64_t>(extents));
}
// The axes of `a`, then those of `b`.
Shape concatenated(std::span<const int64_t> a, std::span<const int64_t> b);

}  // namespace headroom
