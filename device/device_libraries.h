// The libraries of a device: when their handles and kernels take memory, and the errors of one that cannot
// start. Knows no kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/errors.h"

namespace headroom {

// Libraries whose handle takes device memory when it is made. kBlas multiplies matrices, kDnn convolves.
enum class Library : uint8_t { kNone, kBlas, kDnn };

// The base class serves devices on which libraries take nothing.
class DeviceLibraries {
 public:
  virtual ~DeviceLibraries() = default;

  // Makes the library's handle, once. Throws LibraryError when it cannot, with the failing call's status and
  // the lines that a user sees; a later call tries again.
  virtual void start(Library) {}
  // Loads the code of one op, once per op name, as lazy module loading does at the first launch. Throws
  // DeviceError.
  virtual void load_module(std::string_view /*op_name*/, Library) {}
  // Says which libraries programs use, kNone for kernels that belong to none; a later call adds to them.
  // Before the first one they may use all.
  virtual void expect(std::span<const Library> libraries);
  virtual bool is_expected(Library library) const;
  // Returns the bytes that start and load_module may still allocate on the device for the expected libraries:
  // the room that a cap on the whole process must leave. Decreases as they allocate; 0 if unknown.
  virtual int64_t pending_bytes() const { return 0; }
  // Returns true if a kernel starts libraries and loads code when it is made; false if its first run does.
  virtual bool start_with_kernels() const { return false; }

 private:
  std::atomic<unsigned> expected_ = 0;  // a bit for each Library
};

// Returns the status that current libraries return when memory is short, "CUBLAS_STATUS_ALLOC_FAILED",
// "CUDNN_STATUS_INTERNAL_ERROR" (measured with CUDA 13.0 and cuDNN 9.14 on an H200).
std::string usual_start_status(Library library);

// The error of a library whose handle cannot be made, with the lines of TensorFlow's log that lead to it.
// `library` is kBlas or kDnn; `reason` adds the numbers ("needs ..., ... free") to the message.
LibraryError library_start_failure(Library library, const std::string& status, const std::string& reason);

// The error of GPU `ordinal` whose context cannot be made, in TensorFlow's words.
DeviceError context_failure(int ordinal, const std::string& status, const std::string& description,
                            int64_t total_bytes);

}  // namespace headroom
