// Compares the kernels for an NVIDIA GPU with the CPU's, on every row of the table and on rows large enough
// to be split between blocks.
#include "kernels/cuda/cuda_kernels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "base/errors.h"
#include "device/faulty/faulty_device.h"
#include "device/host/cpu_device.h"
#include "tests/kernels/cuda_run.h"
#include "tests/kernels/kernel_cases.h"
#include "tests/require_cuda.h"

namespace headroom::test {
namespace {

// These move values, pick them, or compute each by one operation in the CPU's order: no bit may differ.
const std::set<std::string_view> kExact = {
    "relu",          "relu_grad",    "scale",          "add",        "sub",       "mul",      "div",
    "cast",          "dropout",      "reshape",        "transpose",  "concat",    "slice",    "slice_grad",
    "gather",        "broadcast_to", "fill",           "max",        "argmax",    "accuracy", "max_pool",
    "max_pool_grad", "avg_pool",     "counter_update", "take_batch", "row_update"};

// These read 16 bytes at a time at any address: the runtime aligns every tensor to 256.
const std::set<std::string_view> kAlignedOnly = {"classifier_head"};

// These multiply only 16-bit operands, on tensor cores: cuda_half_test.cpp runs them.
const std::set<std::string_view> kHalvesAlone = {"attention", "attention_grad"};

KernelCase row(std::string_view what, const Op& op, std::vector<HostTensor> inputs) {
  return {fmt::format("{}_{}", op_name(op), what), op, std::move(inputs)};
}

class CudaKernelsTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    device_ = make_cuda_device({});
    device_->initialize();
  }

  // Returns the outputs, then the inputs after the run.
  std::vector<HostTensor> run(const Op& op, const std::vector<HostTensor>& inputs, const CudaRun& way = {}) {
    const std::vector<HostTensor> memory = inputs;
    std::vector<HostTensor> results = run_on_cuda(*device_, op, memory, {.math = Math::kF32}, way);
    results.insert(results.end(), memory.begin(), memory.end());
    return results;
  }

  // The table's tolerances are a kernel's distance from sums in double: here two kernels, which add in
  // different orders and use exp, tanh and erf of different libraries, both have that error.
  void expect_as_on_the_cpu(const KernelCase& row, const CudaRun& way = {}) {
    const std::vector<HostTensor> on_cpu = row.inputs;
    std::vector<HostTensor> expected = run_op(row.op, on_cpu);
    expected.insert(expected.end(), on_cpu.begin(), on_cpu.end());
    const std::vector<HostTensor> results = run(row.op, row.inputs, way);
    const bool exact = kExact.contains(op_name(row.op));
    ASSERT_EQ(results.size(), expected.size());
    for (size_t r = 0; r < results.size(); ++r) {
      ASSERT_EQ(results[r].spec(), expected[r].spec());
      if (results[r].same_bytes(expected[r])) continue;
      const std::vector<double> got = results[r].values(), want = expected[r].values();
      for (size_t i = 0; i < got.size(); ++i) {
        if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
        const bool close = !exact && results[r].spec().dtype == DType::kF32 &&
                           std::abs(got[i] - want[i]) <= row.tolerance * std::max(1.0, std::abs(want[i]));
        ASSERT_TRUE(close) << "result " << r << ", element " << i << ": " << got[i] << ", on the CPU "
                           << want[i];
      }
    }
  }

  void for_each_case(const std::function<void(const KernelCase&)>& check) {
    for (const auto& cases : {kernel_cases(), large_kernel_cases()}) {
      for (const KernelCase& row : cases) {
        if (kHalvesAlone.contains(op_name(row.op))) continue;
        SCOPED_TRACE(row.name);
        check(row);
      }
    }
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CudaKernelsTest, AgreeWithTheCpu) {
  for_each_case([&](const KernelCase& row) { expect_as_on_the_cpu(row); });
}

TEST_F(CudaKernelsTest, AgreeWithTheCpuWhereNoVectorAccessIsAligned) {
  for_each_case([&](const KernelCase& row) {
    if (!kAlignedOnly.contains(op_name(row.op))) expect_as_on_the_cpu(row, {.shift = 1});
  });
}

TEST_F(CudaKernelsTest, AgreeWithTheCpuOnNan) {
  for_each_case([&](const KernelCase& row) {
    // The later operands repeat these for other variables.
    for (size_t i = 0; i < std::min<size_t>(6, row.inputs.size()); ++i) {
      if (row.inputs[i].spec().dtype != DType::kF32 || row.inputs[i].elements() == 0) continue;
      SCOPED_TRACE(fmt::format("operand {}", i));
      KernelCase broken = row;
      broken.inputs[i].data()[row.inputs[i].elements() / 2] = std::numeric_limits<float>::quiet_NaN();
      expect_as_on_the_cpu(broken);
    }
  });
}

TEST_F(CudaKernelsTest, GiveTheSameBitsWhateverTheMemoryHeldAndWhenRecorded) {
  for_each_case([&](const KernelCase& row) {
    const std::vector<HostTensor> first = run(row.op, row.inputs);
    const std::vector<HostTensor> second = run(row.op, row.inputs, {.garbage = 0xFF, .recorded = true});
    for (size_t r = 0; r < first.size(); ++r) EXPECT_TRUE(first[r].same_bytes(second[r])) << "result " << r;
  });
}

TEST_F(CudaKernelsTest, GiveTheSameBitsInPlace) {
  for_each_case([&](const KernelCase& row) {
    const std::vector<TensorSpec> inputs = specs_of(row.inputs), outputs = infer_outputs(row.op, inputs);
    bool is_shared = false;
    for (size_t o = 0; o < outputs.size(); ++o)
      is_shared = is_shared || in_place_input(row.op, inputs, outputs[o], o) >= 0;
    if (!is_shared) return;
    const std::vector<HostTensor> apart = run(row.op, row.inputs);
    const std::vector<HostTensor> shared = run(row.op, row.inputs, {.in_place = true});
    for (size_t o = 0; o < apart.size(); ++o) {
      EXPECT_TRUE(shared[o].same_bytes(apart[o])) << "result " << o;
    }
  });
}

TEST_F(CudaKernelsTest, TakeEmptyTensors) {
  const HostTensor none({DType::kF32, {0, 4}}), deep({DType::kF32, {4, 0}}), row4 = random_floats({4}, 1);
  const HostTensor images({DType::kF32, {0, 4, 4, 3}}), indices({DType::kI32, {0}}), loss({DType::kF32, {0}});
  const HostTensor step = tensor<int32_t>({}, {0}), rate = tensor<float>({}, {0.1f});
  const HostTensor some = tensor<int32_t>({2}, {3, 0});
  const std::vector<std::pair<Op, std::vector<HostTensor>>> rows = {
      {Unary{UnaryKind::kGelu}, {none}},
      {Binary{BinaryKind::kAdd}, {none, row4}},
      {Cast{DType::kU8}, {none}},
      {Dropout{}, {none, step}},
      {RandomUniform{{0}}, {step}},
      {Reshape{{4, 0}}, {none}},
      {Transpose{{1, 0}}, {none}},
      {Concat{0}, {none, none}},
      {Slice{{0, 1}, {0, 2}}, {none}},
      {SliceGrad{{0, 0}, {2, 4}}, {none}},
      {BroadcastTo{{3, 0, 4}}, {none}},
      {Fill{1, {0}}, {}},
      {Gather{}, {row4, indices}},
      {Gather{}, {deep, some}},
      {GatherGrad{{3, 4}}, {none, indices}},
      {GatherGrad{{4, 0}}, {HostTensor({DType::kF32, {2, 0}}), some}},
      {MaxPool{}, {images}},
      {AvgPool{}, {images}},
      {Reduce{ReduceKind::kSum, {0}}, {none}},
      {Reduce{ReduceKind::kSum, {0, 1}}, {none}},
      {Reduce{ReduceKind::kMax, {1}}, {none}},
      {Softmax{}, {none}},
      {Softmax{}, {deep}},
      {CrossEntropy{}, {none, indices}},
      {CrossEntropyGrad{}, {none, indices, loss}},
      {ArgMax{1}, {none}},
      {SgdUpdate{}, {rate, none, none}}};
  for (const auto& [op, inputs] : rows) expect_as_on_the_cpu(row("empty", op, inputs));
}

TEST_F(CudaKernelsTest, MakersStartLibrariesThroughTheDeviceTheyAreGiven) {
  FaultyDevice faulty(*device_);
  const std::vector<HostTensor> inputs = {random_floats({4, 8}, 1), random_floats({8, 2}, 2)};
  const std::vector<TensorSpec> outputs = specs_of(run_op(MatMul{}, inputs));
  const auto make = [&] { return make_cuda_kernel(MatMul{}, specs_of(inputs), outputs, faulty, {}); };
  faulty.initialize();
  faulty.faults().arm({.failing_call = 1});
  EXPECT_THROW(make(), LibraryError);
  EXPECT_NE(make(), nullptr);
  CpuDevice cpu;
  EXPECT_THROW(make_cuda_kernel(MatMul{}, specs_of(inputs), outputs, cpu, {}), InvalidArgument);
}

TEST_F(CudaKernelsTest, MaxPoolWithoutAReaderOfItsIndexWritesNone) {
  const HostTensor x = random_floats({2, 6, 6, 20}, 1);
  const std::vector<HostTensor> both = run_op(MaxPool{}, {x});
  const std::vector<TensorSpec> outputs = specs_of(both);
  const auto kernel = make_cuda_kernel(MaxPool{}, std::vector{x.spec()}, outputs, *device_, {});
  const DeviceTensor from(*device_, x, 0), to(*device_, HostTensor(outputs[0]), 0);
  kernel->run(std::vector{from.view()}, std::vector<TensorView>{to.view(), {nullptr, outputs[1]}}, nullptr,
              {});
  device_->streams().synchronize({});
  EXPECT_TRUE(to.read().same_bytes(both[0]));
}

TEST_F(CudaKernelsTest, ReportTheFirstIndexOutOfRangeInTheCpusWordsAndGoOn) {
  for (int32_t bad : {5, -1, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    HostTensor indices = random_whole<int32_t>({900}, 2, 0, 5);
    const HostTensor many = random_whole<int32_t>({2'100}, 6, 0, 5);
    const HostTensor logits = random_floats({900, 5}, 3), dloss = random_floats({900}, 4);
    const std::vector<std::pair<Op, std::vector<HostTensor>>> rows = {
        {Gather{}, {random_floats({5, 8}, 1), indices}},
        {Gather{}, {HostTensor({DType::kF32, {5, 0}}), indices}},
        {GatherGrad{{5, 2}}, {random_floats({900, 2}, 5), indices}},
        {GatherGrad{{5, 2}}, {random_floats({2'100, 2}, 5), many}},
        {CrossEntropy{}, {logits, indices}},
        {CrossEntropyGrad{}, {logits, indices, dloss}},
        {TakeBatch{900}, {random_floats({5, 8}, 1), tensor<int32_t>({}, {0}), indices}}};
    for (const auto& [op, good] : rows) {
      std::vector<HostTensor> inputs = good;
      HostTensor& changed = inputs[std::holds_alternative<TakeBatch>(op) ? 2 : 1];
      for (size_t position : {890u, 517u, 300u}) changed.data<int32_t>()[position] = bad;
      std::string expected, said;
      try {
        run_op(op, inputs);
      } catch (const DeviceError& error) {
        expected = error.what();
      }
      try {
        run(op, inputs);
      } catch (const DeviceError& error) {
        said = error.what();
      }
      EXPECT_NE(expected, "");
      EXPECT_EQ(said, expected);
      expect_as_on_the_cpu(row("after a fault", op, good));
    }
  }
}

}  // namespace
}  // namespace headroom::test
