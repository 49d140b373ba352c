// Kernels on the CPU give the same bits on any number of threads.
#include <gtest/gtest.h>

#include "tests/kernels/conv_cases.h"
#include "tests/kernels/host_tensor.h"

namespace headroom::test {
namespace {

// The op's outputs, computed on the pool's threads or on the caller's.
std::vector<HostTensor> outputs_on(ThreadPool* threads, const Op& op, const std::vector<HostTensor>& inputs) {
  std::vector<HostTensor> outputs;
  for (const TensorSpec& spec : infer_outputs(op, specs_of(inputs))) outputs.emplace_back(spec);
  KernelSettings settings;
  settings.threads = threads;
  const std::unique_ptr<Kernel> kernel = make_cpu_kernel(op, specs_of(inputs), specs_of(outputs), settings);
  const std::unique_ptr<Kernel> alone = make_cpu_kernel(op, specs_of(inputs), specs_of(outputs));
  EXPECT_EQ(kernel->workspace_bytes(), alone->workspace_bytes()) << "a plan would depend on the threads";
  const HostTensor workspace({DType::kU8, {kernel->workspace_bytes()}});
  kernel->run(views_of(inputs), views_of(outputs), workspace.data<void>(), {});
  EXPECT_TRUE(workspace.guard_intact());
  return outputs;
}

// Returns the outputs.
std::vector<HostTensor> expect_same_bits(const Op& op, const std::vector<HostTensor>& inputs) {
  const std::vector<HostTensor> expected = outputs_on(nullptr, op, inputs);
  for (const int count : {2, 5}) {
    ThreadPool threads(count);
    const std::vector<HostTensor> outputs = outputs_on(&threads, op, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_TRUE(outputs[i].same_bytes(expected[i])) << op_name(op) << " output " << i << ", " << count;
    }
  }
  return expected;
}

class ConvolutionThreads : public testing::TestWithParam<ConvCase> {};

TEST_P(ConvolutionThreads, GiveTheSameBits) {
  const ConvCase& row = GetParam();
  if (row.x[0] == 0) return;
  const Shape x_shape{row.x[0] + 17, row.x[1], row.x[2], row.x[3]};
  const HostTensor x = random_floats(x_shape, 1), filter = random_floats(row.filter, 2);
  expect_same_bits(row.conv, {x, filter});
  if (!row.pool) return;
  const ConvBlock block{row.conv, row.pool};
  const HostTensor bias = random_floats({row.filter[3]}, 3);
  const std::vector<HostTensor> forward = expect_same_bits(block, {x, filter, bias});
  const HostTensor dy = random_floats(forward[0].spec().shape, 4);
  expect_same_bits(ConvBlockInputGrad{block, x_shape}, {dy, forward[1], filter});
  expect_same_bits(ConvBlockFilterGrad{block, row.filter}, {x, dy, forward[1]});
}

INSTANTIATE_TEST_SUITE_P(Table, ConvolutionThreads, testing::ValuesIn(kConvCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(ProductThreads, GiveTheSameBitsForEveryLayoutOfOperands) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const HostTensor a = random_floats(transpose_a ? Shape{170, 203} : Shape{203, 170}, 5);
      const HostTensor b = random_floats(transpose_b ? Shape{131, 170} : Shape{170, 131}, 6);
      expect_same_bits(MatMul{transpose_a, transpose_b}, {a, b});
    }
  }
  expect_same_bits(MatMul{}, {random_floats({2, 150, 170}, 7), random_floats({2, 170, 131}, 8)});
}

TEST(AttentionThreads, GiveTheSameBits) {
  const HostTensor q = random_floats({2, 70, 3, 16}, 9), k = random_floats({2, 90, 3, 16}, 10),
                   v = random_floats({2, 90, 3, 16}, 11), mask = random_floats({2, 1, 70, 90}, 12);
  const HostTensor tiles = run_op(MaskTiles{{2, 3, 70, 90}}, {mask})[0];
  const std::vector<HostTensor> forward = expect_same_bits(Attention{.scale = 0.25f}, {q, k, v, mask, tiles});
  const HostTensor dy = random_floats({2, 70, 3, 16}, 13);
  expect_same_bits(AttentionGrad{.scale = 0.25f}, {dy, q, k, v, forward[0], forward[1], mask, tiles});
}

}  // namespace
}  // namespace headroom::test
