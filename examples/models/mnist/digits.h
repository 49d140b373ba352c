// Draws handwritten-looking digits, so that training runs without a download. Knows no files and no tensors.
#pragma once

#include <cstdint>

#include "examples/models/mnist/dataset.h"

namespace headroom {

// `count` digits. Image i depends on (seed, first + i) alone and has the same bytes on every machine, so two
// ranges that do not overlap serve as training and test data. Throws InvalidArgument for a negative count or
// first.
Dataset draw_digits(int64_t count, uint64_t seed, int64_t first = 0);

}  // namespace headroom
