#include "ops/op_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/errors.h"

namespace headroom {

void OpCheck::fail(const std::string& why) const {
  std::vector<std::string> operands;
  for (const TensorSpec& input : inputs_) operands.push_back(to_string(input));
  throw InvalidArgument(fmt::format("{}({}): {}", op_, fmt::join(operands, ", "), why));
}

void OpCheck::count(size_t n) const {
  if (inputs_.size() != n)
    fail(fmt::format("takes {} operand{}, got {}", n, n == 1 ? "" : "s", inputs_.size()));
}

void OpCheck::dtype(size_t i, DType dtype) const {
  if (inputs_[i].dtype != dtype) fail(fmt::format("operand {} must be {}", i, to_string(dtype)));
}

void OpCheck::floats(size_t n) const {
  count(n);
  for (size_t i = 0; i < n; ++i) dtype(i, DType::kF32);
}

void OpCheck::rank(size_t i, int rank) const {
  if (shape(i).rank() != rank) fail(fmt::format("operand {} must have rank {}", i, rank));
}

void OpCheck::same_shape(size_t i, const Shape& expected) const {
  if (shape(i) != expected) fail(fmt::format("operand {} must have shape {}", i, to_string(expected)));
}

void OpCheck::scalar(size_t i, DType type) const {
  dtype(i, type);
  rank(i, 0);
}

Shape concatenated(std::span<const int64_t> a, std::span<const int64_t> b) {
  std::vector<int64_t> extents(a.begin(), a.end());
  extents.insert(extents.end(), b.begin(), b.end());
  return shape_of(extents);
}

}  // namespace headroom
