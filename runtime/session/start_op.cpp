#include "runtime/session/start_op.h"

namespace headroom {

void start_op(const Op& op, Device& device, Allocator& allocator) {
  if (device.kind() == DeviceKind::kCuda) return;  // its kernels started what they call when they were made
  if (std::holds_alternative<CopyToDevice>(op)) return;  // the driver's own
  const Library library = library_of(op);
  with_idle_memory(allocator, [&] {
    device.start_library(library);
    device.load_module(op_name(op), library);
  });
}

int64_t start_library_handles(Device& device) {
  device.initialise();
  for (const Library library : {Library::kBlas, Library::kDnn}) device.start_library(library);
  return device.pending_library_bytes();
}

}  // namespace headroom
