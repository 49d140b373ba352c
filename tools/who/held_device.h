// A device whose context, libraries and strategy this process really takes, as a program would, so that its
// share of the memory can be seen. Knows no net.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/app/options.h"
#include "tools/who/account.h"

namespace headroom::who {

class HeldDevice {
 public:
  // Takes all in the order in which a program does, and at last a block of `live_bytes`. Throws
  // InvalidArgument for options that are wrong; what fails after that is kept in failure(), and what had been
  // taken stays.
  HeldDevice(const RuntimeOptions& options, int64_t live_bytes);
  ~HeldDevice();
  HeldDevice(const HeldDevice&) = delete;
  HeldDevice& operator=(const HeldDevice&) = delete;

  // As it is now.
  Account account() const;
  // Empty when all could be taken, else one line; and the exit code that belongs to it.
  const std::string& failure() const { return failure_; }
  int exit_code() const { return exit_code_; }

 private:
  void take(const RuntimeOptions& options);

  const std::string device_name_;
  const int64_t live_bytes_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
  void* block_ = nullptr;
  int64_t context_bytes_ = 0;
  bool is_simulated_;
  bool is_resized_;  // the options say how large the device is, or what others hold
  std::string failure_;
  int exit_code_ = 0;
};

}  // namespace headroom::who
