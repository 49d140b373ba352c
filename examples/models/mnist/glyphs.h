// How people write the ten digits: for each a few styles, as pen strokes through control points. Knows
// nothing of pixels.
#pragma once

#include <span>

namespace headroom {

// In a box of 100 x 100, y downwards; the box is as high as the digit.
struct PenPoint {
  int x;
  int y;
};

// The pen goes through all points in one curve (Catmull-Rom); a corner is the end of one stroke and the start
// of the next.
using Stroke = std::span<const PenPoint>;
using Glyph = std::span<const Stroke>;

// The styles of `digit` in [0, 10); never empty.
std::span<const Glyph> glyphs_of(int digit);

}  // namespace headroom
