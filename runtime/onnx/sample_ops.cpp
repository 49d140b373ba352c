// ONNX's GridSample: values of an image between its pixels, at positions from a grid.
#include <fmt/format.h>

#include <array>

#include "base/text.h"
#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
namespace {

enum class Padding : uint8_t { kZeros, kBorder, kReflection };

// One axis of the images: `extent` pixels.
struct SampledAxis {
  int64_t extent = 1;
  bool align_corners = false;
  Padding padding = Padding::kZeros;
};

// A pixel beside each position: its number along an axis, and its weight in the sum.
struct Neighbor {
  Item pixel, weight;
};

Item times(NodeImport& n, const Item& x, double number) {
  return n.im.binary(BinaryKind::kMul, x, n.im.number(static_cast<float>(number)));
}

Item plus(NodeImport& n, const Item& x, double number) {
  return n.im.binary(BinaryKind::kAdd, x, n.im.number(static_cast<float>(number)));
}

// Positions in pixels, from those where -1 and 1 are the ends: the middle of the outer pixels with
// `align_corners`, otherwise their outer edge.
Item in_pixels(NodeImport& n, const SampledAxis& axis, const Item& position) {
  const auto extent = static_cast<double>(axis.extent);
  return axis.align_corners ? times(n, plus(n, position, 1), (extent - 1) / 2)
                            : times(n, plus(n, position, 1 - 1 / extent), extent / 2);
}

// Positions moved into the image as the padding says. They stay as they are for padding by zeros.
Item inside(NodeImport& n, const SampledAxis& axis, Item position) {
  const auto last = static_cast<double>(axis.extent - 1);
  if (axis.padding == Padding::kZeros) return position;
  if (axis.padding == Padding::kReflection) {
    // The distance from the first mirror goes up and down with a period of two lengths.
    const double mirror = axis.align_corners ? 0 : -0.5, length = axis.align_corners ? last : last + 1;
    if (length == 0) {
      position = times(n, position, 0);
    } else {
      const Item distance = n.im.unary(UnaryKind::kAbs, plus(n, position, -mirror));
      const Item turns = n.im.unary(UnaryKind::kFloor, times(n, distance, 1 / (2 * length)));
      const Item rest = n.im.binary(BinaryKind::kSub, distance, times(n, turns, 2 * length));
      const Item back = n.im.binary(BinaryKind::kSub, n.im.number(static_cast<float>(2 * length)), rest);
      position = plus(n, n.im.binary(BinaryKind::kMin, rest, back), mirror);
    }
  }
  return n.im.unary(UnaryKind::kClip, position, 0, static_cast<float>(last));
}

// Weight 0 for pixels outside of the image, which are read as pixel 0. Not a number is outside.
Neighbor bounded(NodeImport& n, const SampledAxis& axis, const Item& pixel, const Item& weight) {
  const Item zero = n.im.number(0), extent = n.im.number(static_cast<float>(axis.extent));
  const Item is_pixel =
      n.im.binary(BinaryKind::kMin, n.im.compare(CompareKind::kLess, n.im.number(-1), pixel),
                  n.im.compare(CompareKind::kLess, pixel, extent));
  return {n.im.cast(n.im.where(is_pixel, pixel, zero), ElementType::kInt64),
          n.im.where(is_pixel, weight, zero)};
}

// The weights of the four pixels around a position: Keys 1981, with a = -0.75 as PyTorch has it.
std::array<Item, 4> cubic_weights(NodeImport& n, const Item& share) {
  constexpr double a = -0.75;
  // a polynomial of t by Horner's rule
  const auto polynomial = [&](const Item& t, std::array<double, 4> c) {
    Item sum = times(n, t, c[0]);
    for (size_t i = 1; i < 3; ++i) sum = n.im.binary(BinaryKind::kMul, plus(n, sum, c[i]), t);
    return plus(n, sum, c[3]);
  };
  const std::array<double, 4> near = {a + 2, -(a + 3), 0, 1}, far = {a, -5 * a, 8 * a, -4 * a};
  const Item other = plus(n, times(n, share, -1), 1);
  return {polynomial(plus(n, share, 1), far), polynomial(share, near), polynomial(other, near),
          polynomial(plus(n, other, 1), far)};
}

std::vector<Neighbor> neighbors(NodeImport& n, const SampledAxis& axis, const std::string& mode,
                                Item position) {
  const Item one = n.im.expand(n.im.number(1), position.shape);
  if (mode == "nearest")
    return {bounded(n, axis, inside(n, axis, n.im.unary(UnaryKind::kRound, position)), one)};
  if (mode == "linear") position = inside(n, axis, position);
  const Item left = n.im.unary(UnaryKind::kFloor, position);
  const Item share = n.im.binary(BinaryKind::kSub, position, left);
  std::vector<Neighbor> all;
  if (mode == "linear") {
    all.push_back(bounded(n, axis, left, n.im.binary(BinaryKind::kSub, one, share)));
    all.push_back(bounded(n, axis, plus(n, left, 1), share));
    return all;
  }
  const std::array<Item, 4> weights = cubic_weights(n, share);
  for (int i = 0; i < 4; ++i)
    all.push_back(bounded(n, axis, inside(n, axis, plus(n, left, i - 1)), weights[static_cast<size_t>(i)]));
  return all;
}

}  // namespace

void import_grid_sample(NodeImport& n) {
  const Item &x = n.in(0), &grid = n.in(1);  // x (N,C,...), grid (N,...,axes)
  const int axes = x.rank() - 2;
  if (x.dtype() != DType::kF32 || grid.dtype() != DType::kF32) n.fail("takes integers");
  if (axes < 1 || axes > 3 || grid.rank() != x.rank() || grid.shape.last() != axes ||
      grid.shape[0] != x.shape[0]) {
    n.fail(fmt::format("takes {} at {}", to_string(x.shape), to_string(grid.shape)));
  }
  std::string mode = n.text("mode", "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  if (mode != "linear" && mode != "nearest" && mode != "cubic")
    n.fail(fmt::format("its mode is '{}'", printable(mode)));
  const std::string padding = n.text("padding_mode", "zeros");
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    n.fail(fmt::format("its padding_mode is '{}'", printable(padding)));
  if (x.shape.elements() > INT32_MAX) n.fail("indexes more than 2^31 elements");
  if (x.shape.elements() == 0) n.fail("takes an empty image");
  const Shape places(std::span<const int64_t>(grid.shape.begin(), static_cast<size_t>(axes) + 1));
  // Each neighbor of a position is one along every axis: the pixel's number among those of all images, and a
  // weight.
  std::vector<Neighbor> all = {{n.im.positions(0, axes + 1, x.shape[0]), n.im.number(1)}};
  for (int axis = 0; axis < axes; ++axis) {
    SampledAxis sampled{x.shape[2 + axis], n.integer("align_corners", 0) != 0};
    if (padding == "border") sampled.padding = Padding::kBorder;
    if (padding == "reflection") sampled.padding = Padding::kReflection;
    // The grid names the last axis first.
    Slice part{std::vector<int64_t>(static_cast<size_t>(axes) + 2, 0), grid.shape.with(axes + 1, 1)};
    part.begin[static_cast<size_t>(axes) + 1] = axes - 1 - axis;
    const Item position = in_pixels(n, sampled, n.im.reshape(n.im.slice(grid, part), places));
    std::vector<Neighbor> longer;
    for (const Neighbor& one : neighbors(n, sampled, mode, position)) {
      for (const Neighbor& before : all) {
        longer.push_back(
            {n.im.binary(BinaryKind::kAdd,
                         n.im.binary(BinaryKind::kMul, before.pixel, n.im.whole(sampled.extent)), one.pixel),
             n.im.binary(BinaryKind::kMul, before.weight, one.weight)});
      }
    }
    all = std::move(longer);
  }
  Axes pixels_first = {0}, back = {0, axes + 1};
  for (int axis = 0; axis < axes; ++axis) {
    pixels_first.push_back(2 + axis);
    back.push_back(1 + axis);
  }
  pixels_first.push_back(1);
  const int64_t channels = x.shape[1];
  const Item table = n.im.reshape(n.im.transpose(x, pixels_first), {x.shape.elements() / channels, channels});
  std::vector<int64_t> apart(places.begin(), places.end());
  apart.push_back(1);
  const Shape column{std::span<const int64_t>(apart)};
  std::optional<Item> sum;
  for (const Neighbor& one : all) {
    const Item part =
        n.im.binary(BinaryKind::kMul, n.im.gather(table, one.pixel, 0), n.im.reshape(one.weight, column));
    sum = sum ? n.im.binary(BinaryKind::kAdd, *sum, part) : part;
  }
  n.out(n.im.transpose(*sum, back));
}

}  // namespace headroom::onnx
