#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "tests/kernels/kernel_cases.h"

namespace headroom::test {
namespace {

void add_row(std::vector<KernelCase>& cases, const std::string& what, const Expression& op,
             std::vector<HostTensor> inputs, double tolerance = 1e-5) {
  cases.push_back({"expression_" + what, op, std::move(inputs), tolerance});
}

// A random expression of functions that keep moderate values moderate. Its first steps add all operands.
Expression random_expression(uint32_t seed, uint8_t operands, uint8_t length) {
  using Code = Instruction::Code;
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<uint8_t>(random() % n); };
  constexpr UnaryKind kKinds[] = {UnaryKind::kRelu, UnaryKind::kSigmoid,  UnaryKind::kTanh,
                                  UnaryKind::kGelu, UnaryKind::kTanhGelu, UnaryKind::kErf,
                                  UnaryKind::kAbs,  UnaryKind::kClip,     UnaryKind::kHardSigmoid};
  constexpr BinaryKind kPairs[] = {BinaryKind::kAdd, BinaryKind::kSub, BinaryKind::kMul, BinaryKind::kMax,
                                   BinaryKind::kMin};
  Expression op{operands, length};
  for (uint8_t i = 0; i < length; ++i) {
    const auto known = static_cast<uint8_t>(operands + i);
    // The value before this one, so that none is without effect, and any other.
    Instruction step{.a = i == 0 ? uint8_t{0} : static_cast<uint8_t>(known - 1), .b = below(known)};
    const bool adds = i + 1 < operands;
    const int what = adds ? 3 : below(4);
    if (adds) step.b = static_cast<uint8_t>(i + 1);
    step.code = what == 0 ? Code::kUnary : what == 1 ? Code::kScale : Code::kBinary;
    if (what == 0) {
      step.kind = static_cast<uint8_t>(kKinds[below(std::size(kKinds))]);
      step.alpha = step.kind == static_cast<uint8_t>(UnaryKind::kClip) ? -0.75f : 0.2f;
      step.beta = 0.5f;
    }
    if (what == 1) step.alpha = 0.5f + 0.25f * below(3);
    if (what >= 2)
      step.kind = static_cast<uint8_t>(adds ? BinaryKind::kAdd : kPairs[below(std::size(kPairs))]);
    op.instructions[i] = step;
  }
  return op;
}

// Rotations by halves, as position embeddings have them, slices, and concatenations of functions.
void add_windowed_cases(std::vector<KernelCase>& cases) {
  using Code = Instruction::Code;
  constexpr auto kSum = static_cast<uint8_t>(BinaryKind::kAdd),
                 kProduct = static_cast<uint8_t>(BinaryKind::kMul);
  for (const int64_t half : {3, 8, 600}) {
    // x cos + (-x[half:] and x[:half], side by side) sin
    Expression rotary{5, 5};
    rotary.instructions = {{{Code::kBinary, kProduct, 0, 1},
                            {Code::kScale, 0, 2, 0, -1},
                            {Code::kBinary, kSum, 6, 3},
                            {Code::kBinary, kProduct, 7, 4},
                            {Code::kBinary, kSum, 5, 8}}};
    rotary.windows = {0, 0b01100, 2 * half, {0, 0, -half, half}};
    const HostTensor x = random_floats({2, 5, 3, 2 * half}, 5), cos = random_floats({5, 1, 2 * half}, 6),
                     sin = random_floats({5, 1, 2 * half}, 7);
    cases.push_back({fmt::format("expression_rotary_{}", half), rotary, {x, cos, x, x, sin}, 1e-5});
    for (const int axis : {1, 2, 3}) {
      ReducedExpression sums{rotary, {ReduceKind::kSum, {axis}, false}};
      cases.push_back(
          {fmt::format("reduced_expression_rotary_{}_{}", half, axis), sums, {x, cos, x, x, sin}, 1e-4});
    }
    // exp of one part and the other as it is, along another axis than the last
    Expression parts{2, 3};
    parts.instructions = {{{Code::kUnary, static_cast<uint8_t>(UnaryKind::kExp), 0},
                           {Code::kInside, 0, 2, 0, 0, 2},
                           {Code::kBinary, kSum, 3, 1}}};
    parts.windows = {1, 0b11, 5, {0, 2}};
    const HostTensor a = random_floats({4, 2, half}, 8), b = random_floats({4, 3, half}, 9);
    cases.push_back({fmt::format("expression_parts_{}", half), parts, {a, b}, 1e-5});
    Expression rows{2, 1};
    rows.instructions = {{{Code::kBinary, kSum, 0, 1}}};
    rows.windows = {1, 0b11, 3, {0, 2}};
    const HostTensor one = random_floats({4, 1, half}, 8), other = random_floats({4, 1, half}, 9);
    cases.push_back({fmt::format("expression_rows_{}", half), rows, {one, other}, 1e-5});
  }
}

}  // namespace

void add_expression_cases(std::vector<KernelCase>& cases) {
  using Code = Instruction::Code;
  // Each function before a sum, so that the result is not its own.
  for (int i = 0; i <= static_cast<int>(UnaryKind::kSign); ++i) {
    const auto kind = static_cast<UnaryKind>(i);
    if (!is_short(kind, 2)) continue;
    const bool is_power = kind == UnaryKind::kPower;
    const auto code = static_cast<uint8_t>(i);
    const float alpha = is_power ? 2 : kind == UnaryKind::kClip ? -0.75f : 0.3f, beta = 0.5f;
    Expression value{2, 2}, slope{2, 2};
    value.instructions[0] = {Code::kUnary, code, 0, 0, alpha, beta};
    value.instructions[1] = {Code::kBinary, static_cast<uint8_t>(BinaryKind::kAdd), 2, 1};
    slope.instructions[0] = {Code::kUnaryGrad, code, 0, 1, is_power ? 3 : alpha, beta};
    slope.instructions[1] = {Code::kBinary, static_cast<uint8_t>(BinaryKind::kSub), 2, 1};
    const std::string name(kUnaryNames[i]);
    const HostTensor x = random_floats({5, 264}, 7, 0.25f, 3), y = random_floats({264}, 8);
    add_row(cases, name, value, {x, y});
    add_row(cases, name + "_grad", slope, {random_floats({5, 264}, 9), x});
  }
  const std::vector<std::vector<Shape>> operands = {
      {{1031}},
      {{}, {}},
      {{4, 6, 24}, {24}},
      {{4, 6, 24}, {4, 6, 1}, {24}, {}},
      {{3, 1, 5}, {1, 7, 1}, {3, 7, 5}},
      {{2, 4096}, {2, 4096}, {2, 1}, {2, 4096}},
      {{2, 3, 2, 8}, {3, 1, 8}, {2, 1, 1, 1}},
      {{2, 300, 7}, {2, 300, 7}, {7}}};  // several rows to a tile
  for (uint32_t seed = 0; seed < 32; ++seed) {
    const std::vector<Shape>& shapes = operands[seed % operands.size()];
    std::vector<HostTensor> inputs;
    for (const Shape& shape : shapes)
      inputs.push_back(random_floats(shape, 20 + seed + static_cast<uint32_t>(inputs.size()), -1.5f, 1.5f));
    const auto length =
        static_cast<uint8_t>(std::max<size_t>(inputs.size(), 1 + seed * 7 % Expression::kMaxInstructions));
    add_row(cases, fmt::format("random_{}", seed),
            random_expression(seed, static_cast<uint8_t>(inputs.size()), length), inputs, 2e-4);
  }
  const std::vector<PerAxis<int>> reduced = {{0}, {}, {1}, {2}, {0, 2}, {1}, {0, 1, 2}, {0, 1}};
  for (uint32_t seed = 0; seed < 24; ++seed) {
    const std::vector<Shape>& shapes = operands[seed % operands.size()];
    std::vector<HostTensor> inputs;
    for (const Shape& shape : shapes)
      inputs.push_back(random_floats(shape, 90 + seed + static_cast<uint32_t>(inputs.size()), -1.5f, 1.5f));
    const auto length = static_cast<uint8_t>(std::max<size_t>(inputs.size(), 1 + seed * 5 % 12));
    const auto kind = static_cast<ReduceKind>(seed / operands.size());
    const Expression terms = random_expression(40 + seed, static_cast<uint8_t>(inputs.size()), length);
    cases.push_back({fmt::format("reduced_expression_{}", seed),
                     ReducedExpression{terms, {kind, reduced[seed % reduced.size()], seed % 2 == 0}},
                     std::move(inputs), 2e-4});
  }
  add_windowed_cases(cases);
  std::vector<HostTensor> many;
  for (uint32_t i = 0; i < Expression::kMaxOperands; ++i) many.push_back(random_floats({3, 40}, 60 + i));
  add_row(cases, "most_operands",
          random_expression(99, Expression::kMaxOperands, Expression::kMaxInstructions), many, 2e-4);
}

}  // namespace headroom::test
