// The table of convolutions that every implementation of them is held to.
#pragma once

#include <optional>
#include <ostream>

#include "ops/ops.h"

namespace headroom::test {

struct ConvCase {
  const char* name;
  Shape x, filter;
  Conv2d conv;
  std::optional<Pool2d> pool;
};

// Returns the same convolution of a filter in cuDNN's order of axes.
inline Conv2d with_filter_by_result(Conv2d conv) {
  conv.filter_by_result = true;
  return conv;
}

// The row's name where GoogleTest names a row that failed.
inline void PrintTo(const ConvCase& row, std::ostream* stream) {
  *stream << row.name;
}

inline const ConvCase kConvCases[] = {
    {"net_first", {3, 28, 28, 1}, {3, 3, 1, 32}, {}, Pool2d{}},
    {"net_second", {3, 13, 13, 32}, {3, 3, 32, 64}, {}, Pool2d{}},
    {"net_third", {5, 5, 5, 64}, {3, 3, 64, 64}, {}, std::nullopt},
    {"one_by_one", {2, 4, 5, 16}, {1, 1, 16, 16}, {}, std::nullopt},
    {"batch_of_one", {1, 6, 6, 3}, {3, 3, 3, 5}, {}, Pool2d{}},
    {"odd_channels", {2, 7, 6, 5}, {3, 2, 5, 19}, {}, std::nullopt},
    {"odd_channels_pooled", {2, 9, 8, 5}, {3, 2, 5, 37}, {}, Pool2d{}},
    {"many_channels", {1, 5, 5, 48}, {3, 3, 48, 80}, {}, Pool2d{}},
    {"strided", {2, 9, 10, 4}, {3, 3, 4, 8}, {{2, 3}, {0, 0}, {1, 1}, 1}, std::nullopt},
    {"stride_above_window", {2, 9, 9, 4}, {2, 2, 4, 8}, {{3, 3}, {0, 0}, {1, 1}, 1}, std::nullopt},
    {"padded", {2, 6, 5, 16}, {3, 3, 16, 16}, {{1, 1}, {1, 1}, {1, 1}, 1}, Pool2d{}},
    {"padded_unevenly", {2, 6, 5, 3}, {3, 5, 3, 6}, {{1, 1}, {1, 2}, {1, 1}, 1}, std::nullopt},
    {"dilated", {1, 11, 12, 16}, {3, 3, 16, 16}, {{1, 1}, {0, 0}, {2, 3}, 1}, Pool2d{}},
    {"grouped", {2, 7, 7, 6}, {3, 3, 2, 9}, {{1, 1}, {0, 0}, {1, 1}, 3}, Pool2d{}},
    {"depthwise", {2, 7, 7, 16}, {3, 3, 1, 16}, {{1, 1}, {1, 1}, {1, 1}, 16}, std::nullopt},
    {"depthwise_odd", {2, 9, 8, 83}, {3, 5, 1, 83}, {{2, 1}, {1, 3}, {1, 2}, 83}, std::nullopt},
    {"depthwise_strided", {2, 9, 10, 24}, {5, 5, 1, 24}, {{2, 2}, {2, 2}, {1, 1}, 24}, std::nullopt},
    {"depthwise_pooled", {2, 8, 8, 24}, {3, 3, 1, 24}, {{1, 1}, {1, 1}, {1, 1}, 24}, Pool2d{}},
    {"depthwise_beyond", {1, 3, 3, 20}, {3, 3, 1, 20}, {{4, 3}, {4, 4}, {1, 1}, 20}, std::nullopt},
    {"depthwise_multiplied", {2, 6, 6, 5}, {3, 3, 1, 15}, {{1, 1}, {1, 1}, {1, 1}, 5}, std::nullopt},
    {"grouped_vectors", {2, 7, 7, 32}, {3, 3, 16, 32}, {{1, 1}, {0, 0}, {1, 1}, 2}, std::nullopt},
    {"everything", {2, 10, 9, 8}, {3, 2, 4, 12}, {{2, 1}, {1, 2}, {2, 1}, 2}, Pool2d{{2, 2}, {1, 2}, {0, 0}}},
    {"pool_overlapping", {2, 9, 9, 16}, {3, 3, 16, 16}, {}, Pool2d{{3, 3}, {2, 2}, {0, 0}}},
    {"pool_of_rows", {2, 8, 8, 16}, {1, 3, 16, 16}, {}, Pool2d{{2, 1}, {2, 1}, {0, 0}}},
    {"pool_overlapping_small", {2, 8, 8, 16}, {3, 3, 16, 16}, {}, Pool2d{{2, 2}, {1, 1}, {0, 0}}},
    {"pool_padded", {2, 8, 8, 16}, {3, 3, 16, 16}, {}, Pool2d{{3, 3}, {2, 2}, {1, 1}}},
    {"no_images", {0, 6, 6, 3}, {3, 3, 3, 16}, {}, Pool2d{}},
};

}  // namespace headroom::test
