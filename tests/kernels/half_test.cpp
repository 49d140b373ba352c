// Floats stored in 16 bits: how they are rounded, and that kernels compute in f32 and round once.

#include "base/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/kernels/half_tensors.h"
#include "tests/kernels/heap_counter.h"
#include "tests/kernels/kernel_cases.h"

namespace headroom::test {
namespace {

TEST(Half, EveryStoredNumberComesBack) {
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const auto stored = static_cast<uint16_t>(bits);
    if (!std::isnan(float_of_f16(stored))) {
      EXPECT_EQ(f16_of(float_of_f16(stored)), stored);
    }
    if (!std::isnan(float_of_bf16(stored))) {
      EXPECT_EQ(bf16_of(float_of_bf16(stored)), stored);
    }
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    const auto check = [&](uint16_t stored, auto to_float, float largest) {
      if (std::abs(value) > largest) return;
      const auto error = [&](uint32_t other) {
        return std::abs(static_cast<double>(to_float(static_cast<uint16_t>(other))) -
                        static_cast<double>(value));
      };
      const double here = error(stored);
      for (const uint32_t neighbor : {stored + 1u, stored - 1u}) {
        const float there = to_float(static_cast<uint16_t>(neighbor));
        if (!std::isfinite(there) || std::signbit(there) != std::signbit(value)) continue;
        EXPECT_TRUE(here < error(neighbor) || (here == error(neighbor) && stored % 2 == 0)) << value;
      }
    };
    check(f16_of(value), float_of_f16, 65504);
    check(bf16_of(value), float_of_bf16, 3.3e38f);
  }
  EXPECT_EQ(f16_of(65520), 0x7c00);  // halfway to the next power of two: infinite
  EXPECT_EQ(f16_of(65519), 0x7bff);
  EXPECT_EQ(f16_of(0x1p-25f), 0);
  EXPECT_EQ(f16_of(-0.0f), 0x8000);
  EXPECT_EQ(bf16_of(1 + 0x1p-8f), bf16_of(1));
  EXPECT_TRUE(std::isnan(float_of_f16(f16_of(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(float_of_bf16(bf16_of(std::bit_cast<float>(0x7f800001u)))));
}

// For any op: the f32 kernel on the stored numbers, rounded once.
TEST(Half, KernelsRoundOnceWhatTheF32KernelGives) {
  for (const KernelCase& row : kernel_cases()) {
    if (is_update(row.op) || std::holds_alternative<TakeBatch>(row.op)) continue;
    for (const DType half : {DType::kBf16, DType::kF16}) {
      const std::vector<HostTensor> stored = stored_in(half, row.inputs);
      std::vector<HostTensor> whole;
      for (const HostTensor& input : stored) {
        whole.push_back(is_half(input.spec().dtype) ? widened(input) : input);
      }
      const std::vector<TensorSpec> f32_outputs = infer_outputs(row.op, specs_of(whole));
      const std::vector<TensorSpec> outputs = stored_in(half, f32_outputs);
      const std::vector<HostTensor> expected = run_as(row.op, whole, f32_outputs);
      const std::vector<HostTensor> got = run_as(row.op, stored, outputs);
      for (size_t i = 0; i < got.size(); ++i) {
        const bool is_real = f32_outputs[i].dtype == DType::kF32;
        EXPECT_TRUE(got[i].same_bytes(is_real ? stored_in(half, expected[i]) : expected[i])) << row.name;
        EXPECT_TRUE(got[i].guard_intact()) << row.name;
      }
    }
  }
}

TEST(Half, CastsRoundAndComeBack) {
  const HostTensor x = random_floats({1031}, 5);
  for (const DType half : {DType::kBf16, DType::kF16}) {
    const std::vector<HostTensor> stored = run_as(Cast{half}, {x}, {{half, {1031}}});
    EXPECT_TRUE(stored[0].same_bytes(stored_in(half, x)));
    EXPECT_TRUE(run_as(Cast{DType::kF32}, stored, {{DType::kF32, {1031}}})[0].same_bytes(widened(stored[0])));
  }
}

TEST(Half, OptimizersReadGradientsOfSixteenBits) {
  const int64_t n = 5000;  // more than a block
  const HostTensor w = random_floats({n}, 1), g = stored_in(DType::kF16, random_floats({n}, 2));
  const HostTensor m = random_floats({n}, 3), v = random_floats({n}, 4, 0, 2),
                   rate = tensor<float>({}, {0.1f});
  const HostTensor step = tensor<int32_t>({}, {3});
  const auto check = [&](const Op& op, std::vector<HostTensor> operands) {
    run_as(op, operands, {});
    std::vector<HostTensor> expected = {rate};
    if (operands.size() == 6) expected.push_back(step);
    expected.insert(expected.end(), {w, widened(g)});
    if (operands.size() > 3) expected.push_back(m);
    if (operands.size() > 4) expected.push_back(v);
    run_as(op, expected, {});
    const size_t changed = operands.size() == 6 ? 2 : 1;
    EXPECT_TRUE(operands[changed].same_bytes(expected[changed])) << op_name(op);
    EXPECT_FALSE(operands[changed].same_bytes(w)) << op_name(op);
  };
  check(SgdUpdate{}, {rate, w, g});
  check(SgdUpdate{0.9f}, {rate, w, g, m});
  check(AdamUpdate{}, {rate, step, w, g, m, v});
}

TEST(Half, AScaledUpdateMultipliesTheGradientOrLeavesTheStepOut) {
  const HostTensor w = random_floats({9}, 1), g = random_floats({9}, 2), m = random_floats({9}, 3);
  const HostTensor rate = tensor<float>({}, {0.1f}), none = tensor<float>({}, {0}),
                   half = tensor<float>({}, {0.5f});
  SgdUpdate op{0.9f};
  op.scaled = true;
  const std::vector<HostTensor> left_out = {rate, none, w, g, m};
  run_as(op, left_out, {});
  EXPECT_TRUE(left_out[2].same_bytes(w));
  EXPECT_TRUE(left_out[4].same_bytes(m));
  const std::vector<HostTensor> scaled = {rate, half, w, g, m}, by_op = {rate, w, g, m};
  run_as(op, scaled, {});
  run_as(SgdUpdate{0.9f, false, 0.5f}, by_op, {});
  EXPECT_TRUE(scaled[2].same_bytes(by_op[1]));
  EXPECT_TRUE(scaled[4].same_bytes(by_op[3]));
}

TEST(Half, AKernelAllocatesNothingAfterItsFirstRun) {
  if (!HeapCounter::works()) GTEST_SKIP() << "a sanitizer owns the heap, or the C library is not glibc";
  const std::vector<TensorSpec> inputs = {{DType::kBf16, {64, 64}}, {DType::kBf16, {64, 64}}};
  const std::vector<HostTensor> tensors(inputs.begin(), inputs.end());
  const std::vector<HostTensor> results = {HostTensor({DType::kBf16, {64, 64}})};
  const std::unique_ptr<Kernel> kernel = make_cpu_kernel(MatMul{}, inputs, specs_of(results));
  const HostTensor workspace({DType::kU8, {kernel->workspace_bytes()}});
  const std::vector<TensorView> in = views_of(tensors), out = views_of(results);
  kernel->run(in, out, workspace.data<void>(), {});
  const HeapCounter counter;
  kernel->run(in, out, workspace.data<void>(), {});
  EXPECT_EQ(counter.allocations(), 0);
}

}  // namespace
}  // namespace headroom::test
