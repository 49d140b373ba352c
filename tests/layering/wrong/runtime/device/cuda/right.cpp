// Nothing wrong here: what the check must leave alone.
#include <cublas_v2.h>
#include <fmt/format.h>

#include <vector>

#include "runtime/base/errors.h"
#include "runtime/device/device.h"
