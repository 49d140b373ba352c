// The ops that replicas compute together. Their kernels are the same on every device.
#pragma once

#include <memory>

#include "kernels/kernel.h"

namespace headroom {

// Without a collective in the settings a kernel can only say what it needs: running it throws
// InvalidArgument. Throws InvalidArgument when the op is for another number of replicas.
std::unique_ptr<Kernel> make_kernel(const AllReduce& op, const KernelRequest& request);
std::unique_ptr<Kernel> make_kernel(const AllGatherUpdate& op, const KernelRequest& request);

}  // namespace headroom
