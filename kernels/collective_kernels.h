// The ops that replicas compute together. Their kernels are the same on every device.
#pragma once

#include <memory>

#include "kernels/kernel.h"

namespace headroom {

// If the settings have no collective, a kernel can only report its needs: running it throws InvalidArgument.
// Throws InvalidArgument if the op is for another number of replicas.
std::unique_ptr<Kernel> make_kernel(const AllReduce& op, const KernelRequest& request);
std::unique_ptr<Kernel> make_kernel(const AllGatherUpdate& op, const KernelRequest& request);

}  // namespace headroom
