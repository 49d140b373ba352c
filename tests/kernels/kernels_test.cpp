#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/errors.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/reference.h"

namespace headroom::test {
namespace {

constexpr float kQuietNan = std::numeric_limits<float>::quiet_NaN();

std::string failure_of(const Op& op, const std::vector<HostTensor>& inputs) {
  try {
    run_op(op, inputs);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "none";
}

TEST(Indices, OutsideTheTableAreErrorsThatSayWhichAndWhere) {
  const HostTensor table = random_floats({5, 2}, 1), dy = random_floats({3, 2}, 2);
  for (int32_t bad : {5, -1, std::numeric_limits<int32_t>::min()}) {
    const HostTensor indices = tensor<int32_t>({3}, {0, 4, bad});
    const std::string said = "index " + std::to_string(bad) + " at position 2 is outside [0, 5)";
    EXPECT_NE(failure_of(Gather{}, {table, indices}).find("gather failed"), std::string::npos);
    EXPECT_NE(failure_of(Gather{}, {table, indices}).find(said), std::string::npos);
    EXPECT_NE(failure_of(GatherGrad{{5, 2}}, {dy, indices}).find(said), std::string::npos);
    const HostTensor order = tensor<int32_t>({6}, {0, 1, 2, 0, 4, bad}), second = tensor<int32_t>({}, {1});
    const std::string row = "row " + std::to_string(bad) + " at position 2 is outside [0, 5)";
    EXPECT_NE(failure_of(TakeBatch{3}, {table, second, order}).find(row), std::string::npos);
  }
}

TEST(Labels, OutsideTheClassesAreErrorsBeforeAnythingIsWritten) {
  const HostTensor logits = random_floats({3, 4}, 1), dloss = random_floats({3}, 2);
  const HostTensor labels = tensor<int32_t>({3}, {0, 4, 3});
  const std::string said = "label 4 at position 1 is outside [0, 4)";
  EXPECT_NE(failure_of(CrossEntropy{}, {logits, labels}).find(said), std::string::npos);
  EXPECT_NE(failure_of(CrossEntropyGrad{}, {logits, labels, dloss}).find(said), std::string::npos);

  const std::vector<HostTensor> memory = {logits, labels, dloss};
  const std::vector<TensorSpec> specs = specs_of(memory);
  const auto kernel = make_cpu_kernel(CrossEntropyGrad{}, specs, std::vector{specs[0]});
  const std::vector<TensorView> in_place = {memory[0].view()};
  EXPECT_THROW(kernel->run(views_of(memory), in_place, nullptr, {}), DeviceError);
  EXPECT_TRUE(memory[0].same_bytes(logits));
}

TEST(Maxima, OfANanAreNanAtAnyPosition) {
  for (int64_t position = 0; position < 40; ++position) {
    HostTensor x = random_floats({40}, 1);
    x.data()[position] = kQuietNan;
    EXPECT_TRUE(std::isnan(run_op(Reduce{ReduceKind::kMax, {0}}, {x})[0].data()[0])) << position;
    EXPECT_EQ(run_op(ArgMax{0}, {x})[0].data<int32_t>()[0], position);
    const HostTensor column = run_op(Reshape{{40, 1, 1}}, {x})[0];
    const HostTensor wide = run_op(BroadcastTo{{40, 1, 20}}, {column})[0];
    EXPECT_TRUE(std::isnan(run_op(Reduce{ReduceKind::kMax, {0}}, {wide})[0].data()[7])) << position;
    const HostTensor image = run_op(Reshape{{1, 40, 1, 20}}, {wide})[0];
    const std::vector<HostTensor> pooled = run_op(MaxPool{{{40, 1}, {1, 1}, {0, 0}}}, {image});
    EXPECT_TRUE(std::isnan(pooled[0].data()[7])) << position;
    EXPECT_EQ(pooled[1].data<uint8_t>()[7], position);
  }
}

TEST(MaxPool, WorksWithoutItsIndex) {
  const HostTensor x = random_floats({2, 6, 6, 19}, 1);
  const std::vector<HostTensor> both = run_op(MaxPool{}, {x});
  const HostTensor y(both[0].spec());
  const std::vector<TensorSpec> specs = specs_of(both);
  const auto kernel = make_cpu_kernel(MaxPool{}, std::vector{x.spec()}, specs);
  const std::vector<TensorView> outputs = {y.view(), {nullptr, specs[1]}};
  kernel->run(std::vector{x.view()}, outputs, nullptr, {});
  EXPECT_TRUE(y.same_bytes(both[0]));
}

// A float of 1e8 takes no more ones: neighbors are 8 apart.
TEST(Sums, KeepSmallNumbersBesideALargeOne) {
  constexpr int64_t kCount = 65536;
  HostTensor x = run_op(Fill{1, {kCount, 2}}, {})[0];
  x.data()[1] = 1e8f;
  EXPECT_EQ(run_op(Reduce{ReduceKind::kSum, {0}}, {x})[0].data()[1], 1e8f + kCount);
  EXPECT_EQ(run_op(Reduce{ReduceKind::kSum, {0, 1}}, {x})[0].data()[0], 1e8f + 2 * kCount);
}

TEST(Softmax, RowsSumToOneHoweverLargeTheLogits) {
  const HostTensor y = run_op(Softmax{}, {tensor<float>({2, 3}, {1e30f, 0, -1e30f, 100, 100, 100})})[0];
  EXPECT_EQ(y.values()[0], 1);
  // The smallest exp of some vector units is a denormal, not 0.
  EXPECT_NEAR(y.values()[2], 0, 1e-30);
  EXPECT_NEAR(y.values()[4], 1.0 / 3, 1e-6);
}

TEST(Softmax, OfARowThatIsMaskedThroughoutIsZeroWhereWanted) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  const HostTensor x = tensor<float>({2, 2}, {kMasked, kMasked, 5, kMasked});
  EXPECT_EQ(run_op(Softmax{.zero_nan_rows = true}, {x})[0].values(), (std::vector<double>{0, 0, 1, 0}));
  EXPECT_TRUE(std::isnan(run_op(Softmax{}, {x})[0].values()[0]));
}

TEST(EmptyTensors, Work) {
  const HostTensor none({DType::kF32, {0, 4}}), images({DType::kF32, {0, 4, 4, 3}}),
      labels({DType::kI32, {0}});
  const HostTensor step = tensor<int32_t>({}, {0}), rate = tensor<float>({}, {0.1f});
  const HostTensor none_deep({DType::kF32, {4, 0}}), row({DType::kF32, {4}}), loss({DType::kF32, {0}});
  EXPECT_EQ(run_op(Unary{UnaryKind::kGelu}, {none})[0].elements(), 0);
  EXPECT_EQ(run_op(Binary{BinaryKind::kAdd}, {none, row})[0].elements(), 0);
  EXPECT_EQ(run_op(Cast{DType::kU8}, {none})[0].elements(), 0);
  EXPECT_EQ(run_op(Dropout{}, {none, step})[0].elements(), 0);
  EXPECT_EQ(run_op(Reshape{{4, 0}}, {none})[0].elements(), 0);
  EXPECT_EQ(run_op(Transpose{{1, 0}}, {none})[0].elements(), 0);
  EXPECT_EQ(run_op(Concat{0}, {none, none})[0].elements(), 0);
  EXPECT_EQ(run_op(Slice{{0, 1}, {0, 2}}, {none})[0].elements(), 0);
  EXPECT_EQ(run_op(Gather{}, {none_deep, labels})[0].elements(), 0);
  EXPECT_EQ(run_op(MaxPool{}, {images})[0].elements(), 0);
  EXPECT_EQ(run_op(AvgPool{}, {images})[0].elements(), 0);
  EXPECT_EQ(run_op(Softmax{}, {none})[0].elements(), 0);
  EXPECT_EQ(run_op(Softmax{}, {none_deep})[0].elements(), 0);
  EXPECT_EQ(run_op(CrossEntropy{}, {none, labels})[0].elements(), 0);
  EXPECT_EQ(run_op(CrossEntropyGrad{}, {none, labels, loss})[0].elements(), 0);
  EXPECT_EQ(run_op(MatMul{}, {none, HostTensor({DType::kF32, {4, 3}})})[0].elements(), 0);
  EXPECT_TRUE(run_op(SgdUpdate{}, {rate, none, none}).empty());
  // A sum of no terms is zero, not garbage.
  EXPECT_EQ(run_op(MatMul{}, {none_deep, none})[0].values(), std::vector<double>(16, 0));
  EXPECT_EQ(run_op(Reduce{ReduceKind::kSum, {0}}, {none})[0].values(), std::vector<double>(4, 0));
  EXPECT_EQ(run_op(GatherGrad{{3, 4}}, {none, labels})[0].values(), std::vector<double>(12, 0));
  EXPECT_EQ(run_op(SliceGrad{{0, 0}, {2, 4}}, {none})[0].values(), std::vector<double>(8, 0));
}

// Compares twenty consecutive updates with double: the kept state is as exact as one step.
TEST(Updates, FollowTheirDefinitionOverManySteps) {
  struct Row {
    Op op;
    int states;
    bool counts_steps;
  };
  for (const Row& row : {Row{SgdUpdate{0.9f, false}, 1, false}, Row{SgdUpdate{0.9f, true}, 1, false},
                         Row{RmspropUpdate{}, 1, false}, Row{AdamUpdate{}, 2, true},
                         Row{AdamUpdate{0.7f, 0.9f, 1e-8f, 0.05f}, 2, true}}) {
    const Shape shape = {3, 11};
    std::vector<HostTensor> inputs = {tensor<float>({}, {0.01f})};
    if (row.counts_steps) inputs.push_back(tensor<int32_t>({}, {0}));
    const size_t w = inputs.size();
    for (uint32_t i = 1; i <= 2; ++i) inputs.push_back(random_floats(shape, i));
    for (int i = 0; i < row.states; ++i) inputs.push_back(tensor<float>(shape, std::vector<float>(33)));
    std::vector<Values> expected;
    for (const HostTensor& input : inputs) expected.push_back({input.spec(), input.values()});
    for (uint32_t step = 0; step < 20; ++step) {
      const HostTensor g = random_floats(shape, 100 + step);
      inputs[w + 1] = g;
      expected[w + 1].data = g.values();
      if (row.counts_steps) {
        inputs[1].data<int32_t>()[0] = static_cast<int32_t>(step);
        expected[1].data[0] = step;
      }
      run_op(row.op, inputs);
      const std::vector<Values> changed = reference(row.op, expected);
      const std::vector<int> mutated = mutated_inputs(row.op, inputs.size());
      for (size_t i = 0; i < mutated.size(); ++i) expected[static_cast<size_t>(mutated[i])] = changed[i];
    }
    const std::vector<double> got = inputs[w].values();
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[w].data[i], 2e-5) << op_name(row.op) << ", element " << i;
    }
  }
}

TEST(BatchNorm, LeavesEachChannelWithMeanBetaAndDeviationGamma) {
  constexpr int64_t kRows = 500, kChannels = 3;
  const HostTensor gamma = tensor<float>({kChannels}, {1, 2, 0.5f}),
                   beta = tensor<float>({kChannels}, {0, -3, 7});
  // Far from zero, where a variance from the mean of squares would be noise.
  const HostTensor x = random_floats({kRows, kChannels}, 3, 1000, 1004);
  const std::vector<double> y = run_op(BatchNorm{}, {x, gamma, beta})[0].values();
  for (size_t c = 0; c < kChannels; ++c) {
    double mean = 0, square = 0;
    for (size_t row = 0; row < kRows; ++row) mean += y[row * kChannels + c] / kRows;
    for (size_t row = 0; row < kRows; ++row) square += std::pow(y[row * kChannels + c] - mean, 2) / kRows;
    EXPECT_NEAR(mean, beta.values()[c], 1e-3);
    EXPECT_NEAR(std::sqrt(square), gamma.values()[c], 2e-3);
  }
}

}  // namespace
}  // namespace headroom::test
