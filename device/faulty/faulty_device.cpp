#include "device/faulty/faulty_device.h"

#include <utility>

namespace headroom {
namespace {

constexpr const char* kReason = "injected fault";

// Launches are driver calls too.
class FaultyCapture final : public Capture {
 public:
  FaultyCapture(std::unique_ptr<Capture> upstream, FaultInjector& faults, const std::string& device)
      : upstream_(std::move(upstream)), faults_(faults), device_(device) {}

  void launch(Stream stream) override {
    if (faults_.next_call_fails()) {
      throw DeviceError("cudaGraphLaunch", "cudaErrorLaunchFailure", kReason, device_);
    }
    upstream_->launch(stream);
  }

 private:
  std::unique_ptr<Capture> upstream_;
  FaultInjector& faults_;
  const std::string device_;
};

}  // namespace

void FaultyDevice::initialize() {
  if (is_done("initialize")) return upstream_.initialize();
  if (faults_.next_call_fails()) {
    throw DeviceError("cuDevicePrimaryCtxRetain", "CUDA_ERROR_OUT_OF_MEMORY", kReason, name());
  }
  upstream_.initialize();
  mark_done("initialize");
}

bool FaultyDevice::copy_from(Device& other, void* to, const void* from, int64_t bytes, Stream stream) {
  memory_.count_copy();
  return upstream_.copy_from(other, to, from, bytes, stream);
}

void FaultyDevice::FaultyLibraries::start(Library library) {
  if (library == Library::kNone) return;
  const std::string call = library == Library::kBlas ? "start blas" : "start dnn";
  if (device_.is_done(call)) return;
  if (device_.faults_.next_call_fails()) {
    throw library_start_failure(library, usual_start_status(library), kReason);
  }
  upstream().start(library);
  device_.mark_done(call);
}

void FaultyDevice::FaultyLibraries::load_module(std::string_view op_name, Library library) {
  const std::string call = "load " + std::string(op_name);
  if (device_.is_done(call)) return;
  if (device_.faults_.next_call_fails()) {
    throw DeviceError("cuModuleLoadData", "CUDA_ERROR_OUT_OF_MEMORY", kReason, device_.name());
  }
  upstream().load_module(op_name, library);
  device_.mark_done(call);
}

std::unique_ptr<Capture> FaultyDevice::FaultyCaptures::capture(std::span<const Task> tasks, int64_t repeats) {
  if (device_.faults_.next_call_fails()) {
    throw DeviceError("cudaGraphInstantiate", "cudaErrorMemoryAllocation", kReason, device_.name());
  }
  return std::make_unique<FaultyCapture>(device_.upstream_.captures().capture(tasks, repeats),
                                         device_.faults_, device_.name());
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
