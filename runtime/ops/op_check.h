// Checks of one op's operands that word their messages alike. Private to the shape inference of ops.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/ops/ops.h"

namespace headroom {

// Every message starts with the op's name and its operands, and throws InvalidArgument.
class OpCheck {
 public:
  OpCheck(const Op& op, std::span<const TensorSpec> inputs) : op_(op), inputs_(inputs) {}

  [[noreturn]] void fail(const std::string& why) const;
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
  size_t size() const { return inputs_.size(); }

 private:
  const Op& op_;
  std::span<const TensorSpec> inputs_;
};

}  // namespace headroom
