#include "tests/kernels/kernel_cases.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <utility>

namespace headroom::test {
namespace {

void add(std::vector<KernelCase>& cases, const std::string& what, const Op& op,
         std::vector<HostTensor> inputs, double tolerance = 1e-5) {
  std::string name = fmt::format("{}{}{}", op_name(op), what.empty() ? "" : "_", what);
  cases.push_back({std::move(name), op, std::move(inputs), tolerance});
}

HostTensor rate(float value) {
  return tensor<float>({}, {value});
}
HostTensor step(int32_t value) {
  return tensor<int32_t>({}, {value});
}

// Sizes around the vector width: nothing but a tail, whole vectors, several blocks and a tail.
constexpr int64_t kSizes[] = {1, 7, 16, 1031};

}  // namespace

std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> cases;
  add_matmul_and_pool_cases(cases);
  add_attention_cases(cases);
  add_elementwise_cases(cases);
  add_expression_cases(cases);
  add_movement_cases(cases);
  add_statistics_cases(cases);
  add_update_cases(cases);
  return cases;
}

void add_matmul_and_pool_cases(std::vector<KernelCase>& cases) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      const auto product = [&](const std::string& what, std::vector<int64_t> batch_a,
                               std::vector<int64_t> batch_b, int64_t m, int64_t n, int64_t k) {
        const auto shape = [](std::vector<int64_t> extents, int64_t rows, int64_t columns, bool transposed) {
          extents.push_back(transposed ? columns : rows);
          extents.push_back(transposed ? rows : columns);
          return Shape(std::span<const int64_t>(extents));
        };
        add(cases, fmt::format("{}{}{}", what, ta ? "_ta" : "", tb ? "_tb" : ""), MatMul{ta, tb},
            {random_floats(shape(batch_a, m, k, ta), 1), random_floats(shape(batch_b, k, n, tb), 2)}, 1e-4);
      };
      product("one", {}, {}, 1, 1, 1);
      product("vector", {}, {}, 1, 33, 70);
      product("few_rows", {}, {}, 3, 21, 19);
      product("most_few_rows", {}, {}, 8, 1100, 5);     // in two blocks of columns
      product("one_row_of_eights", {}, {}, 1, 43, 72);  // terms that a GPU reads at once
      product("rows_of_eights", {}, {}, 16, 30, 1320);
      product("rows_of_many_columns", {}, {}, 9, 8453, 40);
      product("column", {}, {}, 43, 1, 70);
      product("batch_of_columns", {3}, {3}, 11, 1, 7);
      product("odd", {}, {}, 37, 19, 65);
      product("wide", {}, {}, 130, 300, 40);
      product("deep", {}, {}, 11, 83, 530);  // in three parts of the depth
      product("batch", {2, 3}, {2, 3}, 5, 7, 9);
      product("shared_b", {2, 3}, {}, 5, 7, 9);
      product("shared_a", {}, {4}, 5, 7, 9);
      product("crossed", {3, 1}, {1, 2}, 5, 4, 6);
    }
  }
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {64, 64, 576}, {37, 10, 19}, {130, 33, 7}, {8, 41, 96}}) {
    const std::string what = fmt::format("{}x{}x{}", m, n, k);
    const HostTensor x = random_floats({m, k}, 50);
    for (bool relu : {false, true}) {
      add(cases, what + (relu ? "_relu" : ""), Dense{relu},
          {x, random_floats({k, n}, 51), random_floats({n}, 52)}, 1e-4);
    }
    for (bool relu : {false, true}) {
      add(cases, what + "_residual" + (relu ? "_relu" : ""), Dense{relu},
          {x, random_floats({k, n}, 51), random_floats({n}, 52), random_floats({m, n}, 55)}, 1e-4);
    }
    add(cases, what + "_sum", Dense{}, {x, random_floats({k, n}, 51), random_floats({m, n}, 55)}, 1e-4);
    add(cases, what + "_residual_rank3", Dense{},
        {x, random_floats({k, n}, 51), random_floats({n}, 52), random_floats({1, m, n}, 55)}, 1e-4);
    add(cases, what + "_sum_rank3", Dense{}, {x, random_floats({k, n}, 51), random_floats({m, 1, n}, 55)},
        1e-4);
    add(cases, what + "_transposed", Dense{false, true},
        {x, random_floats({n, k}, 51), random_floats({n}, 52)}, 1e-4);
    add(cases, what + "_transposed_sum", Dense{false, true},
        {x, random_floats({n, k}, 51), random_floats({n}, 52), random_floats({m, n}, 55)}, 1e-4);
    add(cases, what + "_rank3", Dense{},
        {random_floats({2, m, k}, 54), random_floats({k, n}, 51), random_floats({n}, 52)}, 1e-4);
    add(cases, what, DenseFilterGrad{}, {x, random_floats({m, n}, 53)}, 1e-4);
  }
  const auto pool = [&](const std::string& what, const Shape& x, Pool2d geometry) {
    const HostTensor image = random_whole<float>(x, 3, -4, 5);
    const std::vector<HostTensor> pooled = run_op(MaxPool{geometry}, {image});
    const HostTensor dy = random_floats(pooled[0].spec().shape, 4);
    add(cases, what, MaxPool{geometry}, {image});
    add(cases, what, MaxPoolGrad{geometry, x}, {dy, pooled[1]});
    add(cases, what + "_added", MaxPoolGrad{geometry, x}, {dy, pooled[1], random_floats(x, 6)});
    add(cases, what, AvgPool{geometry}, {random_floats(x, 5)});
    add(cases, what, AvgPoolGrad{geometry, x}, {dy});
  };
  pool("2x2", {2, 6, 8, 32}, {});
  pool("odd_channels", {2, 5, 7, 19}, {});
  pool("overlapping", {1, 9, 8, 3}, {{3, 2}, {2, 1}, {0, 0}});
  pool("padded", {2, 7, 7, 17}, {{3, 3}, {2, 2}, {1, 1}});
  pool("gaps", {1, 8, 9, 4}, {{2, 2}, {3, 3}, {0, 0}});
  pool("global", {3, 5, 4, 16}, {{5, 4}, {1, 1}, {0, 0}});
}

void add_elementwise_cases(std::vector<KernelCase>& cases) {
  for (int64_t n : kSizes) {
    const std::string size = std::to_string(n);
    for (int i = 0; i <= static_cast<int>(UnaryKind::kSign); ++i) {
      const auto kind = static_cast<UnaryKind>(i);
      // Limits operands to the domain of each function, with moderate values.
      const bool is_positive = kind == UnaryKind::kSqrt || kind == UnaryKind::kLog ||
                               kind == UnaryKind::kPower || kind == UnaryKind::kReciprocal;
      const float low = is_positive ? 0.25f : kind == UnaryKind::kExp ? -3 : -9, high = is_positive ? 4 : 3;
      const float alpha = kind == UnaryKind::kClip ? -0.75f : 0.3f, beta = 0.5f;
      add(cases, size, Unary{kind, alpha, beta}, {random_floats({n}, 6, low, high)});
      // y of sigmoid and tanh is bounded; others' saved tensor is not.
      add(cases, size, UnaryGrad{kind, alpha, beta},
          {random_floats({n}, 7), random_floats({n}, 8, is_positive ? 0.25f : -1, is_positive ? 4 : 1)});
    }
    add(cases, "square_" + size, Unary{UnaryKind::kPower, 2}, {random_floats({n}, 6)});
    add(cases, "cube_" + size, UnaryGrad{UnaryKind::kPower, 3},
        {random_floats({n}, 6), random_floats({n}, 7)});
    add(cases, size, Scale{-1.5f}, {random_floats({n}, 9)});
    add(cases, size, Dropout{0.3f, 12345678901234567890u}, {random_floats({n}, 10), step(3)});
    add(cases, size, RandomUniform{{n}, 12345678901234567890u}, {step(-3)});
    add(cases, "f32_i32_" + size, Cast{DType::kI32}, {random_floats({n}, 11, -900, 900)});
    add(cases, "f32_u8_" + size, Cast{DType::kU8}, {random_floats({n}, 12, -100, 400)});
    add(cases, "f32_f32_" + size, Cast{DType::kF32}, {random_floats({n}, 12)});
    add(cases, "three_" + size, Cast{DType::kF32},
        {random_floats({n}, 12), random_floats({3 * n}, 13), random_floats({2, n}, 14)});
    add(cases, "two_" + size, AddPairs{},
        {random_floats({n}, 12), random_floats({2, n}, 13), random_floats({n}, 14),
         random_floats({2, n}, 15)});
    add(cases, "i32_f32_" + size, Cast{DType::kF32}, {random_whole<int32_t>({n}, 13, -99999, 99999)});
    add(cases, "i32_u8_" + size, Cast{DType::kU8}, {random_whole<int32_t>({n}, 14, -100, 400)});
    add(cases, "u8_f32_" + size, Cast{DType::kF32}, {random_whole<uint8_t>({n}, 15, 0, 256)});
    add(cases, "u8_i32_" + size, Cast{DType::kI32}, {random_whole<uint8_t>({n}, 16, 0, 256)});
  }
  std::vector<HostTensor> many;  // more than one launch takes
  for (int64_t i = 0; i < 150; ++i) many.push_back(random_floats({i % 40}, static_cast<uint32_t>(i)));
  add(cases, "many", Cast{DType::kF32}, many);
  for (int64_t i = 0; i < 150; ++i) many.push_back(random_floats({i % 40}, static_cast<uint32_t>(200 + i)));
  add(cases, "many", AddPairs{}, many);
  const std::pair<Shape, Shape> pairs[] = {{{}, {}},
                                           {{1031}, {1031}},
                                           {{3, 5}, {}},
                                           {{}, {3, 5}},
                                           {{4, 6, 19}, {19}},
                                           {{19}, {4, 6, 19}},
                                           {{4, 6, 19}, {6, 1}},
                                           {{4, 1, 5}, {3, 1}},
                                           {{2, 3, 4}, {1}},
                                           {{1, 3, 4}, {3, 4}},
                                           {{2, 1, 3, 1}, {5, 1, 4}}};
  for (int i = 0; i <= static_cast<int>(BinaryKind::kMod); ++i) {
    const auto kind = static_cast<BinaryKind>(i);
    for (const auto& [a, b] : pairs) {
      const std::string shapes = to_string(a) + to_string(b);
      const float low = kind == BinaryKind::kPow ? 0.25f : -2;
      // Far from the steps of mod, where a rounding error would be a whole divisor.
      const HostTensor divisors = random_floats(b, 18, 0.5f, 2);
      const HostTensor left =
          kind == BinaryKind::kMod ? random_floats(a, 17, 0.01f, 0.49f) : random_floats(a, 17, low, 2);
      add(cases, shapes, Binary{kind}, {left, divisors});
      if (kind == BinaryKind::kPow) continue;
      add(cases, "i32_" + shapes, Binary{kind},
          {random_whole<int32_t>(a, 17, -9, 9), random_whole<int32_t>(b, 18, -3, 4)});
      add(cases, "u8_" + shapes, Binary{kind},
          {random_whole<uint8_t>(a, 17, 4, 9), random_whole<uint8_t>(b, 18, 0, 4)});
    }
  }
  for (int i = 0; i <= static_cast<int>(CompareKind::kLessEqual); ++i) {
    const Compare op{static_cast<CompareKind>(i)};
    for (const auto& [a, b] : pairs) {
      const std::string shapes = to_string(a) + to_string(b);
      add(cases, shapes, op, {random_floats(a, 17), random_floats(b, 18)});
      add(cases, "i32_" + shapes, op,
          {random_whole<int32_t>(a, 17, -2, 2), random_whole<int32_t>(b, 18, -2, 2)});
      add(cases, "u8_" + shapes, op,
          {random_whole<uint8_t>(a, 17, 0, 2), random_whole<uint8_t>(b, 18, 0, 2)});
    }
  }
  for (const auto& [a, b] : pairs) {
    const std::string shapes = to_string(a) + to_string(b);
    add(cases, shapes, Where{},
        {random_whole<uint8_t>(a, 17, 0, 2), random_floats(b, 18), random_floats({}, 19)});
    add(cases, "i32_" + shapes, Where{},
        {random_whole<uint8_t>(b, 17, 0, 2), random_whole<int32_t>(a, 18, -9, 9),
         random_whole<int32_t>(b, 19, 0, 9)});
    add(cases, "u8_" + shapes, Where{},
        {random_whole<uint8_t>({}, 17, 0, 2), random_whole<uint8_t>(a, 18, 0, 9),
         random_whole<uint8_t>(b, 19, 0, 9)});
  }
}

void add_movement_cases(std::vector<KernelCase>& cases) {
  const auto bytes = [](const Shape& shape) { return random_whole<uint8_t>(shape, 19, 0, 256); };
  const auto floats = [](const Shape& shape) { return random_floats(shape, 20); };
  const Shape table = {7, 3, 5};
  const HostTensor indices = random_whole<int32_t>({4, 6}, 21, 0, 7);
  add(cases, "", Reshape{{6, 4}}, {floats({2, 3, 4})});
  add(cases, "u8", Reshape{{5}}, {bytes({5, 1})});
  add(cases, "", CopyToDevice{}, {floats({2, 3})});
  add(cases, "scalar", Transpose{{}}, {floats({})});
  add(cases, "same", Transpose{{0, 1, 2}}, {floats({3, 4, 5})});
  add(cases, "matrix", Transpose{{1, 0}}, {floats({33, 17})});
  add(cases, "matrix_u8", Transpose{{1, 0}}, {bytes({33, 17})});
  add(cases, "channels_first", Transpose{{0, 3, 1, 2}}, {floats({2, 5, 6, 7})});
  add(cases, "channels_last", Transpose{{0, 2, 3, 1}}, {floats({2, 21, 5, 8})});
  add(cases, "slice", Slice{{0, 3}, {33, 17}}, {floats({33, 40})});
  add(cases, "rank6", Transpose{{4, 0, 5, 2, 1, 3}}, {floats({2, 3, 2, 4, 3, 2})});
  add(cases, "one", Concat{0}, {floats({3, 2})});
  add(cases, "first", Concat{0}, {floats({3, 2}), floats({0, 2}), floats({1, 2})});
  add(cases, "middle", Concat{1}, {floats({2, 3, 4}), floats({2, 1, 4}), floats({2, 5, 4})});
  add(cases, "columns", Concat{2}, {floats({3, 5, 1}), floats({3, 5, 2}), floats({3, 5, 1})});
  add(cases, "last_u8", Concat{1}, {bytes({5, 3}), bytes({5, 2})});
  add(cases, "whole", Slice{{0, 0}, {4, 5}}, {floats({4, 5})});
  add(cases, "inner", Slice{{1, 2, 0}, {2, 3, 1}}, {floats({4, 5, 6})});
  add(cases, "rows_u8", Slice{{3, 0}, {2, 9}}, {bytes({6, 9})});
  add(cases, "every_second", Slice{{1, 5, 0}, {2, 3, 2}, {2, -2, 1}}, {floats({4, 6, 2})});
  add(cases, "reversed_u8", Slice{{8}, {9}, {-1}}, {bytes({9})});
  add(cases, "every_second", SliceGrad{{1, 5, 0}, {4, 6, 2}, {2, -2, 1}}, {floats({2, 3, 2})});
  add(cases, "", SliceGrad{{1, 2, 0}, {4, 5, 6}}, {floats({2, 3, 1})});
  add(cases, "whole", SliceGrad{{0, 0}, {4, 5}}, {floats({4, 5})});
  add(cases, "", Gather{}, {floats(table), indices});
  add(cases, "vector_u8", Gather{}, {bytes({7}), indices});
  for (const int axis : {0, 1, 2}) {
    const Shape shape = {3, 4, 5};
    add(cases, fmt::format("{}", axis), ReplaceRows{axis},
        {random_floats(shape, 51), tensor<int32_t>({2}, {-1, 1}), random_floats(shape.with(axis, 2), 52)});
  }
  add(cases, "whole", ReplaceRows{1},
      {random_whole<int32_t>({2, 7}, 53, 0, 99), tensor<int32_t>({1}, {6}),
       random_whole<int32_t>({2, 1}, 54, 0, 99)});
  add(cases, "repeated", GatherGrad{table}, {floats({4, 6, 3, 5}), indices});
  const HostTensor order = random_whole<int32_t>({23}, 41, 0, 7);  // seven batches of 3 and two left over
  for (int32_t at : {0, 6, 7, 100, -1}) {
    add(cases, fmt::format("ordered_{}", at), TakeBatch{3}, {floats(table), step(at), order});
    add(cases, fmt::format("in_place_{}", at), TakeBatch{2}, {floats(table), step(at)});
  }
  add(cases, "images", TakeBatch{6, 1.0f / 255}, {bytes({7, 28, 28, 1}), step(2), order});
  add(cases, "odd_images", TakeBatch{6, 1.0f / 255}, {bytes({7, 3, 5}), step(2), order});
  add(cases, "bytes", TakeBatch{4}, {bytes({7, 5}), step(1), order});
  add(cases, "labels", TakeBatch{9}, {random_whole<int32_t>({7}, 42, -9, 9), step(1), order});
  add(cases, "scalar", BroadcastTo{{3, 4}}, {floats({})});
  add(cases, "bytes", BroadcastTo{{3, 4}}, {bytes({3, 1})});
  add(cases, "whole", BroadcastTo{{3, 4}}, {random_whole<int32_t>({4}, 30, -9, 9)});
  add(cases, "leading", BroadcastTo{{6, 3, 4}}, {floats({3, 4})});
  add(cases, "trailing", BroadcastTo{{2, 5, 4}}, {floats({5, 1})});
  add(cases, "", Fill{2.5f, {3, 7}}, {});
}

void add_statistics_cases(std::vector<KernelCase>& cases) {
  HostTensor infinite = random_floats({70}, 91), nan = random_floats({3000}, 92);
  infinite.data()[69] = -std::numeric_limits<float>::infinity();
  nan.data()[2999] = std::numeric_limits<float>::quiet_NaN();
  add(cases, "finite", AllFinite{}, {random_floats({7, 3}, 90), random_floats({}, 93)});
  add(cases, "infinite", AllFinite{}, {random_floats({7, 3}, 90), infinite});
  add(cases, "nan", AllFinite{}, {nan, random_floats({}, 93)});
  const std::pair<Shape, std::vector<int>> reductions[] = {{{}, {}},
                                                           {{5}, {0}},
                                                           {{1031}, {0}},
                                                           {{77, 19}, {0}},
                                                           {{19, 77}, {1}},
                                                           {{4, 5, 6}, {0, 1}},
                                                           {{4, 5, 6}, {1}},
                                                           {{4, 5, 6}, {0, 2}},
                                                           {{4, 5, 6}, {0, 1, 2}},
                                                           {{4, 5, 6}, {}},
                                                           {{4, 1, 6, 1}, {1, 2}},
                                                           {{2, 3, 2, 4, 3, 2}, {1, 3, 5}}};
  for (const auto& [shape, axes] : reductions) {
    const std::string what = fmt::format("{}_{}", to_string(shape), axes.size());
    for (ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMean, ReduceKind::kMax}) {
      add(cases, what, Reduce{kind, axes, false}, {random_floats(shape, 22)});
      add(cases, what + "_kept", Reduce{kind, axes, true}, {random_floats(shape, 23)});
    }
    const HostTensor x = random_whole<float>(shape, 24, -3, 4);
    HostTensor y = run_op(Reduce{ReduceKind::kMax, axes, true}, {x})[0];
    HostTensor dy = random_floats(y.spec().shape, 25);
    add(cases, what, ReduceMaxGrad{axes}, {x, std::move(y), std::move(dy)});
    for (int axis : axes) add(cases, fmt::format("{}_{}", what, axis), ArgMax{axis}, {x});
  }
  // Few rows, rows shorter and longer than a vector, more than one block of rows, one long row.
  for (const Shape& shape : {Shape{1, 1}, Shape{64, 10}, Shape{700, 10}, Shape{5, 33}, Shape{2, 5000}}) {
    const std::string what = to_string(shape);
    const HostTensor logits = random_floats(shape, 26, -20, 20);
    const HostTensor labels = random_whole<int32_t>({shape[0]}, 27, 0, static_cast<int>(shape[1]));
    add(cases, what, Softmax{}, {logits});
    add(cases, what, SoftmaxGrad{}, {random_floats(shape, 28), run_op(Softmax{}, {logits})[0]});
    add(cases, what, CrossEntropy{}, {logits, labels});
    add(cases, what, CrossEntropyGrad{}, {logits, labels, random_floats({shape[0]}, 29)});
    add(cases, what, Accuracy{}, {logits, labels});
  }
  add(cases, "rank3", Softmax{}, {random_floats({2, 3, 4}, 30)});
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  for (const Shape& mask : {Shape{1, 1, 5, 40}, Shape{3, 1, 1, 40}, Shape{3, 2, 5, 40}, Shape{40}}) {
    add(cases, "mask_" + to_string(mask), Softmax{.scale = 0.125f},
        {random_floats({3, 2, 5, 40}, 61), random_floats(mask, 62)});
  }
  add(cases, "scaled", SoftmaxGrad{0.125f},
      {random_floats({3, 40}, 63), random_floats({3, 40}, 64, 0, 0.1f)});
  add(cases, "masked", Softmax{.zero_nan_rows = true},
      {tensor<float>({2, 3}, {kMasked, kMasked, kMasked, 1, kMasked, 2})});
  // No exp of these logits is a float.
  for (const int64_t columns : {40, 43}) {
    const HostTensor logits = random_floats({6, columns}, 65), labels = random_whole<int32_t>({6}, 66, 0, 37);
    add(cases, fmt::format("padded_{}", columns), CrossEntropy{37}, {logits, labels});
    add(cases, fmt::format("padded_{}", columns), CrossEntropyGrad{37},
        {logits, labels, random_floats({6}, 67)});
  }
  add(cases, "large", CrossEntropy{},
      {tensor<float>({2, 3}, {1000, 0, -1000, 900, 950, 1000}), tensor<int32_t>({2}, {1, 2})});
  // {rows, terms, hidden, classes}: the conv net's head, one row, odd extents, several turns of a GPU's
  // blocks.
  for (const auto& [n, k, h, c] : {std::array<int64_t, 4>{64, 576, 64, 10},
                                   {1, 16, 16, 1},
                                   {13, 7, 5, 3},
                                   {70, 48, 128, 32},
                                   {3, 32, 32, 40},
                                   {1500, 32, 16, 10}}) {
    const HostTensor labels = random_whole<int32_t>({n}, 46, 0, static_cast<int>(c));
    add(cases, fmt::format("{}_{}_{}_{}", n, k, h, c), ClassifierHead{},
        {random_floats({n, k}, 41), random_floats({k, h}, 42, -0.2f, 0.2f), random_floats({h}, 43),
         random_floats({h, c}, 44), random_floats({c}, 45), labels, random_floats({n}, 47)},
        1e-4);
  }
  for (const Shape& shape : {Shape{3, 1}, Shape{65, 19}, Shape{2, 4, 5, 32}}) {
    const std::string what = to_string(shape);
    const Shape channels = {shape.last()};
    const HostTensor x = random_floats(shape, 31, 5, 9);
    const HostTensor gamma = random_floats(channels, 32), beta = random_floats(channels, 33);
    const HostTensor mean = random_floats(channels, 34, 6, 8), variance = random_floats(channels, 35, 1, 3);
    const HostTensor dy = random_floats(shape, 36), residual = random_floats(shape, 37);
    add(cases, what, BatchNorm{}, {x, gamma, beta}, 1e-4);
    add(cases, what, BatchNormGrad{}, {dy, x, gamma, mean, variance}, 1e-4);
    add(cases, what + "_relu", BatchNorm{1e-3f, true}, {x, gamma, beta}, 1e-4);
    add(cases, what + "_residual", BatchNorm{}, {x, gamma, beta, residual}, 1e-4);
    add(cases, what + "_residual_relu", BatchNorm{1e-3f, true}, {x, gamma, beta, residual}, 1e-4);
    add(cases, what + "_relu", BatchNormGrad{1e-3f, true}, {dy, x, gamma, mean, variance, beta}, 1e-4);
    add(cases, what + "_again", BatchNormGrad{1e-3f, true, false, true}, {dy, x, gamma, mean, variance, beta},
        1e-4);
    add(cases, what + "_residual", BatchNormGrad{1e-3f, true, true}, {dy, x, gamma, mean, variance, residual},
        1e-4);
    add(cases, what + "_branches", BatchNormGrad{1e-3f, true, true},
        {dy, x, gamma, mean, variance, residual, random_floats(shape, 38)}, 1e-4);
    add(cases, what, BatchNormStatistics{}, {x}, 1e-4);
    add(cases, what, BatchNormApply{}, {x, gamma, beta, mean, variance});
    add(cases, what + "_residual_relu", BatchNormApply{1e-3f, true},
        {x, gamma, beta, mean, variance, residual}, 1e-4);
    // Adds cases with normalized values in 8 bits.
    const HostTensor codes = random_whole<uint8_t>(shape, 39, 0, 256);
    add(cases, what + "_codes", BatchNormGrad{.compressed = true}, {dy, codes, gamma, mean, variance}, 1e-4);
    add(cases, what + "_relu_codes", BatchNormGrad{.relu = true, .compressed = true},
        {dy, codes, gamma, mean, variance, beta}, 1e-4);
    add(cases, what + "_again_codes", BatchNormGrad{.relu = true, .again = true, .compressed = true},
        {dy, codes, gamma, mean, variance, beta}, 1e-4);
    add(cases, what + "_residual_codes", BatchNormGrad{.relu = true, .residual = true, .compressed = true},
        {dy, codes, gamma, mean, variance, residual}, 1e-4);
    add(cases, what + "_branches_codes", BatchNormGrad{.relu = true, .residual = true, .compressed = true},
        {dy, codes, gamma, mean, variance, residual, random_floats(shape, 38)}, 1e-4);
    add(cases, what + "_codes", BatchNormApply{.compressed = true}, {codes, gamma, beta, mean, variance});
    add(cases, what + "_relu_codes", BatchNormApply{.relu = true, .compressed = true},
        {codes, gamma, beta, mean, variance});
    add(cases, what + "_to_codes", BatchNormApply{.compresses = true}, {x, gamma, beta, mean, variance});
    add(cases, what + "_residual_to_codes", BatchNormApply{.relu = true, .compresses = true},
        {x, gamma, beta, mean, variance, residual}, 1e-4);
  }
  for (const Shape& shape : {Shape{3, 1}, Shape{65, 19}, Shape{2, 4, 5, 32}}) {
    const HostTensor dy = random_floats(shape, 36), y = random_floats(shape, 37);
    add(cases, to_string(shape), BranchGrad{}, {dy, y}, 1e-4);
    add(cases, to_string(shape) + "_added", BranchGrad{}, {dy, y, random_floats(shape, 38)}, 1e-4);
  }
  // Results marked by bits, from one thread with eight channels to eight with one each.
  for (const Shape& shape : {Shape{3, 8}, Shape{65, 24}, Shape{2, 4, 5, 32}}) {
    const std::string what = to_string(shape);
    const Shape channels = {shape.last()};
    const HostTensor dy = random_floats(shape, 36);
    const HostTensor marks =
        random_whole<uint8_t>(shape.with(shape.rank() - 1, shape.last() / 8), 40, 0, 256);
    add(cases, what + "_marked", BranchGrad{true}, {dy, marks}, 1e-4);
    add(cases, what + "_marked_added", BranchGrad{true}, {dy, marks, random_floats(shape, 38)}, 1e-4);
    const std::vector<HostTensor> operands = {
        random_floats(shape, 31, 5, 9),    random_floats(channels, 32),       random_floats(channels, 33),
        random_floats(channels, 34, 6, 8), random_floats(channels, 35, 1, 3), random_floats(shape, 37)};
    add(cases, what + "_marks", BatchNormApply{.relu = true, .marks = true}, operands, 1e-4);
    add(cases, what + "_codes_and_marks", BatchNormApply{.compresses = true, .marks = true}, operands, 1e-4);
  }
  // {images, extent, channels before, channels after}
  for (const auto& [images, extent, k, c] :
       {std::array<int64_t, 4>{1, 3, 1, 2}, {2, 5, 3, 7}, {2, 8, 8, 32}, {3, 4, 40, 80}}) {
    const HostTensor g = random_floats({images, extent, extent, c}, 36);
    const HostTensor x = random_floats({images, extent, extent, k}, 37, 0, 2);
    const HostTensor gamma = random_floats({c}, 32), variance = random_floats({c}, 35, 1, 3);
    const HostTensor sums = run_op(Reduce{ReduceKind::kSum, {0, 1, 2}}, {g})[0];
    const std::string what = fmt::format("{}_{}_{}_{}", images, extent, k, c);
    add(cases, what, ConvNormGrad{}, {g, sums, x, random_floats({1, 1, k, c}, 39), gamma, variance}, 1e-3);
    const HostTensor beta = random_floats({c}, 33), mean = random_floats({c}, 34, -1, 1);
    const HostTensor by_result = random_floats({c, 1, 1, k}, 39);
    add(cases, what, ConvNormApply{}, {x, random_floats({1, 1, k, c}, 39), gamma, beta, mean, variance},
        1e-4);
    add(cases, what + "_relu_by_result", ConvNormApply{.relu = true, .filter_by_result = true},
        {x, by_result, gamma, beta, mean, variance}, 1e-4);
    add(cases, what + "_residual", ConvNormApply{.filter_by_result = true},
        {x, by_result, gamma, beta, mean, variance, g}, 1e-4);
    add(cases, what + "_residual_relu", ConvNormApply{.relu = true},
        {x, random_floats({1, 1, k, c}, 39), gamma, beta, mean, variance, g}, 1e-4);
    add(cases, what + "_by_result", ConvNormGrad{1e-3f, true},
        {g, sums, x, random_floats({c, 1, 1, k}, 39), gamma, variance}, 1e-3);
  }
  for (const Shape& shape : {Shape{7}, Shape{65, 19}, Shape{2, 3, 768}}) {
    const std::string what = to_string(shape);
    const Shape columns = {shape.last()};
    const std::vector<HostTensor> in = {random_floats(shape, 31, 5, 9), random_floats(columns, 32),
                                        random_floats(columns, 33)};
    const std::vector<HostTensor> out = run_op(LayerNorm{}, in);
    add(cases, what, LayerNorm{}, in, 1e-4);
    add(cases, what, LayerNormGrad{}, {random_floats(shape, 36), in[0], in[1], out[1], out[2]}, 1e-4);
    add(cases, what + "_added", LayerNormGrad{},
        {random_floats(shape, 36), in[0], in[1], out[1], out[2], random_floats(shape, 37)}, 1e-4);
  }
  for (int axis : {0, 1, 2}) {
    const std::string what = std::to_string(axis);
    add(cases, what, CumulativeSum{axis}, {random_floats({5, 5, 5}, 37)});
    add(cases, what + "_reverse", CumulativeSum{axis, true, true}, {random_floats({5, 5, 5}, 38)});
    add(cases, what + "_i32", CumulativeSum{axis, true}, {random_whole<int32_t>({4, 5, 3}, 39, -9, 9)});
  }
}

void add_update_cases(std::vector<KernelCase>& cases) {
  for (int64_t n : kSizes) {
    const std::string size = std::to_string(n);
    const HostTensor w = random_floats({n}, 37), g = random_floats({n}, 38), m = random_floats({n}, 39);
    const HostTensor square = random_floats({n}, 40, 0, 2);
    add(cases, size, SgdUpdate{}, {rate(0.1f), w, g});
    add(cases, "momentum_" + size, SgdUpdate{0.9f, false}, {rate(0.1f), w, g, m});
    add(cases, "nesterov_" + size, SgdUpdate{0.9f, true}, {rate(0.1f), w, g, m});
    add(cases, size, RmspropUpdate{}, {rate(0.1f), w, g, square});
    add(cases, size, AdamUpdate{}, {rate(0.1f), step(0), w, g, m, square});
    add(cases, "decay_" + size, AdamUpdate{0.7f, 0.9f, 1e-6f, 0.01f},
        {rate(0.1f), step(41), w, g, m, square});
    add(cases, size, MovingAverageUpdate{0.9f}, {w, g});
    add(cases, "two_" + size, MovingAverageUpdate{0.9f}, {w, g, m, square});
  }
  for (const int finite : {0, 1}) {
    for (const int32_t streak : {3, 4}) {
      add(cases, fmt::format("{}_{}", finite, streak), LossScaleUpdate{2, 0.5f, 5},
          {tensor<uint8_t>({}, {static_cast<uint8_t>(finite)}), rate(1024), step(streak), step(7)});
    }
  }
  // More variables than one launch on a GPU takes, of all sizes, one of them empty.
  std::vector<HostTensor> of_sgd = {rate(0.1f)}, of_momentum = of_sgd, of_rmsprop = of_sgd;
  std::vector<HostTensor> of_adam = {rate(0.1f), step(3)};
  for (uint32_t i = 0; i < 150; ++i) {
    const Shape shape = {(i * 37) % 100, i % 3 + 1};
    const HostTensor w = random_floats(shape, 200 + i), g = random_floats(shape, 400 + i);
    const HostTensor m = random_floats(shape, 600 + i), square = random_floats(shape, 800 + i, 0, 2);
    of_sgd.insert(of_sgd.end(), {w, g});
    of_momentum.insert(of_momentum.end(), {w, g, m});
    of_rmsprop.insert(of_rmsprop.end(), {w, g, square});
    of_adam.insert(of_adam.end(), {w, g, m, square});
  }
  add(cases, "many", SgdUpdate{0, false, 0.5f}, of_sgd);
  add(cases, "many", SgdUpdate{0.9f, true, 0.5f}, of_momentum);
  add(cases, "many", RmspropUpdate{0.9f, 1e-7f, 0.5f}, of_rmsprop);
  add(cases, "many", AdamUpdate{0.9f, 0.999f, 1e-8f, 0.01f, 0.5f}, of_adam);
  add(cases, "", CounterUpdate{}, {step(41)});
  add(cases, "losses", RowUpdate{},
      {step(16), random_floats({7}, 43), rate(0.5f), random_floats({5}, 44), rate(0.25f)});
  add(cases, "predictions", RowUpdate{},
      {step(-1), random_whole<int32_t>({4, 1031}, 45, 0, 10), random_whole<int32_t>({1031}, 46, 0, 10)});
  add(cases, "u8", RowUpdate{},
      {step(2), random_whole<uint8_t>({3, 5}, 47, 0, 9), random_whole<uint8_t>({5}, 48, 0, 9)});
  // Rows of 16 bytes, of 4 and of 1; more tables than one launch on a GPU takes.
  for (const int axis : {0, 1, 2}) {
    std::vector<HostTensor> tables = {tensor<int32_t>({2}, {1, -1})};
    for (uint32_t i = 0; i < 70; ++i) {
      const Shape shape = {5, 4, 3, i % 9};
      tables.insert(tables.end(),
                    {random_floats(shape, 1000 + i), random_floats(shape.with(axis, 2), 1100 + i)});
    }
    add(cases, fmt::format("axis_{}", axis), RowUpdate{axis}, tables);
  }
  add(cases, "u8_axis_1", RowUpdate{1},
      {tensor<int32_t>({2}, {0, 2}), random_whole<uint8_t>({2, 3, 5}, 49, 0, 9),
       random_whole<uint8_t>({2, 2, 5}, 50, 0, 9)});
}

}  // namespace headroom::test
