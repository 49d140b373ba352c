// Nothing wrong here: what the check must leave alone.
#include <cublas_v2.h>
#include <fmt/format.h>

#include <vector>

#include "base/errors.h"
#include "device/device.h"
