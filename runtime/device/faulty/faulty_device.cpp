#include "runtime/device/faulty/faulty_device.h"

#include "runtime/device/faulty/faulty_stream_pool.h"
#include "runtime/device/library_failure.h"

namespace headroom {
namespace {

constexpr const char* kReason = "injected fault";

// Launches are driver calls too.
class FaultyRecording final : public Recording {
 public:
  FaultyRecording(std::unique_ptr<Recording> upstream, FaultInjector& faults, const std::string& device)
      : upstream_(std::move(upstream)), faults_(faults), device_(device) {}

  void launch(Stream stream) override {
    if (faults_.next_call_fails()) {
      throw DeviceError("cudaGraphLaunch", "cudaErrorLaunchFailure", kReason, device_);
    }
    upstream_->launch(stream);
  }

 private:
  std::unique_ptr<Recording> upstream_;
  FaultInjector& faults_;
  const std::string device_;
};

}  // namespace

std::unique_ptr<StreamOrderedPool> FaultyDevice::make_stream_ordered_pool(
    const StreamOrderedPoolSettings& settings) {
  std::unique_ptr<StreamOrderedPool> pool = upstream_.make_stream_ordered_pool(settings);
  return pool == nullptr ? nullptr : std::make_unique<FaultyStreamPool>(std::move(pool), faults_);
}

void FaultyDevice::initialise() {
  if (is_done("initialise")) return;
  if (faults_.next_call_fails()) {
    throw DeviceError("cuDevicePrimaryCtxRetain", "CUDA_ERROR_OUT_OF_MEMORY", kReason, name());
  }
  upstream_.initialise();
  mark_done("initialise");
}

void FaultyDevice::start_library(Library library) {
  if (library == Library::kNone) return;
  const std::string call = library == Library::kBlas ? "start blas" : "start dnn";
  if (is_done(call)) return;
  if (faults_.next_call_fails()) {
    throw library_start_failure(library, usual_start_status(library), kReason);
  }
  upstream_.start_library(library);
  mark_done(call);
}

void FaultyDevice::load_module(std::string_view op_name, Library library) {
  const std::string call = "load " + std::string(op_name);
  if (is_done(call)) return;
  if (faults_.next_call_fails()) {
    throw DeviceError("cuModuleLoadData", "CUDA_ERROR_OUT_OF_MEMORY", kReason, name());
  }
  upstream_.load_module(op_name, library);
  mark_done(call);
}

std::unique_ptr<Recording> FaultyDevice::record(std::span<const Task> tasks, int64_t repeats) {
  if (faults_.next_call_fails()) {
    throw DeviceError("cudaGraphInstantiate", "cudaErrorMemoryAllocation", kReason, name());
  }
  return std::make_unique<FaultyRecording>(upstream_.record(tasks, repeats), faults_, name());
}

void FaultyDevice::copy_to_device(void* device, const void* host, int64_t bytes, Stream stream) {
  memory_.count_copy();
  upstream_.copy_to_device(device, host, bytes, stream);
}

void FaultyDevice::copy_to_host(void* host, const void* device, int64_t bytes, Stream stream) {
  memory_.count_copy();
  upstream_.copy_to_host(host, device, bytes, stream);
}

bool FaultyDevice::is_done(const std::string& call) const {
  const std::lock_guard lock(mutex_);
  return done_.contains(call);
}

void FaultyDevice::mark_done(std::string call) {
  const std::lock_guard lock(mutex_);
  done_.insert(std::move(call));
}

}  // namespace headroom
