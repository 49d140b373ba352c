#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tests/kernels/kernel_cases.h"

namespace headroom::test {
namespace {

KernelCase row(std::string name, const Op& op, std::vector<HostTensor> inputs, double tolerance = 1e-5) {
  return {std::string(op_name(op)) + "_" + name, op, std::move(inputs), tolerance};
}

}  // namespace

std::vector<KernelCase> large_kernel_cases() {
  std::vector<KernelCase> cases;
  const auto floats = [](const Shape& shape, uint32_t seed) { return random_floats(shape, seed); };
  constexpr int64_t kMany = 3'000'001;
  cases.push_back(row("many", Unary{UnaryKind::kRelu}, {floats({kMany}, 1)}));
  cases.push_back(row("many", Dropout{0.3f, 7}, {floats({kMany}, 2), tensor<int32_t>({}, {5})}));
  const HostTensor image = floats({16, 26, 26, 32}, 3);
  cases.push_back(row("bias", Binary{BinaryKind::kAdd}, {image, floats({32}, 4)}));
  cases.push_back(row("rows", Binary{BinaryKind::kMul}, {image, floats({16, 26, 26, 1}, 5)}));
  for (const auto& [shape, axes] :
       std::vector<std::pair<Shape, std::vector<int>>>{{{300'001}, {0}},
                                                       {{70'000, 10}, {0}},
                                                       {{33, 9'000}, {1}},
                                                       {{3, 4'000, 8}, {0, 2}},
                                                       {{16, 26, 26, 32}, {0, 1, 2}},
                                                       {{64, 40'000}, {0}}}) {
    const HostTensor x = floats(shape, 6);
    for (ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMean, ReduceKind::kMax}) {
      cases.push_back(row(to_string(shape), Reduce{kind, axes}, {x}));
    }
    const HostTensor whole = random_whole<float>(shape, 7, -3, 4);
    const HostTensor y = run_op(Reduce{ReduceKind::kMax, axes, true}, {whole})[0];
    cases.push_back(row(to_string(shape), ReduceMaxGrad{axes}, {whole, y, floats(y.spec().shape, 8)}));
    cases.push_back(row(to_string(shape), ArgMax{axes[0]}, {whole}));
  }
  for (const Shape& shape : {Shape{30'000, 10}, Shape{3'000, 300}, Shape{5, 1'025}}) {
    const HostTensor logits = random_floats(shape, 9, -20, 20);
    const HostTensor labels = random_whole<int32_t>({shape[0]}, 10, 0, static_cast<int>(shape[1]));
    const std::string what = to_string(shape);
    cases.push_back(row(what, Accuracy{}, {logits, labels}));
    cases.push_back(row(what, Softmax{}, {logits}));
    cases.push_back(row(what, CrossEntropy{}, {logits, labels}));
    cases.push_back(row(what, CrossEntropyGrad{}, {logits, labels, floats({shape[0]}, 11)}));
  }
  const HostTensor indices = random_whole<int32_t>({64, 5}, 12, 0, 1'000);
  cases.push_back(row("images", Gather{}, {random_whole<uint8_t>({1'000, 28, 28, 1}, 13, 0, 256), indices}));
  cases.push_back(row("words", GatherGrad{{1'000, 70}}, {floats({64, 5, 70}, 14), indices}));
  const HostTensor many = random_whole<int32_t>({8, 512}, 27, 0, 40'000);
  for (const int64_t columns : {24, 5})
    cases.push_back(row("sorted", GatherGrad{{40'000, columns}}, {floats({8, 512, columns}, 28), many}));
  // One row of few has most of the terms, as padding does, and one none.
  HostTensor padding = random_whole<int32_t>({4'100}, 29, 0, 3);
  std::fill_n(padding.data<int32_t>() + 700, 3'000, 4);
  for (const int64_t columns : {24, 5}) {
    cases.push_back(row("padding", GatherGrad{{5, columns}}, {floats({4'100, columns}, 30), padding},
                        1e-4));  // sums of 3,000
  }
  cases.push_back(row("tiles", Transpose{{0, 3, 1, 2}}, {floats({3, 33, 40, 64}, 15)}));
  cases.push_back(row("tiles", Transpose{{2, 1, 0}}, {random_whole<uint8_t>({70, 3, 90}, 16, 0, 256)}));
  cases.push_back(row("ten", Concat{1}, std::vector<HostTensor>(10, floats({50, 8}, 17))));
  cases.push_back(row("vectors", Slice{{1, 4}, {60, 32}}, {floats({64, 64}, 18)}));
  for (const Shape& shape : {Shape{20'000, 5}, Shape{16, 26, 26, 96}}) {
    const HostTensor x = random_floats(shape, 19, 5, 9);
    const Shape channels = {shape.last()};
    const HostTensor gamma = floats(channels, 20), beta = floats(channels, 21);
    const HostTensor mean = random_floats(channels, 22, 6, 8), variance = random_floats(channels, 23, 1, 3);
    const std::string what = to_string(shape);
    cases.push_back(row(what, BatchNorm{}, {x, gamma, beta}, 1e-4));
    // Sums of up to 20,000 products, each rounded to a float, by which dgamma differs.
    cases.push_back(row(what, BatchNormGrad{}, {floats(shape, 24), x, gamma, mean, variance}, 1e-3));
    const HostTensor dy = floats(shape, 25), residual = floats(shape, 26);
    cases.push_back(row(what + "_residual_relu", BatchNorm{1e-3f, true}, {x, gamma, beta, residual}, 1e-4));
    cases.push_back(row(what + "_residual", BatchNormGrad{1e-3f, true, true},
                        {dy, x, gamma, mean, variance, residual}, 1e-3));
    cases.push_back(row(what + "_branches", BatchNormGrad{1e-3f, true, true},
                        {dy, x, gamma, mean, variance, residual, floats(shape, 31)}, 1e-3));
    cases.push_back(row(what, BatchNormApply{}, {x, gamma, beta, mean, variance}));
    cases.push_back(row(what + "_added", BranchGrad{}, {dy, residual, floats(shape, 31)}, 1e-3));
  }
  // {images, extent, channels before, channels after}: several parts of the pixels, and partial tiles. The
  // means of x are subtracted from sums of up to 4,096 products, which leaves their rounding.
  for (const auto& [images, extent, k, c] :
       {std::array<int64_t, 4>{4, 32, 64, 256}, {2, 33, 72, 200}, {8, 32, 8, 16}}) {
    const HostTensor g = floats({images, extent, extent, c}, 32);
    const HostTensor sums = run_op(Reduce{ReduceKind::kSum, {0, 1, 2}}, {g})[0];
    const HostTensor x = random_floats({images, extent, extent, k}, 33, 0, 2);
    cases.push_back(row(fmt::format("{}_{}_{}_{}", images, extent, k, c), ConvNormGrad{1e-3f, true},
                        {g, sums, x, floats({c, 1, 1, k}, 34), floats({c}, 35), random_floats({c}, 36, 1, 3)},
                        1e-2));
  }
  return cases;
}

}  // namespace headroom::test
