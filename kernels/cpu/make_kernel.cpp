#include "kernels/cpu/cpu_kernels.h"
