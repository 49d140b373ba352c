// The windows of convolutions and pools, as ONNX states them, on images with the channels last. Knows no
// graph.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/onnx/node_import.h"

namespace headroom::onnx {

// Sizes along H and W; only W for sequences, whose H is 1.
struct Window {
  Pair size = {1, 1}, stride = {1, 1}, dilation = {1, 1};
  Pair before = {0, 0}, after = {0, 0};  // padding

  bool is_symmetric() const { return before == after; }
};

// Returns the window of a node over x (N,C,L) or (N,C,H,W). Fails for other ranks and unknown padding. With
// ceil_mode the trailing padding grows until the last window fits.
Window window_of(const NodeImport& n, const Item& x, const std::vector<int64_t>& kernel);

// Images as our ops take them, (N,H,W,C), and back; a sequence is an image of one row.
Value image_of(NodeImport& n, const Item& x);
Item item_of_image(NodeImport& n, Value image, const Item& like);
// The image with padding of zeros around it, or of `value`.
Value padded_image(NodeImport& n, Value image, Pair before, Pair after, float value = 0);

}  // namespace headroom::onnx
