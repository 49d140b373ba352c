#include "ops/ops.h"

#include <algorithm>

#include "ops/op_check.h"

namespace headroom {

const OpTraits& traits_of(const Op& op) {
  return std::visit([]<typename T>(const T&) -> const OpTraits& { return T::kTraits; }, op);
}

std::string_view op_name(const Op& op) {
  return std::visit(
      []<typename T>(const T& o) {
        if constexpr (requires { o.kind; }) {
          return T::kTraits.kind_names[static_cast<size_t>(o.kind)];
        } else if constexpr (requires { o.name(); }) {
          return o.name();
        } else {
          return T::kTraits.name;
        }
      },
      op);
}

std::span<const std::string_view> op_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for_each_op_type(
        [&]<typename T>() { all.insert(all.end(), T::kTraits.names().begin(), T::kTraits.names().end()); });
    return all;
  }();
  return names;
}

Outputs infer_outputs(const Op& op, std::span<const TensorSpec> inputs) {
  const OpCheck check(op_name(op), inputs);
  return std::visit([&](const auto& o) { return o.infer(check); }, op);
}

int in_place_input(const Op& op, std::span<const TensorSpec> inputs, const TensorSpec& output, size_t index) {
  return std::visit(
      [&]<typename T>(const T& o) {
        if constexpr (requires { o.in_place_input(index); }) {
          const int input = o.in_place_input(index);
          return input < static_cast<int>(inputs.size()) ? input : -1;  // an operand that may be absent
        } else {
          if (index != 0) return -1;
          // Of equal bytes alone may be a broadcast operand of twice the size of an element.
          int in_place = T::kTraits.in_place_inputs;
          if constexpr (requires { o.in_place_inputs(); }) in_place = o.in_place_inputs();
          const size_t leading = std::min(inputs.size(), static_cast<size_t>(in_place));
          for (size_t i = 0; i < leading; ++i) {
            const bool is_as_long = inputs[i].shape.elements() == output.shape.elements();
            if (is_as_long && inputs[i].bytes() == output.bytes()) return static_cast<int>(i);
          }
          return -1;
        }
      },
      op);
}

bool is_optional_output(const Op& op, size_t index) {
  return std::visit(
      [index]<typename T>(const T& o) {
        if constexpr (requires { o.is_optional_output(index); }) return o.is_optional_output(index);
        return static_cast<int>(index) == T::kTraits.optional_output;
      },
      op);
}

UpdateOperands update_operands(const Op& op) {
  return std::visit(
      []<typename T>(const T& o) {
        if constexpr (T::kTraits.is_update()) {
          return o.operands();
        } else {
          return UpdateOperands{};
        }
      },
      op);
}

std::vector<int> mutated_inputs(const Op& op, size_t inputs) {
  const UpdateOperands operands = update_operands(op);
  std::vector<int> positions;
  for (size_t first = operands.shared; first < inputs; first += operands.per_variable) {
    for (size_t i : operands.changed) positions.push_back(static_cast<int>(first + i));
  }
  return positions;
}

}  // namespace headroom
