// Wrong: kernels and allocators never meet, and CUDA stays under cuda/.
#include <cuda_runtime.h>

#include "allocators/allocator.h"
#include "runtime/graph/graph.h"
