#include "tools/torch/headroom_torch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "allocators/strategies/strategy_text.h"
#include "base/errors.h"
#include "device/gpus.h"
#include "device/host/simulated_gpu.h"
#include "tools/torch/graph_pools.h"

namespace headroom {
namespace {

constexpr int kMaxDevices = 64;  // devices of one process, as in PyTorch

struct TorchDevice {
  std::atomic<Allocator*> allocator = nullptr;
  std::unique_ptr<Device> device;
  GraphPools pools;
  double fraction = 1;
};

// Never destroyed, because tensors may outlive it: the driver releases everything at the end.
struct TorchDevices {
  std::mutex mutex;  // for making allocators
  std::array<TorchDevice, kMaxDevices> all;
};

TorchDevices& devices() {
  static auto* const instance = new TorchDevices;
  return *instance;
}

const char* environment(const char* name, const char* default_value) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? default_value : value;
}

TorchDevice& device_at(int ordinal) {
  if (ordinal < 0 || ordinal >= kMaxDevices) throw InvalidArgument(fmt::format("no device {}", ordinal));
  return devices().all[static_cast<size_t>(ordinal)];
}

// HEADROOM_TORCH_DEVICE=sim:PROFILE takes a simulated GPU, to try the library without one.
std::unique_ptr<Device> make_device(int ordinal) {
  const std::string_view name = environment("HEADROOM_TORCH_DEVICE", "cuda"), simulated = "sim:";
  if (name.starts_with(simulated)) return make_simulated_gpu(name.substr(simulated.size()), ordinal);
  return make_cuda_device({.ordinal = ordinal});
}

template <typename F>
void for_each_allocator(F f) {
  for (TorchDevice& torch : devices().all) {
    if (Allocator* allocator = torch.allocator.load(std::memory_order_acquire)) f(*allocator);
  }
}

// Completes traces, because allocators are never destroyed.
void end_traces() {
  for_each_allocator([](Allocator& allocator) { allocator.set_observer({}); });
}

Allocator& make(int ordinal) {
  const std::lock_guard lock(devices().mutex);
  TorchDevice& torch = device_at(ordinal);
  if (Allocator* made = torch.allocator.load()) return *made;
  StrategySettings settings = parse_strategy(environment("HEADROOM_STRATEGY", "mapped"));
  if (torch.fraction < 1 && !settings.limit_bytes && !settings.memory_fraction) {
    settings.memory_fraction = torch.fraction;
  }
  std::unique_ptr<Device> device = make_device(ordinal);
  std::unique_ptr<Allocator> allocator = make_allocator(settings, *device);
  static const int registered = std::atexit(end_traces);
  (void)registered;
  torch.device = std::move(device);
  torch.allocator.store(allocator.get(), std::memory_order_release);
  return *allocator.release();
}

Allocator& allocator_of(int ordinal) {
  Allocator* const made = device_at(ordinal).allocator.load(std::memory_order_acquire);
  return made != nullptr ? *made : make(ordinal);
}

}  // namespace
}  // namespace headroom

using namespace headroom;

void* headroom_malloc(ssize_t size, int device, void* stream) {
  Allocator& allocator = allocator_of(device);
  void* const captured = device_at(device).pools.allocate(allocator, size, {stream});
  return captured != nullptr ? captured : allocator.allocate(size, {stream});
}

void headroom_free(void* pointer, ssize_t size, int device, void* stream) {
  if (pointer == nullptr) return;
  Allocator& allocator = allocator_of(device);
  if (!device_at(device).pools.deallocate(allocator, pointer)) allocator.deallocate(pointer, size, {stream});
}

// PyTorch does not pass the device. Addresses of devices differ, so a note on the wrong device does no harm.
void headroom_record_stream(void* pointer, void* stream) {
  for_each_allocator([&](Allocator& allocator) { allocator.record_use(pointer, {stream}); });
}

void headroom_empty_cache() {
  for_each_allocator([](Allocator& allocator) { allocator.trim(); });
}

void headroom_memory_fraction(double fraction, int device) {
  const std::lock_guard lock(devices().mutex);
  device_at(device).fraction = fraction;
}

void headroom_reset_peaks(int device) {
  if (Allocator* allocator = device_at(device).allocator.load(std::memory_order_acquire))
    allocator->reset_peaks();
}

size_t headroom_statistics(int device, char* text, size_t size) {
  const Allocator* allocator = device_at(device).allocator.load(std::memory_order_acquire);
  if (allocator == nullptr) return 0;
  const Statistics s = allocator->statistics();
  std::string json = fmt::format(
      "{{\"strategy\":\"{}\",\"allocations\":{},\"deallocations\":{},\"driver_calls\":{},"
      "\"driver_allocations\":{},\"driver_releases\":{},\"retries\":{},\"failures\":{},\"stream_waits\":{}",
      allocator->name(), s.allocations, s.deallocations, s.driver_calls(), s.driver_allocations,
      s.driver_releases, s.retries, s.failures, s.stream_waits);
  const std::pair<const char*, Gauge> gauges[] = {
      {"requested", s.requested}, {"allocated", s.allocated}, {"active", s.active}, {"reserved", s.reserved}};
  for (const auto& [name, gauge] : gauges) {
    json += fmt::format(",\"{0}_bytes\":{1},\"{0}_peak_bytes\":{2},\"{0}_total_bytes\":{3}", name,
                        gauge.current, gauge.peak, gauge.total);
  }
  json += '}';
  if (size > 0) {
    const size_t copied = std::min(size - 1, json.size());
    std::memcpy(text, json.data(), copied);
    text[copied] = '\0';
  }
  return json.size() + 1;
}

void headroom_begin_allocate_to_pool(int device, GraphPools::Id pool,
                                     std::function<bool(CUstream_st*)> takes_stream) {
  device_at(device).pools.begin(pool, [takes = std::move(takes_stream)](Stream stream) {
    return takes(static_cast<CUstream_st*>(stream.handle));
  });
}

void headroom_end_allocate_to_pool(int device, GraphPools::Id pool) {
  device_at(device).pools.end(pool);
}

void headroom_release_pool(int device, GraphPools::Id pool) {
  device_at(device).pools.release(pool, allocator_of(device));
}
