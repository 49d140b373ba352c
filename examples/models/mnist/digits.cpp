#include "examples/models/mnist/digits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "base/errors.h"
#include "base/random.h"
#include "examples/models/mnist/glyphs.h"

// Produces the same bytes on every machine: doubles are only added, subtracted, multiplied, divided and
// rooted, for which IEEE 754 defines the rounding. This file is compiled without fused multiply-adds and
// calls no libm function that may differ between machines.

namespace headroom {
namespace {

struct Point {
  double x, y;
};

// The random numbers of one image.
class Dice {
 public:
  Dice(uint64_t seed, int64_t index) : seed_(seed), stream_(kDigitStreams | static_cast<uint64_t>(index)) {}

  // In [low, high).
  double uniform(double low, double high) { return low + (high - low) * (next() * 0x1p-32); }
  // Bell-shaped around 0, within [-2, 2], with standard deviation 0.58: the sum of four uniforms.
  double bell() {
    double sum = -2;
    for (int i = 0; i < 4; ++i) sum += next() * 0x1p-32;
    return sum;
  }
  size_t choice(size_t count) { return next() % count; }

 private:
  // Distinct from the streams of shuffling and of weights, which count from 0.
  static constexpr uint64_t kDigitStreams = uint64_t{1} << 63;

  uint32_t next() {
    if (drawn_ % 4 == 0) words_ = random_words(seed_, stream_, drawn_ / 4);
    return words_[drawn_++ % 4];
  }
  uint64_t seed_, stream_;
  uint64_t drawn_ = 0;
  PhiloxCounter words_{};
};

// The handwriting of one digit: maps the box of the glyph to pixels.
class Hand {
 public:
  explicit Hand(Dice& dice) {
    for (Point& shift : bend_) shift = {5.5 * dice.bell(), 5.5 * dice.bell()};
    const double height = 20.0 + 1.6 * dice.bell();  // MNIST fits digits into 20 of 28 pixels
    const double width = height * (0.92 + 0.2 * dice.bell());
    const double angle = 0.13 * dice.bell();  // radians
    const double slant = 0.12 + 0.22 * dice.bell();
    // Taylor series, good to 1e-5 below 0.3.
    const double sine = angle - angle * angle * angle / 6;
    const double cosine = 1 - angle * angle / 2 + angle * angle * angle * angle / 24;
    xx_ = cosine * width / 100;
    xy_ = -(cosine * slant + sine) * height / 100;
    yx_ = sine * width / 100;
    yy_ = (cosine - sine * slant) * height / 100;
    shift_ = {14.0 + 1.1 * dice.bell(), 14.0 + 1.1 * dice.bell()};
    radius_ = 1.3 + 0.4 * dice.bell();
    taper_ = 0.25 * dice.bell();
    ink_ = dice.uniform(225, 255);
  }

  Point place(Point p) const {
    const Point moved = bent(p);
    const double x = moved.x - 50, y = moved.y - 50;
    return {shift_.x + xx_ * x + xy_ * y, shift_.y + yx_ * x + yy_ * y};
  }
  // Half the width of the stroke, in pixels, at height y of the box. Pressure changes from top to bottom.
  double radius(double y) const { return std::max(0.7, radius_ + taper_ * (y - 50) / 50); }
  double ink() const { return ink_; }

 private:
  static constexpr size_t kGrid = 4;

  // Warps the box by random shifts, interpolated on a grid, so that touching strokes stay together.
  Point bent(Point p) const {
    const double gx = std::clamp(p.x / 100 * (kGrid - 1), 0.0, kGrid - 1.001);
    const double gy = std::clamp(p.y / 100 * (kGrid - 1), 0.0, kGrid - 1.001);
    const auto column = static_cast<size_t>(gx), row = static_cast<size_t>(gy);
    const double fx = gx - static_cast<double>(column), fy = gy - static_cast<double>(row);
    const Point* corner = &bend_[row * kGrid + column];
    const auto blend = [&](double a, double b, double c, double d) {
      return (a * (1 - fx) + b * fx) * (1 - fy) + (c * (1 - fx) + d * fx) * fy;
    };
    return {p.x + blend(corner[0].x, corner[1].x, corner[kGrid].x, corner[kGrid + 1].x),
            p.y + blend(corner[0].y, corner[1].y, corner[kGrid].y, corner[kGrid + 1].y)};
  }

  std::array<Point, kGrid * kGrid> bend_;
  double xx_, xy_, yx_, yy_;
  Point shift_;
  double radius_, taper_, ink_;
};

// Depth of each pixel's center inside the ink, in pixels; negative outside.
class Canvas {
 public:
  Canvas() { depth_.fill(-1); }

  void draw_segment(Point a, Point b, double radius) {
    // A pixel whose center is half a pixel or more outside gets no ink, so its depth does not count. The
    // margin is for rounding.
    const double reach = radius + 1e-6, far = (reach + 0.5) * (reach + 0.5);
    const auto low = [](double v) { return static_cast<int64_t>(std::clamp(v, 0.0, Dataset::kSide - 1.0)); };
    const double dx = b.x - a.x, dy = b.y - a.y;
    const double length2 = std::max(dx * dx + dy * dy, 1e-12);
    for (int64_t y = low(std::min(a.y, b.y) - reach); y <= low(std::max(a.y, b.y) + reach); ++y) {
      for (int64_t x = low(std::min(a.x, b.x) - reach); x <= low(std::max(a.x, b.x) + reach); ++x) {
        const double px = static_cast<double>(x) + 0.5 - a.x, py = static_cast<double>(y) + 0.5 - a.y;
        const double along = std::clamp((px * dx + py * dy) / length2, 0.0, 1.0);
        const double ex = px - along * dx, ey = py - along * dy;
        const double distance2 = ex * ex + ey * ey;
        if (distance2 >= far) continue;
        double& depth = depth_[static_cast<size_t>(y * Dataset::kSide + x)];
        depth = std::max(depth, radius - std::sqrt(distance2));
      }
    }
  }

  // Softens edges over one pixel and adds noise to the ink.
  void develop(double ink, Dice& dice, uint8_t* image) const {
    for (const double depth : depth_) {
      const double cover = std::clamp(depth + 0.5, 0.0, 1.0);
      const double value = cover == 0 ? 0 : cover * ink + 14 * dice.bell() * cover;
      *image++ = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
    }
  }

 private:
  std::array<double, Dataset::kImageBytes> depth_;
};

// The point at t in [0, 1] between p1 and p2 of a Catmull-Rom curve.
Point curve_point(Point p0, Point p1, Point p2, Point p3, double t) {
  const auto axis = [t](double a, double b, double c, double d) {
    return 0.5 * (2 * b + t * ((c - a) + t * ((2 * a - 5 * b + 4 * c - d) + t * (3 * b - a - 3 * c + d))));
  };
  return {axis(p0.x, p1.x, p2.x, p3.x), axis(p0.y, p1.y, p2.y, p3.y)};
}

void draw_stroke(Stroke stroke, const Hand& hand, Canvas& canvas) {
  constexpr int kSteps = 6;  // per pair of control points: segments of one to two pixels
  const auto control = [&](size_t i) {
    return Point{static_cast<double>(stroke[i].x), static_cast<double>(stroke[i].y)};
  };
  const size_t last = stroke.size() - 1;
  Point from = hand.place(control(0));
  for (size_t i = 0; i < last; ++i) {
    for (int step = 1; step <= kSteps; ++step) {
      const Point p = curve_point(control(i == 0 ? 0 : i - 1), control(i), control(i + 1),
                                  control(std::min(i + 2, last)), static_cast<double>(step) / kSteps);
      const Point to = hand.place(p);
      canvas.draw_segment(from, to, hand.radius(p.y));
      from = to;
    }
  }
}

}  // namespace

Dataset draw_digits(int64_t count, uint64_t seed, int64_t first) {
  if (count < 0 || first < 0) {
    throw InvalidArgument(
        fmt::format("draw_digits: count {} and first {} must not be negative", count, first));
  }
  Dataset result{.count = count,
                 .images = std::vector<uint8_t>(static_cast<size_t>(count * Dataset::kImageBytes)),
                 .labels = std::vector<uint8_t>(static_cast<size_t>(count))};
  for (int64_t i = 0; i < count; ++i) {
    Dice dice(seed, first + i);
    const auto digit = dice.choice(Dataset::kClasses);
    const std::span<const Glyph> styles = glyphs_of(static_cast<int>(digit));
    const Glyph glyph = styles[dice.choice(styles.size())];
    const Hand hand(dice);
    Canvas canvas;
    for (const Stroke stroke : glyph) draw_stroke(stroke, hand, canvas);
    canvas.develop(hand.ink(), dice, result.images.data() + i * Dataset::kImageBytes);
    result.labels[static_cast<size_t>(i)] = static_cast<uint8_t>(digit);
  }
  return result;
}

}  // namespace headroom
