// The GPUs that CUDA shows to this process. Apart from the device, so that a program that only lists them
// need not load cuBLAS and cuDNN. Knows no memory and no library.
#pragma once

#include <string>

namespace headroom::cuda {

// Returns the number of visible GPUs, at least one. Throws InvalidArgument with the reason if there is none.
int count_gpus();

// "0000:3b:00.0". Throws DeviceError when there is no GPU of that ordinal.
std::string pci_bus_id_of(int ordinal);

}  // namespace headroom::cuda
