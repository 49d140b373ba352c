// The GPUs that CUDA shows to this process. Apart from the device, so that a program that only lists them
// need not load cuBLAS and cuDNN. Knows no memory and no library.
#pragma once

#include <string>

namespace headroom::cuda {

// How many are visible, at least one. Throws InvalidArgument when there is none, with the reason.
int count_gpus();

// "0000:3b:00.0". Throws DeviceError when there is no GPU of that ordinal.
std::string pci_bus_id_of(int ordinal);

}  // namespace headroom::cuda
