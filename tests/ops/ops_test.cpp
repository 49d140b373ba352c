// Properties of the traits of every op of the variant.
#include "ops/ops.h"

#include <gtest/gtest.h>

#include <set>

#include "base/errors.h"

namespace headroom {
namespace {

// Compilers print a value that has no enumerator as a cast: "(headroom::UnaryKind)4".
template <auto kValue>
constexpr bool is_enumerator() {
  const std::string_view text = __PRETTY_FUNCTION__;
  return text[text.rfind("kValue = ") + 9] != '(';
}

TEST(Ops, NameEachOpAndEachKindOnce) {
  for_each_op_type([]<typename T>() {
    if constexpr (requires(T op) { op.kind; }) {
      using Kind = decltype(T::kind);
      constexpr size_t kKinds = T::kTraits.kind_names.size();
      EXPECT_TRUE(T::kTraits.name.empty()) << T::kTraits.name;
      EXPECT_TRUE(is_enumerator<static_cast<Kind>(kKinds - 1)>()) << T::kTraits.kind_names[0];
      EXPECT_FALSE(is_enumerator<static_cast<Kind>(kKinds)>()) << T::kTraits.kind_names[0];
    } else {
      EXPECT_TRUE(T::kTraits.kind_names.empty());
    }
  });
  const std::set<std::string_view> names(op_names().begin(), op_names().end());
  EXPECT_EQ(names.size(), op_names().size());
  EXPECT_FALSE(names.contains(""));
}

TEST(Ops, KnowTheirKindsByName) {
  EXPECT_EQ(op_name(Unary{UnaryKind::kGelu}), "gelu");
  EXPECT_EQ(op_name(UnaryGrad{UnaryKind::kRelu}), "relu_grad");
  EXPECT_EQ(op_name(Reduce{ReduceKind::kMax, {0}}), "max");
  EXPECT_EQ(op_name(MatMul{}), "matmul");
}

TEST(Ops, OnlyUpdatesChangeOperands) {
  EXPECT_EQ(mutated_inputs(MatMul{}, 2), std::vector<int>());
  EXPECT_EQ(mutated_inputs(SgdUpdate{}, 5), (std::vector<int>{1, 3}));
  EXPECT_EQ(mutated_inputs(SgdUpdate{0.9f}, 7), (std::vector<int>{1, 3, 4, 6}));
  EXPECT_EQ(mutated_inputs(AdamUpdate{}, 6), (std::vector<int>{2, 4, 5}));
  EXPECT_EQ(mutated_inputs(RowUpdate{}, 5), (std::vector<int>{1, 3}));
  EXPECT_EQ(mutated_inputs(AllGatherUpdate{2}, 2), (std::vector<int>{0, 1}));
}

TEST(Ops, ExpressionsRefuseFunctionsThatTheirKernelLacksAndValuesToCome) {
  using Code = Instruction::Code;
  const std::vector<TensorSpec> inputs = {{DType::kF32, {2, 3}}};
  Expression op{1, 1};
  op.instructions[0] = {Code::kUnary, static_cast<uint8_t>(UnaryKind::kTanh)};
  EXPECT_EQ(infer_outputs(op, inputs), inputs);
  op.instructions[0].kind = static_cast<uint8_t>(UnaryKind::kSin);
  EXPECT_THROW(infer_outputs(op, inputs), InvalidArgument);
  op.instructions[0] = {Code::kBinary, static_cast<uint8_t>(BinaryKind::kAdd), 0, 1};
  EXPECT_THROW(infer_outputs(op, inputs), InvalidArgument);
}

TEST(Ops, ResultsTakeOverOperandsOfTheirSize) {
  const TensorSpec matrix{DType::kF32, {2, 3}}, row{DType::kF32, {3}};
  const auto input_of = [&](const TensorSpec& a, const TensorSpec& b) {
    return in_place_input(Binary{BinaryKind::kAdd}, std::vector{a, b}, matrix);
  };
  EXPECT_EQ(input_of(matrix, matrix), 0);
  EXPECT_EQ(input_of(row, matrix), 1);
  EXPECT_EQ(input_of(row, row), -1);
  // A broadcast operand may have as many bytes, of elements twice as long.
  const TensorSpec column{DType::kF32, {2, 1}}, halves{DType::kBf16, {2, 2}};
  EXPECT_EQ(in_place_input(Binary{BinaryKind::kAdd}, std::vector{column, halves}, halves), 1);
  EXPECT_EQ(in_place_input(MatMul{}, std::vector{matrix, matrix}, matrix), -1);
  EXPECT_EQ(in_place_input(AllReduce{2, true}, std::vector{row, matrix, row}, row, 1), 2);
  const std::vector<TensorSpec> of_norm = {matrix, matrix, row, row, row, matrix};
  const Op norm_grad = BatchNormGrad{1e-3f, true, true};
  EXPECT_EQ(in_place_input(norm_grad, of_norm, matrix, 0), 1) << "dx takes x over";
  EXPECT_EQ(in_place_input(norm_grad, of_norm, matrix, 3), 0) << "the residual's gradient takes dy over";
}

TEST(Ops, ReplicasSumF32AndBf16) {
  const TensorSpec whole{DType::kF32, {3}}, half{DType::kBf16, {4}}, other{DType::kF16, {4}};
  EXPECT_EQ(infer_outputs(AllReduce{2}, std::vector{whole, half}), (Outputs{whole, half}));
  EXPECT_THROW(infer_outputs(AllReduce{2}, std::vector{whole, other}), InvalidArgument);
}

}  // namespace
}  // namespace headroom
