#include "runtime/start_op.h"

#include "runtime/core/errors.h"

namespace headroom {

void start_op(const Op& op, Device& device, Allocator& allocator) {
  const Library library = library_of(op);
  const auto start = [&] {
    device.start_library(library);
    device.load_module(op_name(op), library);
  };
  try {
    start();
  } catch (const Error&) {
    if (allocator.trim() == 0) throw;
    start();
  }
}

}  // namespace headroom
