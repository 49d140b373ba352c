// The words in which a library or a context that cannot start is known to users. Knows no device.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/errors.h"
#include "runtime/device/device.h"

namespace headroom {

// "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_INTERNAL_ERROR": what today's libraries answer when memory is
// short (measured with CUDA 13.0 and cuDNN 9.14 on an H200).
std::string usual_start_status(Library library);

// The error of a library whose handle cannot be made, with the lines of TensorFlow's log that lead to it.
// `library` is kBlas or kDnn; `reason` adds the numbers ("needs ..., ... free") to the message.
LibraryError library_start_failure(Library library, const std::string& status, const std::string& reason);

// The error of GPU `ordinal` whose context cannot be made, in TensorFlow's words.
DeviceError context_failure(int ordinal, const std::string& status, const std::string& description,
                            int64_t total_bytes);

}  // namespace headroom
