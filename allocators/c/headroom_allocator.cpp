// headroom_open and the functions it returns: one of our strategies with the C interface. No exception leaves
// them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocators/c/caller_device.h"
#include "allocators/headroom_strategy.h"
#include "allocators/strategies/strategy_text.h"
#include "base/errors.h"
#include "base/text.h"
#include "device/gpus.h"
#include "device/host/cpu_device.h"
#include "device/host/simulated_gpu.h"

using namespace headroom;

// The blocks are recorded here, because callers in C and Python seldom know the size of a block that they
// free.
struct headroom_allocator {
  struct Block {
    int64_t bytes = 0;
    Stream stream;
    std::vector<Stream> users = {};  // beside the stream that frees it; only without events, see record_use
  };

  std::unique_ptr<Device> device;
  bool has_events = true;
  std::mutex mutex;  // guards the blocks
  std::unordered_map<void*, Block> blocks;
  std::unique_ptr<Allocator> strategy;  // before its device
};

namespace {

std::string& last_error() {
  thread_local std::string message;
  return message;
}

// Runs `body` and converts exceptions to a status.
template <typename F>
headroom_status guarded(F body) noexcept {
  try {
    try {
      body();
      return HEADROOM_OK;
    } catch (const std::exception& error) {
      last_error() = error.what();
      return static_cast<headroom_status>(exit_code(error));
    }
  } catch (...) {  // no memory on the host even for the message
    return HEADROOM_FAILED;
  }
}

void require(bool holds, const char* message) {
  if (!holds) throw InvalidArgument(message);
}

int ordinal_in(std::string_view text, std::string_view name) {
  const auto ordinal = parse_number<int>(text);
  if (!ordinal || *ordinal < 0) {
    throw InvalidArgument(fmt::format("device '{}': '{}' is not the number of a GPU", name, text));
  }
  return *ordinal;
}

std::unique_ptr<Device> device_of(std::string_view name) {
  if (name == "cpu") return std::make_unique<CpuDevice>();
  std::string_view rest = name;
  const auto starts = [&](std::string_view prefix) {
    if (!rest.starts_with(prefix)) return false;
    rest.remove_prefix(prefix.size());
    return true;
  };
  if (starts("sim:")) {
    const size_t colon = rest.find(':');
    const int ordinal = colon == std::string_view::npos ? 0 : ordinal_in(rest.substr(colon + 1), name);
    return make_simulated_gpu(rest.substr(0, colon), ordinal);
  }
  if (name == "cuda") return make_cuda_device({});
  if (starts("cuda:")) return make_cuda_device({.ordinal = ordinal_in(rest, name)});
  throw InvalidArgument(
      fmt::format("unknown device '{}' (cpu, cuda, cuda:N, sim:PROFILE, sim:PROFILE:N)", name));
}

headroom_allocator* open_over(const char* strategy, std::unique_ptr<Device> device, bool has_events) {
  auto opened = std::make_unique<headroom_allocator>();
  opened->device = std::move(device);
  opened->has_events = has_events;
  opened->strategy = make_allocator(parse_strategy(strategy), *opened->device);
  return opened.release();
}

}  // namespace

const char* headroom_version(void) {
  return HEADROOM_VERSION;
}

const char* headroom_error(void) {
  return last_error().c_str();
}

const char* headroom_strategy_name(int index) {
  const auto all = strategies();
  // The names are literals of the table, so they end in a zero.
  return index < 0 || index >= static_cast<int>(all.size()) ? nullptr
                                                            : all[static_cast<size_t>(index)].name.data();
}

headroom_status headroom_open(const char* strategy, const char* device, headroom_allocator** allocator) {
  return guarded([&] {
    require(strategy != nullptr && device != nullptr && allocator != nullptr,
            "headroom_open: a null argument");
    *allocator = open_over(strategy, device_of(device), true);
  });
}

headroom_status headroom_open_on(const char* strategy, const headroom_driver* driver,
                                 headroom_allocator** allocator) {
  return guarded([&] {
    require(strategy != nullptr && driver != nullptr && allocator != nullptr,
            "headroom_open_on: a null argument");
    require(driver->reserve != nullptr && driver->unreserve != nullptr && driver->reservable_bytes != nullptr,
            "headroom_open_on: the driver lacks a function");
    *allocator = open_over(strategy, std::make_unique<CallerDevice>(*driver), false);
  });
}

void headroom_close(headroom_allocator* allocator) {
  delete allocator;
}

headroom_status headroom_allocate(headroom_allocator* allocator, int64_t bytes, void* stream,
                                  void** pointer) {
  return guarded([&] {
    require(allocator != nullptr && pointer != nullptr, "headroom_allocate: a null argument");
    *pointer = nullptr;
    void* const block = allocator->strategy->allocate(bytes, {stream});
    if (block == nullptr) return;
    try {
      const std::lock_guard lock(allocator->mutex);
      allocator->blocks[block] = {bytes, {stream}};
    } catch (...) {
      allocator->strategy->deallocate(block, bytes, {stream});
      throw;
    }
    *pointer = block;
  });
}

headroom_status headroom_deallocate(headroom_allocator* allocator, void* pointer, void* stream) {
  return guarded([&] {
    require(allocator != nullptr, "headroom_deallocate: a null argument");
    if (pointer == nullptr) return;
    headroom_allocator::Block block;
    {
      const std::lock_guard lock(allocator->mutex);
      const auto found = allocator->blocks.find(pointer);
      if (found == allocator->blocks.end()) {
        throw InvalidArgument(fmt::format("headroom_deallocate: {} is not a live block", pointer));
      }
      block = std::move(found->second);
      allocator->blocks.erase(found);
    }
    for (const Stream user : block.users) allocator->device->streams().wait({stream}, user);
    allocator->strategy->deallocate(pointer, block.bytes, {stream});
  });
}

// Memory of the caller has no events that say when its work is done. There the stream that frees the block
// waits for its other users instead.
headroom_status headroom_record_use(headroom_allocator* allocator, void* pointer, void* stream) {
  return guarded([&] {
    require(allocator != nullptr, "headroom_record_use: a null argument");
    const std::lock_guard lock(allocator->mutex);
    const auto found = allocator->blocks.find(pointer);
    if (found == allocator->blocks.end()) {
      throw InvalidArgument(fmt::format("headroom_record_use: {} is not a live block", pointer));
    }
    if (allocator->has_events) {
      allocator->strategy->record_use(pointer, {stream});
      return;
    }
    std::vector<Stream>& users = found->second.users;
    if (std::ranges::find(users, Stream{stream}) == users.end()) users.push_back({stream});
  });
}

int64_t headroom_trim(headroom_allocator* allocator) {
  return allocator == nullptr ? 0 : allocator->strategy->trim();
}

headroom_status headroom_count(headroom_allocator* allocator, headroom_counts* counts, size_t size) {
  return guarded([&] {
    require(allocator != nullptr && counts != nullptr, "headroom_count: a null argument");
    const Statistics s = allocator->strategy->statistics();
    const MemoryInfo memory = allocator->device->memory().info();
    const headroom_counts now = {
        .requested_bytes = s.requested.current,
        .requested_peak_bytes = s.requested.peak,
        .allocated_bytes = s.allocated.current,
        .allocated_peak_bytes = s.allocated.peak,
        .reserved_bytes = s.reserved.current,
        .reserved_peak_bytes = s.reserved.peak,
        .allocations = s.allocations,
        .deallocations = s.deallocations,
        .driver_calls = s.driver_calls(),
        .retries = s.retries,
        .failures = s.failures,
        .stream_waits = s.stream_waits,
        .largest_free_block_bytes = s.largest_free_block,
        .device_free_bytes = memory.free,
        .device_total_bytes = memory.total,
    };
    std::memcpy(counts, &now, std::min(size, sizeof now));
  });
}
