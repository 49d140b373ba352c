// A device that this process really starts, with context, libraries and strategy, as a program would, to show
// its share of the memory. Knows no net.
#pragma once

#include <memory>
#include <string>

#include "runtime/app/options.h"
#include "tools/who/account.h"

namespace headroom::who {

class HeldDevice {
 public:
  // Takes the memory in the order of a program, then a block of `live_bytes`. Throws InvalidArgument for
  // wrong options. A later failure is kept in failure(), and the memory taken before it stays.
  HeldDevice(const RuntimeOptions& options, int64_t live_bytes);
  ~HeldDevice();
  HeldDevice(const HeldDevice&) = delete;
  HeldDevice& operator=(const HeldDevice&) = delete;

  // The current state.
  Account account() const;
  // Empty if everything could be allocated, otherwise one line; and its exit code.
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
  bool is_resized_;  // the options set its size or what others hold
  std::string failure_;
  int exit_code_ = 0;
};

}  // namespace headroom::who
