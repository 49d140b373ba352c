// The kernels of ops that a program describes itself, on every device.
#pragma once

#include <memory>
#include <string_view>

#include "kernels/kernel.h"

namespace headroom {

// The kernel that calls `function`, the field `field` ("cpu") of the description. Its run() throws what the
// function throws: errors of ours as they are, others as an Error that names the op. Throws InvalidArgument
// if the function is absent.
std::unique_ptr<Kernel> make_custom_kernel(const CustomOp& op, const CustomOp::KernelFunction& function,
                                           std::string_view field, const KernelRequest& request);

}  // namespace headroom
