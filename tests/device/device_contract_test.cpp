// Promises of every device, and of every device with faults installed while none is armed.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "device/device_name.h"
#include "device/faulty/faulty_device.h"
#include "device/host_buffer.h"
#include "tests/device/device_rows.h"
#include "tests/require_cuda.h"

namespace headroom {
namespace {

constexpr int64_t kBlockBytes = 4 * kMiB;

struct Row {
  DeviceRow device;
  bool is_faulty = false;
};

class DeviceContract : public testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    if (GetParam().device.needs_cuda) require_cuda();
    if (IsSkipped() || HasFatalFailure()) return;
    real_ = GetParam().device.make();
    if (GetParam().is_faulty) faulty_ = std::make_unique<FaultyDevice>(*real_);
    device().initialize();
  }
  Device& device() { return faulty_ != nullptr ? *faulty_ : *real_; }
  // A block of device memory until the test ends.
  void* block() {
    void* const pointer = device().memory().try_allocate(kBlockBytes);
    EXPECT_NE(pointer, nullptr);
    blocks_.push_back(pointer);
    return pointer;
  }
  void TearDown() override {
    for (void* pointer : blocks_) device().memory().release(pointer, kBlockBytes);
  }

  std::unique_ptr<Device> real_;
  std::unique_ptr<FaultyDevice> faulty_;
  std::vector<void*> blocks_;
};

void fill(const HostBuffer& buffer, int value) {
  std::memset(buffer.data(), value, buffer.size());
}

bool holds(const HostBuffer& buffer, int value) {
  for (const std::byte byte : std::span(buffer.data(), buffer.size())) {
    if (byte != static_cast<std::byte>(value)) return false;
  }
  return true;
}

TEST_P(DeviceContract, HasAParsableNameAndADescription) {
  EXPECT_EQ(parse_device_name(device().name()).text(), device().name());
  EXPECT_FALSE(device().description().empty());
}

TEST_P(DeviceContract, MemoryIsAlignedAndCountedAndAllOfItCanBeUsed) {
  DeviceMemory& memory = device().memory();
  device().initialize();  // once only
  const MemoryInfo before = memory.info();
  void* const pointer = memory.try_allocate(kBlockBytes);
  ASSERT_NE(pointer, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 256, 0u);
  EXPECT_EQ(memory.info().process - before.process, round_up(kBlockBytes, memory.granularity_bytes()));
  EXPECT_EQ(memory.try_allocate(before.total + 1), nullptr);
  const HostBuffer from(memory, kBlockBytes), to(memory, kBlockBytes);
  fill(from, 3);
  memory.copy_to_device(pointer, from.data(), kBlockBytes);
  memory.copy_to_host(to.data(), pointer, kBlockBytes);
  EXPECT_TRUE(holds(to, 3));
  memory.release(pointer, kBlockBytes);
  EXPECT_EQ(memory.info().process, before.process);
}

TEST_P(DeviceContract, StreamsAreDoneWhenNothingWasQueued) {
  DeviceStreams& streams = device().streams();
  const Stream one = streams.new_stream(), two = streams.new_stream();
  EXPECT_NE(one, two);
  EXPECT_NE(one, Stream{});
  streams.wait(one, two);
  streams.wait({}, one);
  const std::unique_ptr<Event> event = streams.record_event(two);
  event->wait();
  EXPECT_TRUE(event->done());
  streams.synchronize(one);
  streams.delete_stream(one);
  streams.delete_stream(two);
}

TEST_P(DeviceContract, QueuedCopiesKeepTheOrderThatEventsGive) {
  DeviceMemory& memory = device().memory();
  DeviceStreams& streams = device().streams();
  const Stream up = streams.new_stream(), down = streams.new_stream();
  void* const data = block();
  const HostBuffer from(memory, kBlockBytes), to(memory, kBlockBytes);
  for (int round = 1; round < 20; ++round) {
    fill(from, round);
    memory.copy_to_device(data, from.data(), kBlockBytes, up);
    streams.wait(down, *streams.record_event(up));
    memory.copy_to_host(to.data(), data, kBlockBytes, down);
    streams.synchronize(down);
    EXPECT_TRUE(holds(to, round)) << round;
  }
  streams.delete_stream(up);
  streams.delete_stream(down);
}

TEST_P(DeviceContract, CopiesToItselfUnlessOnlyTheHostCanCopy) {
  DeviceMemory& memory = device().memory();
  void* const first = block();
  void* const second = block();
  const HostBuffer from(memory, kBlockBytes), to(memory, kBlockBytes);
  fill(from, 5);
  memory.copy_to_device(first, from.data(), kBlockBytes);
  if (!device().copy_from(device(), second, first, kBlockBytes)) return;
  device().streams().synchronize({});
  memory.copy_to_host(to.data(), second, kBlockBytes);
  EXPECT_TRUE(holds(to, 5));
}

TEST_P(DeviceContract, ALaunchOfACaptureRepeatsItsWork) {
  DeviceMemory& memory = device().memory();
  const HostBuffer from(memory, kBlockBytes), to(memory, kBlockBytes);
  void* const data = block();
  const std::vector<Task> tasks = {
      {[&](Stream on) { memory.copy_to_device(data, from.data(), kBlockBytes, on); }, {}, {1}},
      {[&](Stream on) { memory.copy_to_host(to.data(), data, kBlockBytes, on); }, {0}, {}}};
  const std::unique_ptr<Capture> capture = device().captures().capture(tasks, 2);
  for (const int value : {7, 9}) {
    fill(from, value);
    capture->launch({});
    device().streams().synchronize({});
    EXPECT_TRUE(holds(to, value)) << value;
  }
}

TEST_P(DeviceContract, CapturesRefuseTasksThatWaitForWhatCannotComeFirst) {
  DeviceCaptures& captures = device().captures();
  const auto nothing = [](Stream) {};
  for (const Task& task : {Task{nothing, {0}, {}}, Task{nothing, {1}, {}}, Task{nothing, {-1}, {}},
                           Task{nothing, {}, {1}}, Task{nothing, {}, {-1}}}) {
    EXPECT_THROW(captures.capture({&task, 1}, 1), InvalidArgument);
  }
  const Task itself_last_time{nothing, {}, {0}};
  EXPECT_NO_THROW(captures.capture({&itself_last_time, 1}, 2));
  EXPECT_THROW(captures.capture({&itself_last_time, 1}, 0), InvalidArgument);
}

TEST_P(DeviceContract, LibrariesTakeTheirMemoryOnce) {
  DeviceLibraries& libraries = device().libraries();
  const int64_t pending = libraries.pending_bytes();
  for (const Library library : {Library::kBlas, Library::kDnn}) {
    libraries.start(library);
    libraries.load_module("op", library);
    const int64_t process = device().memory().info().process;
    libraries.start(library);
    libraries.load_module("op", library);
    EXPECT_EQ(device().memory().info().process, process);
  }
  EXPECT_LE(libraries.pending_bytes(), pending);
}

TEST_P(DeviceContract, LibrariesThatNoProgramUsesArePendingNoMore) {
  FaultyDevice twin(*real_);
  DeviceLibraries &libraries = real_->libraries(), &of_twin = twin.libraries();
  const int64_t pending = libraries.pending_bytes();
  EXPECT_TRUE(libraries.is_expected(Library::kDnn)) << "before anything is known";
  of_twin.expect(std::array{Library::kBlas});
  of_twin.expect(std::array{Library::kNone});
  for (const DeviceLibraries* either : {&libraries, &of_twin}) {
    EXPECT_TRUE(either->is_expected(Library::kBlas));
    EXPECT_TRUE(either->is_expected(Library::kNone));
    EXPECT_FALSE(either->is_expected(Library::kDnn));
  }
  EXPECT_LE(libraries.pending_bytes(), pending);
}

TEST_P(DeviceContract, AStreamOrderedPoolGivesItsMemoryBack) {
  DeviceMemory& memory = device().memory();
  const std::unique_ptr<StreamOrderedPool> pool =
      memory.make_stream_ordered_pool({.max_bytes = memory.info().total / 4});
  if (pool == nullptr) return;
  void* const pointer = pool->try_allocate(kBlockBytes, {});
  ASSERT_NE(pointer, nullptr);
  EXPECT_GE(pool->reserved_bytes(), kBlockBytes);
  pool->release(pointer, kBlockBytes, {});
  pool->trim(0);
  EXPECT_EQ(pool->reserved_bytes(), 0);
}

TEST_P(DeviceContract, AFaultyTwinHasTheSameParts) {
  FaultyDevice twin(*real_);
  EXPECT_EQ(twin.name(), real_->name());
  EXPECT_EQ(twin.description(), real_->description());
  EXPECT_EQ(twin.compute_capability(), real_->compute_capability());
  EXPECT_EQ(twin.kernel_target().gpu, real_->kernel_target().gpu);
  EXPECT_EQ(twin.kernel_target().threads, real_->kernel_target().threads);
  EXPECT_EQ(twin.captures().call_tasks(), real_->captures().call_tasks());
  EXPECT_EQ(twin.libraries().start_with_kernels(), real_->libraries().start_with_kernels());
  EXPECT_EQ(twin.libraries().pending_bytes(), real_->libraries().pending_bytes());
  DeviceMemory &memory = twin.memory(), &of_real = real_->memory();
  EXPECT_EQ(memory.is_host_memory(), of_real.is_host_memory());
  EXPECT_EQ(memory.granularity_bytes(), of_real.granularity_bytes());
  EXPECT_EQ(memory.driver_time_us(), of_real.driver_time_us());
  EXPECT_EQ(memory.virtual_memory() != nullptr, of_real.virtual_memory() != nullptr);
}

TEST_P(DeviceContract, EachDriverCallOfAFaultyTwinCanFail) {
  FaultyDevice twin(*real_);
  DeviceMemory& memory = twin.memory();
  void* const data = block();
  const HostBuffer host(memory, kBlockBytes);
  const Task task{[](Stream) {}, {}, {}};
  const std::function<void()> calls[] = {
      [&] { twin.initialize(); },
      [&] { twin.libraries().start(Library::kBlas); },
      [&] { twin.libraries().load_module("op", Library::kDnn); },
      [&] { memory.copy_to_device(data, host.data(), kBlockBytes); },
      [&] { memory.copy_to_host(host.data(), data, kBlockBytes); },
      [&] { memory.copy_to_device(data, host.data(), kBlockBytes, {}); },
      [&] { memory.copy_to_host(host.data(), data, kBlockBytes, {}); },
      [&] { twin.copy_from(twin, data, data, kBlockBytes); },
      [&] {
        twin.captures().capture({&task, 1}, 1);
      },
  };
  for (const auto& call : calls) {
    twin.faults().arm({.failing_call = 1});
    EXPECT_ANY_THROW(call());
    call();  // fails once
  }
  twin.faults().arm({.failing_call = 1});
  EXPECT_EQ(memory.try_allocate(kBlockBytes), nullptr);
  const std::unique_ptr<Capture> capture = twin.captures().capture({&task, 1}, 1);
  twin.faults().arm({.failing_call = 1});
  EXPECT_THROW(capture->launch({}), DeviceError);
  const auto pool = memory.make_stream_ordered_pool({.max_bytes = memory.info().total / 4});
  if (pool == nullptr) return;
  twin.faults().arm({.failing_call = 1});
  EXPECT_EQ(pool->try_allocate(kBlockBytes, {}), nullptr);
}

std::vector<Row> rows() {
  std::vector<Row> result;
  for (const DeviceRow& device : kDeviceRows) {
    result.push_back({device, false});
    result.push_back({device, true});
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceContract, testing::ValuesIn(rows()), [](const auto& row) {
  return std::string(row.param.is_faulty ? "Faulty" : "") + row.param.device.name;
});

}  // namespace
}  // namespace headroom
