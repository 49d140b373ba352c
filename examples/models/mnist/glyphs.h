// Styles of writing the ten digits, as pen strokes through control points. Knows no pixels.
#pragma once

#include <span>

namespace headroom {

// In a box of 100 x 100, y downwards; the box is as high as the digit.
struct PenPoint {
  int x;
  int y;
};

// One Catmull-Rom curve through all points. A corner ends one stroke and starts the next.
using Stroke = std::span<const PenPoint>;
using Glyph = std::span<const Stroke>;

// The styles of `digit` in [0, 10); never empty.
std::span<const Glyph> glyphs_of(int digit);

}  // namespace headroom
