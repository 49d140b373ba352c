// The ops that replicas compute together, the same on every device. Knows no device and no graph.
#pragma once

#include <memory>
#include <span>

#include "kernels/kernel.h"

namespace headroom {

// `collective` may be null for kernels that only state what they need: running them throws InvalidArgument.
// Throws InvalidArgument when the op is for another number of replicas.
std::unique_ptr<Kernel> make_collective_kernel(const AllReduce& op, std::span<const TensorSpec> inputs,
                                               DeviceCollective* collective);
std::unique_ptr<Kernel> make_collective_kernel(const AllGatherUpdate& op, std::span<const TensorSpec> inputs,
                                               DeviceCollective* collective);

}  // namespace headroom
