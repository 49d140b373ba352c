#include "allocators/allocator.h"
