#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_device.h"
#include "device/gpus.h"
#include "device/host/cpu_device.h"
#include "tests/require_cuda.h"

namespace headroom::cuda {
namespace {

__global__ void multiply_add(float* out, const float* in, float factor, float term) {
  out[threadIdx.x] = in[threadIdx.x] * factor + term;
}

// Leaves the turn in which it ran and takes the next one; a shared counter shows any order that is not kept.
__global__ void take_turn(int* counter, int* turn) {
  *turn = (*counter)++;
}

class CudaCapturesTest : public CudaTest {
 protected:
  static constexpr int kCount = 32;

  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    device_ = make_cuda_device({});
    device_->initialize();
    memory_ = static_cast<float*>(device_->memory().try_allocate(kBytes));
    ASSERT_NE(memory_, nullptr);
    HR_CHECK(cudaMemset(memory_, 0, kBytes));
  }
  void TearDown() override {
    if (device_ != nullptr) device_->memory().release(memory_, kBytes);
  }

  float* row(int i) const { return memory_ + i * kCount; }
  // row(out) = row(in) * factor + term
  Task step(int out, int in, float factor, float term, std::vector<int> after,
            std::vector<int> after_previous) {
    return {[=, this](Stream stream) {
              multiply_add<<<1, kCount, 0, stream_of(stream)>>>(row(out), row(in), factor, term);
              HR_CHECK(cudaGetLastError());
            },
            std::move(after), std::move(after_previous)};
  }
  std::vector<float> read(int i) {
    std::vector<float> values(kCount);
    device_->memory().copy_to_host(values.data(), row(i), kCount * 4);
    return values;
  }

  static constexpr int64_t kBytes = 16 * kCount * 4;
  std::unique_ptr<Device> device_;
  float* memory_ = nullptr;
};

TEST_F(CudaCapturesTest, KeepsTheOrderOfTasksRepetitionsLaunchesAndCopies) {
  // Two branches from row 0 meet in it again; each repetition continues from there.
  const std::vector<Task> tasks = {
      step(1, 0, 2, 0, {}, {3}),  // a = 2 x
      step(2, 0, 1, 5, {}, {3}),  // b = x + 5
      step(3, 1, 1, 1, {0}, {}),  // c = a + 1
      {[this](Stream stream) {    // x = b - 4, once c is there
         multiply_add<<<1, kCount, 0, stream_of(stream)>>>(row(0), row(2), 1, -4);
         HR_CHECK(cudaGetLastError());
       },
       {1, 2},
       {}},
  };
  const std::unique_ptr<Capture> captured = device_->captures().capture(tasks, 5);
  std::vector<float> x(kCount);
  std::iota(x.begin(), x.end(), 0.f);
  device_->memory().copy_to_device(row(0), x.data(), kCount * 4);
  for (int i = 0; i < 3; ++i) captured->launch({});
  const std::vector<float> end = read(0), c = read(3);
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(end[i], x[i] + 15);
    EXPECT_EQ(c[i], 2 * (x[i] + 14) + 1);
  }
}

TEST_F(CudaCapturesTest, AChainOfManyTasksRunsInTurn) {
  int* counter = reinterpret_cast<int*>(row(0));
  constexpr int kTasks = 100, kRepeats = 3;
  std::vector<Task> tasks;
  for (int i = 0; i < kTasks; ++i) {
    Task task;
    task.run = [=](Stream stream) { take_turn<<<1, 1, 0, stream_of(stream)>>>(counter, counter + 1 + i); };
    if (i > 0) task.after = {i - 1};
    if (i == 0) task.after_previous = {kTasks - 1};
    tasks.push_back(std::move(task));
  }
  device_->captures().capture(tasks, kRepeats)->launch({});
  std::vector<int> turns(kTasks + 1);
  device_->memory().copy_to_host(turns.data(), counter, (kTasks + 1) * 4);
  EXPECT_EQ(turns[0], kTasks * kRepeats);
  for (int i = 0; i < kTasks; ++i) EXPECT_EQ(turns[static_cast<size_t>(i) + 1], kTasks * (kRepeats - 1) + i);
}

// Each repetition and launch goes to the other GPU and back, and so do the copies before and after them.
TEST_F(CudaCapturesTest, WorkOfTwoGpusKeepsItsOrder) {
  if (visible_gpus().size() < 2) GTEST_SKIP() << "one GPU is visible, two are needed";
  const std::unique_ptr<Device> other = make_cuda_device({.ordinal = 1});
  other->initialize();
  auto* const there = static_cast<float*>(other->memory().try_allocate(kBytes));
  ASSERT_NE(there, nullptr);
  device_->initialize();
  Task go{[&](Stream stream) { other->copy_from(*device_, there, row(0), kCount * 4, stream); }, {}, {2}};
  go.device = other.get();
  Task add{[&](Stream stream) {
             multiply_add<<<1, kCount, 0, stream_of(stream)>>>(there + kCount, there, 1, 1);
             HR_CHECK(cudaGetLastError());
           },
           {0},
           {}};
  add.device = other.get();
  const Task back{
      [&](Stream stream) { device_->copy_from(*other, row(0), there + kCount, kCount * 4, stream); },
      {1},
      {}};
  const std::unique_ptr<Capture> captured = device_->captures().capture(std::vector<Task>{go, add, back}, 5);
  std::vector<float> ones(kCount, 1);
  device_->memory().copy_to_device(row(0), ones.data(), kCount * 4);
  for (int i = 0; i < 3; ++i) captured->launch({});
  std::vector<float> values(kCount);
  other->memory().copy_to_host(values.data(), there + kCount, kCount * 4);
  EXPECT_EQ(values, std::vector<float>(kCount, 16));
  EXPECT_EQ(read(0), values);
  other->memory().release(there, kBytes);
}

TEST_F(CudaCapturesTest, RefusesATaskOfTheCpu) {
  CpuDevice cpu;
  Task task{[](Stream) {}, {}, {}};
  task.device = &cpu;
  EXPECT_THROW(device_->captures().capture({&task, 1}, 1), InvalidArgument);
}

TEST_F(CudaCapturesTest, ATaskMayQueueNothingOrSeveralThings) {
  const std::vector<Task> tasks = {
      {[this](Stream stream) {
         HR_CHECK(cudaMemsetAsync(row(0), 0, kCount * 4, stream_of(stream)));
         multiply_add<<<1, kCount, 0, stream_of(stream)>>>(row(1), row(0), 1, 3);
         HR_CHECK(cudaMemcpyAsync(row(2), row(1), kCount * 4, cudaMemcpyDeviceToDevice, stream_of(stream)));
       },
       {},
       {}},
      {[](Stream) {}, {0}, {}},
      step(3, 2, 2, 0, {1}, {}),
  };
  device_->captures().capture(tasks, 1)->launch({});
  EXPECT_EQ(read(3), std::vector<float>(kCount, 6));
}

TEST_F(CudaCapturesTest, ATaskThatStartsEarlyMayQueueNothing) {
  const Task nothing{[](Stream) {}, {0}, {}, true};
  const std::vector<Task> tasks = {step(1, 0, 1, 3, {}, {}), nothing, step(2, 1, 2, 0, {1}, {})};
  device_->captures().capture(tasks, 3)->launch({});
  EXPECT_EQ(read(2), std::vector<float>(kCount, 6));
}

TEST_F(CudaCapturesTest, AnErrorWhileCapturingLeavesTheDeviceUsable) {
  const auto refuse = [](Stream) { throw InvalidArgument("no"); };
  // Waiting for work during its capture is forbidden.
  const auto wait = [](Stream stream) { HR_CHECK(cudaStreamSynchronize(stream_of(stream))); };
  const auto wait_unchecked = [](Stream stream) { cudaStreamSynchronize(stream_of(stream)); };
  const Task good = step(1, 0, 1, 7, {}, {});
  EXPECT_THROW(device_->captures().capture(std::vector<Task>{good, {refuse, {0}, {}}}, 2), InvalidArgument);
  EXPECT_THROW(device_->captures().capture(std::vector<Task>{good, {wait, {0}, {}}}, 2), DeviceError);
  EXPECT_THROW(device_->captures().capture(std::vector<Task>{good, {wait_unchecked, {0}, {}}}, 2),
               DeviceError);
  device_->streams().synchronize({});
  device_->captures().capture({&good, 1}, 1)->launch({});
  EXPECT_EQ(read(1), std::vector<float>(kCount, 7));
}

}  // namespace
}  // namespace headroom::cuda
