#include "tests/kernels/reference.h"

namespace headroom::test {

void for_each_index(const Shape& shape, const std::function<void(const Index&, int64_t)>& f) {
  const int64_t elements = shape.elements();
  Index index(static_cast<size_t>(shape.rank()));
  for (int64_t position = 0; position < elements; ++position) {
    int64_t rest = position;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      index[static_cast<size_t>(axis)] = rest % shape[axis];
      rest /= shape[axis];
    }
    f(index, position);
  }
}

int64_t position_of(const Shape& shape, const Index& index) {
  int64_t position = 0;
  const size_t skipped = index.size() - static_cast<size_t>(shape.rank());
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int64_t i = shape[axis] == 1 ? 0 : index[static_cast<size_t>(axis) + skipped];
    position = position * shape[axis] + i;
  }
  return position;
}

std::vector<Values> reference(const Op& op, const std::vector<Values>& inputs) {
  std::vector<TensorSpec> specs;
  for (const Values& input : inputs) specs.push_back(input.spec);
  std::vector<Values> out;
  for (const TensorSpec& spec : infer_outputs(op, specs)) {
    out.push_back({spec, std::vector<double>(static_cast<size_t>(spec.shape.elements()))});
  }
  for (auto family : {reference_attention, reference_elementwise, reference_movement, reference_window,
                      reference_statistics}) {
    std::vector<Values> result = family(op, inputs, out);
    if (!result.empty()) return result;
  }
  return reference_update(op, inputs);
}

}  // namespace headroom::test
