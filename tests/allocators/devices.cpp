#include "tests/allocators/devices.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "base/bytes.h"
#include "device/gpus.h"
#include "device/host/cpu_device.h"
#include "device/host/simulated_gpu.h"

namespace headroom {
namespace {

constexpr int64_t kTotalBytes = 512 * kMiB;

// The parts of a block that are filled: the whole of a small one, both ends of a large one.
std::vector<std::pair<int64_t, int64_t>> parts_of(int64_t bytes) {
  constexpr int64_t kEnd = 4096;
  if (bytes <= 2 * kEnd) return {{0, bytes}};
  return {{0, kEnd}, {bytes - kEnd, bytes}};
}

// Bytes [begin, end) of a block, made eight at a time: byte by byte takes most of a test without
// optimization.
std::vector<unsigned char> pattern_of(uint64_t pattern, int64_t begin, int64_t end) {
  const int64_t first = begin / 8;
  std::vector<uint64_t> made(static_cast<size_t>((end + 7) / 8 - first));
  uint64_t* const words = made.data();
  const size_t count = made.size();
  for (size_t i = 0; i < count; ++i) {
    words[i] = pattern + (static_cast<uint64_t>(first) + i) * 0x9E3779B97F4A7C15;
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(words);
  return {bytes + (begin - 8 * first), bytes + (end - 8 * first)};
}

}  // namespace

DeviceProfile small_profile() {
  DeviceProfile profile = find_profile("laptop-2gb");
  profile.name = "small";
  profile.total_bytes = kTotalBytes;
  profile.others_bytes = 64 * kMiB;
  profile.context_bytes = 32 * kMiB;
  profile.blas.handle_bytes = profile.blas.needed_bytes = 8 * kMiB;
  profile.dnn.handle_bytes = profile.dnn.needed_bytes = 8 * kMiB;
  profile.own_module_bytes = profile.blas.module_bytes = profile.dnn.module_bytes = 2 * kMiB;
  return profile;
}

TestDevice::TestDevice(TestDeviceKind kind) {
  if (kind == TestDeviceKind::kCpu) {
    real_ = std::make_unique<CpuDevice>(kTotalBytes);
  } else if (kind == TestDeviceKind::kCuda) {
    real_ = make_cuda_device({});
  } else {
    real_ = std::make_unique<SimulatedGpu>(small_profile());
  }
  if (kind == TestDeviceKind::kFaultySimulated) faulty_ = std::make_unique<FaultyDevice>(*real_);
}

RandomLoad::RandomLoad(Allocator& allocator, DeviceMemory& memory, uint32_t seed, int64_t largest_bytes,
                       size_t most_blocks, Stream stream)
    : allocator_(allocator),
      memory_(memory),
      state_(seed),
      largest_bytes_(largest_bytes),
      most_blocks_(most_blocks),
      stream_(stream) {}

uint32_t RandomLoad::random() {
  state_ = state_ * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
  return static_cast<uint32_t>(state_ >> 33);
}

bool RandomLoad::step() {
  const bool full = live_.size() >= most_blocks_;
  if (!live_.empty() && (full || random() % 100 < 45)) return free_one(random() % live_.size());
  // Sizes spread evenly over their logarithm, as tensor sizes roughly do.
  const double exponent = std::log2(static_cast<double>(largest_bytes_)) * (random() % 1024) / 1024.0;
  try {
    allocate(static_cast<int64_t>(std::exp2(exponent)));
    return true;
  } catch (const OutOfMemory&) {
    return live_.empty() || free_one(random() % live_.size());
  }
}

bool RandomLoad::finish() {
  bool intact = true;
  while (!live_.empty()) intact &= free_one(random() % live_.size());
  return intact;
}

void RandomLoad::allocate(int64_t bytes) {
  void* pointer = allocator_.allocate(bytes, stream_);
  const uint64_t pattern = (uint64_t{random()} << 32) | random();
  for (const auto& [begin, end] : parts_of(bytes)) {
    memory_.copy_to_device(static_cast<std::byte*>(pointer) + begin, pattern_of(pattern, begin, end).data(),
                           end - begin);
  }
  live_.push_back({pointer, bytes, pattern});
  live_bytes_ += bytes;
  ++allocations_;
}

bool RandomLoad::free_one(size_t index) {
  const Live block = live_[index];
  live_[index] = live_.back();
  live_.pop_back();
  bool intact = true;
  for (const auto& [begin, end] : parts_of(block.bytes)) {
    std::vector<unsigned char> found(static_cast<size_t>(end - begin));
    memory_.copy_to_host(found.data(), static_cast<std::byte*>(block.pointer) + begin, end - begin);
    intact &= found == pattern_of(block.pattern, begin, end);
  }
  allocator_.deallocate(block.pointer, block.bytes, stream_);
  live_bytes_ -= block.bytes;
  return intact;
}

}  // namespace headroom
