#include "device/host/simulated_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

constexpr std::array kLibraries = {Library::kNone, Library::kBlas, Library::kDnn};

constexpr size_t index(Library library) {
  return static_cast<size_t>(library);
}

}  // namespace

void SimulatedLibraries::initialize() {
  const std::lock_guard lock(mutex_);
  make_context();
}

void SimulatedLibraries::make_context() {
  if (has_context_) return;
  if (!memory_.try_take_context(profile_.context_bytes, profile_.kept_context_bytes())) {
    throw context_failure(ordinal_, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", profile_.total_bytes);
  }
  has_context_ = true;
}

void SimulatedLibraries::start(Library library) {
  if (library == Library::kNone) return;
  const std::lock_guard lock(mutex_);
  if (started_[index(library)]) return;
  make_context();
  const LibraryProfile cost = profile_.library(library);
  if (!memory_.try_take(cost.handle_bytes, cost.needed_bytes)) {
    throw library_start_failure(library, cost.failure_status,
                                fmt::format("needs {}, {} free on the device",
                                            format_bytes(std::max(cost.needed_bytes, cost.handle_bytes)),
                                            format_bytes(memory_.info().free)));
  }
  started_[index(library)] = true;
}

void SimulatedLibraries::load_module(std::string_view op_name, Library library) {
  const std::lock_guard lock(mutex_);
  if (loaded_[index(library)]) return;
  make_context();
  const int64_t bytes = profile_.library(library).module_bytes;
  if (!memory_.try_take(bytes)) {
    throw DeviceError("cuModuleLoadData", "CUDA_ERROR_OUT_OF_MEMORY",
                      fmt::format("out of memory; kernels of {} need {}, {} free on the device", op_name,
                                  format_bytes(bytes), format_bytes(memory_.info().free)),
                      device_name_);
  }
  loaded_[index(library)] = true;
}

int64_t SimulatedLibraries::pending_bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = has_context_ ? 0 : profile_.kept_context_bytes();
  for (const Library library : kLibraries) {
    if (!is_expected(library)) continue;
    const LibraryProfile cost = profile_.library(library);
    if (!started_[index(library)]) bytes += cost.handle_bytes;
    if (!loaded_[index(library)]) bytes += cost.module_bytes;
  }
  return bytes;
}

int64_t SimulatedLibraries::held_bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const Library library : kLibraries) {
    const LibraryProfile cost = profile_.library(library);
    if (started_[index(library)]) bytes += cost.handle_bytes;
    if (loaded_[index(library)]) bytes += cost.module_bytes;
  }
  return bytes;
}

SimulatedGpu::SimulatedGpu(DeviceProfile profile, int ordinal, Backing backing, std::string name, int threads)
    : profile_(std::move(profile)),
      info_{name.empty() ? fmt::format("/device:GPU:{}", ordinal) : std::move(name),
            "simulated " + profile_.name, profile_.compute_capability},
      streams_(profile_.kernel_us, profile_.kernel_us > 0 || profile_.copy_bytes_per_us > 0),
      memory_(profile_, streams_, backing),
      libraries_(profile_, info_.name, ordinal, memory_),
      captures_(streams_),
      kernel_threads_(threads) {}

std::unique_ptr<SimulatedGpu> make_simulated_gpu(std::string_view profile_name, int ordinal) {
  return std::make_unique<SimulatedGpu>(find_profile(profile_name), ordinal);
}

}  // namespace headroom
