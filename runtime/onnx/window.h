// The windows of convolutions and pools, as ONNX states them, on images with the channels last. Knows no
// graph.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/onnx/node_import.h"

namespace headroom::onnx {

// A window along one axis.
struct AxisWindow {
  int size = 1, stride = 1, dilation = 1;
  int before = 0, after = 0;  // padding
  int added = 0;              // the part of `after` that ceil_mode alone adds

  int64_t span() const { return int64_t{size - 1} * dilation + 1; }
};

// A window over an image: along H and W.
struct Window {
  Pair size = {1, 1}, stride = {1, 1}, dilation = {1, 1};
  Pair before = {0, 0}, after = {0, 0}, added = {0, 0};

  bool is_symmetric() const { return before == after; }
};
Window window_of(const AxisWindow& down, const AxisWindow& across);

// Returns the windows of a node over x (N,C,L), (N,C,H,W) or (N,C,D,H,W), one for each axis after the second.
// Fails for other ranks and unknown padding. With ceil_mode the trailing padding grows until the last window
// fits.
std::vector<AxisWindow> axis_windows(const NodeImport& n, const Item& x, const std::vector<int64_t>& kernel);
// The extents of a filter (K,C,...) after its first two. Fails if `kernel_shape` says otherwise.
std::vector<int64_t> kernel_of(const NodeImport& n, const Item& filter);
// An integer of a window that is at least `least`, and not so large that sums of them overflow.
int window_integer(const NodeImport& n, int64_t value, int64_t least);

// Images as our ops take them, (N,H,W,C), and back; a sequence is an image of one row, and a volume a value
// (N,D,H,W,C).
Value image_of(NodeImport& n, const Item& x);
Item item_of_image(NodeImport& n, Value image, const Item& like);
// The image with padding of zeros around it.
Value padded_image(NodeImport& n, Value image, Pair before, Pair after);

}  // namespace headroom::onnx
