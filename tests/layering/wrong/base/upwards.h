// Every include here is wrong: the core knows nobody above it, and no header shows a third party's.
#pragma once

#include <fmt/format.h>
#include <mpi.h>

#include "allocators/allocator.h"
#include "errors.h"
