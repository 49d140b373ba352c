#include "kernels/custom_kernel.h"

#include <fmt/format.h>

#include <exception>
#include <new>

#include "base/errors.h"
#include "kernels/function_kernel.h"

namespace headroom {

std::unique_ptr<Kernel> make_custom_kernel(const CustomOp& op, const CustomOp::KernelFunction& function,
                                           std::string_view field, const KernelRequest& request) {
  if (!function) {
    throw InvalidArgument(
        fmt::format("{} has no kernel for this device: its CustomOp has no function `{}`", op.name, field));
  }
  return function_kernel(
      [name = op.name, function](const KernelCall& call) {
        try {
          function(call);
        } catch (const Error&) {
          throw;
        } catch (const std::bad_alloc&) {
          throw;
        } catch (const std::exception& error) {
          throw Error(fmt::format("{}: its kernel failed: {}", name, error.what()));
        }
      },
      Custom(op).workspace_bytes(request.inputs));
}

}  // namespace headroom
