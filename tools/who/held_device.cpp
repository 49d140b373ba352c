#include "tools/who/held_device.h"

#include "base/errors.h"

namespace headroom::who {

HeldDevice::HeldDevice(const RuntimeOptions& options, int64_t live_bytes)
    : device_name_(options.device),
      live_bytes_(live_bytes),
      device_(make_device(options, Backing::kNone)),  // nothing is computed
      is_simulated_(simulated_profile(options).has_value()),
      is_resized_(options.device_memory_bytes || options.others_bytes) {
  try {
    take(options);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const Error& error) {
    failure_ = error.what();
    exit_code_ = headroom::exit_code(error);
  }
}

void HeldDevice::take(const RuntimeOptions& options) {
  device_->initialize();
  context_bytes_ = device_->memory().info().process;
  RuntimeOptions settled = options;
  settle_strategy(settled, *device_);
  allocator_ = make_allocator(settled.strategy_settings(), *device_);
  for (const Library library : {Library::kBlas, Library::kDnn}) device_->libraries().start(library);
  for (const Library library : {Library::kNone, Library::kBlas, Library::kDnn}) {
    device_->libraries().load_module("", library);
  }
  if (live_bytes_ > 0) block_ = allocator_->allocate(live_bytes_);
}

HeldDevice::~HeldDevice() {
  if (block_ != nullptr) allocator_->deallocate(block_, live_bytes_);
}

Account HeldDevice::account() const {
  const MemoryInfo info = device_->memory().info();
  Ours ours{.context_bytes = context_bytes_};
  if (allocator_ != nullptr) {
    const Statistics now = allocator_->statistics();
    ours.live_bytes = now.allocated.current;
    ours.cached_bytes = now.reserved.current - now.allocated.current;
  }
  ours.libraries_bytes = info.process - ours.total_bytes();
  Account account;
  if (device_->kernel_target().gpu != nullptr && !is_resized_) {
    const GpuList list = list_gpus();
    if (const PhysicalGpu* gpu = list.find(*cuda_ordinal(device_name_))) {
      account = account_of(*gpu, ours);
    }
  }
  if (account.others.empty() && (is_simulated_ || is_resized_) && info.others > 0) {
    account.others.push_back({.pid = {}, .user = {}, .command = {}, .bytes = info.others});
  }
  account.device = device_name_;
  account.name = device_->description();
  account.simulated = is_simulated_;
  account.total_bytes = info.total;
  account.free_bytes = info.free;
  account.ours = ours;
  return account;
}

}  // namespace headroom::who
