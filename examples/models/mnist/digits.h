// Draws digits that look handwritten, so that training needs no download. Knows no files and no tensors.
#pragma once

#include <cstdint>

#include "examples/models/mnist/dataset.h"

namespace headroom {

// Generates `count` digits. Image i depends only on (seed, first + i) and has the same bytes on every
// machine, so two disjoint ranges serve as training and test data. Throws InvalidArgument for a negative
// count or first.
Dataset draw_digits(int64_t count, uint64_t seed, int64_t first = 0);

}  // namespace headroom
