#include "tests/runtime/graph/gradient_cases.h"

#include <string>
#include <string_view>

#include "tests/runtime/graph/custom_ops.h"

namespace headroom::test {
namespace {

// An i32 constant: variables are the only integers with a value of their own.
Value counter(Graph& graph, const char* name, const Shape& shape, float value) {
  return graph.variable(name, {DType::kI32, shape}, constant_of(value));
}

// A row for each function of one number, at points with a slope.
std::vector<GradientCase> unary_cases() {
  std::vector<GradientCase> cases;
  for (int i = 0; i <= static_cast<int>(UnaryKind::kSign); ++i) {
    const auto kind = static_cast<UnaryKind>(i);
    const std::string_view name = kUnaryNames[static_cast<size_t>(i)];
    if (name == "relu" || name == "sigmoid" || name == "tanh" || name == "gelu") continue;  // rows below
    cases.push_back({name.data(),
                     {{3, 5}},
                     [kind](Graph&, const auto& v) {
                       // A step's slope is 0: the other path makes the sum a function that changes.
                       const Value y = unary(kind, v[0], kind == UnaryKind::kPower ? 2.5f : 0.25f, 0.75f);
                       return has_gradient(kind) ? y : add(v[0], y);
                     },
                     0.51f,
                     0.74f});
  }
  return cases;
}

std::vector<GradientCase> make_gradient_cases() {
  using V = const std::vector<Value>&;
  std::vector<GradientCase> cases = {
      {"matmul", {{3, 4}, {4, 2}}, [](Graph&, V v) { return matmul(v[0], v[1]); }},
      {"matmul_ta",
       {{4, 3}, {4, 2}},
       [](Graph&, V v) {
         return matmul(v[0], v[1], {true, false});
       }},
      {"matmul_tb",
       {{3, 4}, {2, 4}},
       [](Graph&, V v) {
         return matmul(v[0], v[1], {false, true});
       }},
      {"matmul_tatb",
       {{4, 3}, {2, 4}},
       [](Graph&, V v) {
         return matmul(v[0], v[1], {true, true});
       }},
      {"custom",
       {{3, 4}},
       [](Graph& g, V v) {
         const std::vector<Value> y = custom(kPowers, {v[0], counter(g, "k", {3}, 2)});
         return add(y[0], reshape(y[1], {3, 1}));
       }},
      {"matmul_batch", {{2, 3, 4}, {2, 4, 2}}, [](Graph&, V v) { return matmul(v[0], v[1]); }},
      {"matmul_shared", {{2, 3, 4}, {4, 2}}, [](Graph&, V v) { return matmul(v[0], v[1]); }},
      {"dense", {{3, 4}, {4, 2}, {2}}, [](Graph& g, V v) { return g.add(Dense{}, v)[0]; }},
      {"dense_residual", {{3, 4}, {4, 2}, {2}, {3, 2}}, [](Graph& g, V v) { return g.add(Dense{true}, v)[0]; }},
      {"dense_residual_rank3",
       {{6, 4}, {4, 2}, {2}, {2, 3, 2}},
       [](Graph& g, V v) { return g.add(Dense{}, v)[0]; }},
      {"dense_sum_rank3", {{6, 4}, {4, 2}, {2, 3, 2}}, [](Graph& g, V v) { return g.add(Dense{}, v)[0]; }},
      {"dense_relu", {{3, 4}, {4, 2}, {2}}, [](Graph& g, V v) { return g.add(Dense{true}, v)[0]; }},
      {"conv2d", {{2, 5, 6, 2}, {3, 2, 2, 3}}, [](Graph&, V v) { return conv2d(v[0], v[1]); }},
      {"conv2d_all",
       {{1, 7, 6, 4}, {3, 2, 2, 4}},
       [](Graph&, V v) {
         return conv2d(v[0], v[1], {{2, 1}, {1, 2}, {1, 2}, 2});
       }},
      {"max_pool", {{2, 5, 4, 3}}, [](Graph&, V v) { return max_pool(v[0]); }},
      {"max_pool_overlap",
       {{1, 5, 5, 2}},
       [](Graph&, V v) {
         return max_pool(v[0], {{3, 3}, {2, 2}, {1, 1}});
       }},
      {"avg_pool",
       {{1, 5, 5, 2}},
       [](Graph&, V v) {
         return avg_pool(v[0], {{3, 2}, {2, 1}, {1, 1}});
       }},
      {"bias", {{4, 3}, {3}}, [](Graph&, V v) { return bias(v[0], v[1]); }},
      {"relu", {{3, 5}}, [](Graph&, V v) { return relu(v[0]); }},
      {"sigmoid", {{3, 5}}, [](Graph&, V v) { return sigmoid(v[0]); }},
      {"tanh", {{3, 5}}, [](Graph&, V v) { return tanh(v[0]); }},
      {"gelu", {{3, 5}}, [](Graph&, V v) { return gelu(v[0]); }},
      {"scale", {{3, 5}}, [](Graph&, V v) { return scale(v[0], -2.5f); }},
      {"add_broadcast", {{2, 1, 3}, {4, 1}}, [](Graph&, V v) { return add(v[0], v[1]); }},
      {"sub_broadcast", {{2, 3}, {1, 3}}, [](Graph&, V v) { return sub(v[0], v[1]); }},
      {"mul_broadcast", {{2, 3}, {2, 1}}, [](Graph&, V v) { return mul(v[0], v[1]); }},
      {"mul_itself", {{2, 3}}, [](Graph&, V v) { return mul(v[0], v[0]); }},
      {"div_broadcast", {{2, 3}, {3}}, [](Graph&, V v) { return div(v[0], v[1]); }, 0.5f, 2},
      {"sum_axis", {{2, 3, 2}}, [](Graph&, V v) { return sum(v[0], {1}); }},
      {"mean_axes",
       {{2, 3, 2}},
       [](Graph&, V v) {
         return mean(v[0], {0, -1}, true);
       }},
      {"max_axis", {{3, 4, 2}}, [](Graph&, V v) { return max(v[0], {1}); }},
      {"reshape",
       {{2, 6}},
       [](Graph&, V v) {
         return relu(reshape(v[0], {3, 4}));
       }},
      {"flatten", {{2, 3, 2}}, [](Graph&, V v) { return flatten(v[0]); }},
      {"to_device", {{2, 3}}, [](Graph&, V v) { return relu(to_device(v[0], "")); }},
      {"transpose",
       {{2, 3, 4}},
       [](Graph&, V v) {
         return transpose(v[0], {2, 0, 1});
       }},
      {"concat",
       {{2, 3}, {2, 1}},
       [](Graph&, V v) {
         return concat({v[0], v[1]}, 1);
       }},
      {"slice",
       {{4, 5}},
       [](Graph&, V v) {
         return slice(v[0], {1, 2}, {2, 3});
       }},
      {"gather",
       {{4, 3}},
       [](Graph& g, V v) {
         return gather(v[0], counter(g, "indices", {2, 2}, 2));
       }},
      {"gather_grad",
       {{2, 2, 3}},
       [](Graph& g, V v) {
         return g.add(GatherGrad{{4, 3}}, std::vector{v[0], counter(g, "indices", {2, 2}, 2)})[0];
       }},
      {"replace_rows",
       {{2, 4, 3}, {2, 1, 3}},
       [](Graph& g, V v) {
         return g.add(ReplaceRows{1}, std::vector{v[0], counter(g, "indices", {1}, 2), v[1]})[0];
       }},
      {"broadcast_to",
       {{3, 1}},
       [](Graph&, V v) {
         return broadcast_to(v[0], {2, 3, 4});
       }},
      {"dropout", {{6, 7}}, [](Graph& g, V v) { return dropout(v[0], 0.4f, 11, counter(g, "step", {}, 3)); }},
      {"softmax", {{3, 4}}, [](Graph&, V v) { return softmax(v[0]); }},
      {"softmax_mask",
       {{2, 3, 4}, {3, 4}},
       [](Graph& g, V v) { return g.add(Softmax{.scale = 0.5f}, v)[0]; }},
      {"attention",
       {{2, 3, 2, 4}, {2, 5, 2, 4}, {2, 5, 2, 4}},
       [](Graph& g, V v) { return g.add(Attention{.scale = 0.5f}, v)[0]; }},
      {"attention_packed",
       {{2, 3, 3, 2, 4}},
       [](Graph& g, V v) { return g.add(Attention{.scale = 0.5f, .packed = true}, v)[0]; }},
      {"cross_entropy",
       {{3, 4}},
       [](Graph& g, V v) { return cross_entropy(v[0], counter(g, "labels", {3}, 1)); }},
      {"batch_norm", {{5, 3}, {3}, {3}}, [](Graph& g, V v) { return g.add(BatchNorm{}, v)[0]; }},
      {"batch_norm_image", {{2, 3, 2, 2}, {2}, {2}}, [](Graph& g, V v) { return g.add(BatchNorm{}, v)[0]; }},
      {"batch_norm_relu",
       {{5, 3}, {3}, {3}},
       [](Graph& g, V v) {
         return g.add(BatchNorm{1e-3f, true}, v)[0];
       }},
      {"batch_norm_residual",
       {{5, 3}, {3}, {3}, {5, 3}},
       [](Graph& g, V v) { return g.add(BatchNorm{}, v)[0]; }},
      {"batch_norm_residual_relu",
       {{5, 3}, {3}, {3}, {5, 3}},
       [](Graph& g, V v) {
         return g.add(BatchNorm{1e-3f, true}, v)[0];
       }},
      {"conv_block",
       {{2, 5, 5, 2}, {3, 3, 2, 4}, {4}},
       [](Graph& g, V v) { return g.add(ConvBlock{}, v)[0]; }},
      {"conv_block_pooled",
       {{2, 8, 7, 2}, {3, 3, 2, 4}, {4}},
       [](Graph& g, V v) {
         return g.add(ConvBlock{{}, Pool2d{}}, v)[0];
       }},
      // Whole numbers pass no gradient: only the other path does.
      {"cast",
       {{3, 4}},
       [](Graph&, V v) { return add(v[0], cast(cast(v[0], DType::kI32), DType::kF32)); },
       -0.9f,
       0.9f},
      {"conv2d_input_grad",
       {{2, 3, 4, 4}, {3, 2, 2, 4}},
       [](Graph& g, V v) {
         const Conv2d conv{{2, 1}, {1, 0}, {1, 1}, 2};
         return g.add(Conv2dInputGrad{conv, {2, 5, 5, 4}}, v)[0];
       }},
      {"pow_broadcast",
       {{2, 3}, {3}},
       [](Graph&, V v) { return binary(BinaryKind::kPow, v[0], v[1]); },
       0.5f,
       2},
      {"max_broadcast", {{2, 3}, {3}}, [](Graph&, V v) { return binary(BinaryKind::kMax, v[0], v[1]); }},
      {"min_broadcast", {{2, 3}, {3}}, [](Graph&, V v) { return binary(BinaryKind::kMin, v[0], v[1]); }},
      // Always in one period.
      {"mod",
       {{2, 3}, {3}},
       [](Graph& g, V v) { return binary(BinaryKind::kMod, v[0], add(v[1], fill(g, 5, {}))); },
       0.1f,
       0.9f},
      {"where",
       {{2, 3}, {3}},
       [](Graph& g, V v) {
         const Value chosen = g.variable("chosen", {DType::kU8, {2, 1}}, constant_of(1));
         return add(where(chosen, v[0], v[1]), where(comparison(CompareKind::kLess, v[0], v[1]), v[0], v[1]));
       }},
      {"slice_steps",
       {{5, 6}},
       [](Graph&, V v) {
         return slice(v[0], Slice{{0, 5}, {3, 2}, {2, -3}});
       }},
      {"slice_grad", {{2, 3}}, [](Graph& g, V v) { return g.add(SliceGrad{{1, 0}, {4, 5}}, v)[0]; }},
      {"slice_grad_steps",
       {{2, 3}},
       [](Graph& g, V v) { return g.add(SliceGrad{{1, 0}, {4, 5}, {2, 2}}, v)[0]; }},
      {"layer_norm", {{4, 5}, {5}, {5}}, [](Graph&, V v) { return layer_norm(v[0], v[1], v[2]); }},
      {"cumulative_sum", {{3, 4}}, [](Graph&, V v) { return cumulative_sum(v[0], {1, true}); }},
      {"cumulative_sum_reverse",
       {{3, 4}},
       [](Graph&, V v) { return cumulative_sum(v[0], {0, false, true}); }},
      {"two_paths", {{2, 3}}, [](Graph&, V v) { return add(relu(v[0]), mul(v[0], sigmoid(v[0]))); }},
  };
  for (GradientCase& row : unary_cases()) cases.push_back(std::move(row));
  return cases;
}

}  // namespace

const std::vector<GradientCase>& gradient_cases() {
  static const std::vector<GradientCase> all = make_gradient_cases();
  return all;
}

std::vector<Value> operands_of(const GradientCase& row, Graph& graph) {
  std::vector<Value> operands;
  for (size_t i = 0; i < row.shapes.size(); ++i) {
    operands.push_back(graph.variable("x" + std::to_string(i), {DType::kF32, row.shapes[i]}, zeros()));
  }
  return operands;
}

}  // namespace headroom::test
