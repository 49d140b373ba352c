// ONNX ops that pool, resize and sample images.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "base/text.h"
#include "runtime/onnx/op_table.h"
#include "runtime/onnx/window.h"

namespace headroom::onnx {
namespace {

std::vector<int> image_axes(const NodeImport& n) {
  std::vector<int> axes;
  for (int axis = 2; axis < n.in(0).rank(); ++axis) axes.push_back(axis);
  if (axes.empty()) n.fail(fmt::format("takes {}, which is not an image", to_string(n.in(0).shape)));
  return axes;
}

Pool2d pool_of(const Window& window) {
  return {window.size, window.stride, window.before};
}

// Returns true if our pools support the padding directly.
bool is_plain(const Window& window) {
  return window.is_symmetric() && window.before[0] < window.size[0] && window.before[1] < window.size[1];
}

// A constant over the rows of images (N,H,W,C) if `axis` is 0, over their columns if it is 1.
Value over_axis(const NodeImport& n, size_t axis, int64_t extent,
                const std::function<float(int64_t)>& number) {
  if (extent > 1 << 24) n.fail("pads an image that is too large");
  const HostTensor numbers({DType::kF32, axis == 0 ? Shape{extent, 1, 1} : Shape{extent, 1}});
  for (int64_t i = 0; i < extent; ++i) numbers.data<float>()[static_cast<size_t>(i)] = number(i);
  return n.im.plain(n.im.constant(numbers, ElementType::kFloat));
}

// Images (N,H,W,C) with the maximum of each window.
Value max_pooled(NodeImport& n, Value image, const Window& window) {
  if (window.dilation != Pair{1, 1}) n.fail("its window is dilated");
  if (int64_t{window.size[0]} * window.size[1] > kNoGradient) {
    n.fail(fmt::format("its window has more than {} positions", kNoGradient));
  }
  if (is_plain(window)) return n.im.add_one(MaxPool{pool_of(window)}, {image});
  const Shape inner = image.shape();
  image = padded_image(n, image, window.before, window.after);
  for (size_t axis = 0; axis < 2; ++axis) {
    if (window.before[axis] == 0 && window.after[axis] == 0) continue;
    const int64_t begin = window.before[axis], end = begin + inner[static_cast<int>(1 + axis)];
    const Value outside = over_axis(n, axis, end + window.after[axis], [&](int64_t at) {
      return at < begin || at >= end ? -std::numeric_limits<float>::infinity() : 0.0f;
    });
    image = n.im.add_one(Binary{BinaryKind::kAdd}, {image, outside});
  }
  return n.im.add_one(MaxPool{{window.size, window.stride, {0, 0}}}, {image});
}

// Images (N,H,W,C) with the average of each window.
Value average_pooled(NodeImport& n, Value image, const Window& window) {
  if (window.dilation != Pair{1, 1}) n.fail("its window is dilated");
  const Shape inner = image.shape();
  const bool counts_padding = n.integer("count_include_pad", 0) != 0;
  const bool is_unpadded = window.before == Pair{0, 0} && window.after == Pair{0, 0};
  if (is_unpadded || (is_plain(window) && !counts_padding)) {
    return n.im.add_one(AvgPool{pool_of(window)}, {image});
  }
  // Computes the average over the whole window, then divides by the share of its positions that count, which
  // is the product of the axes' shares. Padding that only ceil_mode adds never counts.
  image = padded_image(n, image, window.before, window.after);
  Value y = n.im.add_one(AvgPool{{window.size, window.stride, {0, 0}}}, {image});
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t size = window.size[axis], stride = window.stride[axis], before = window.before[axis];
    const int64_t begin = counts_padding ? 0 : before;
    const int64_t end = before + inner[static_cast<int>(1 + axis)] +
                        (counts_padding ? window.after[axis] - window.added[axis] : 0);
    const auto counted = [&](int64_t at) {
      return std::min(at * stride + size, end) - std::max(at * stride, begin);
    };
    const int64_t extent = y.shape()[static_cast<int>(1 + axis)];
    if (begin == 0 && (extent - 1) * stride + size <= end) continue;
    const Value shares = over_axis(n, axis, extent, [&](int64_t at) {
      return counted(at) > 0 ? static_cast<float>(size) / static_cast<float>(counted(at)) : 0.0f;
    });
    y = n.im.add_one(Binary{BinaryKind::kMul}, {y, shares});
  }
  return y;
}

// Sequences and images are pooled at once. Maxima and averages of a volume are those of its planes, and then
// those along the depth; the shares of padding are products of the axes' own.
void add_pool(NodeImport& n, Value (*pooled)(NodeImport& n, Value image, const Window& window)) {
  const Item& x = n.in(0);
  const std::vector<AxisWindow> windows = axis_windows(n, x, n.integers("kernel_shape"));
  const Value image = image_of(n, x);
  if (x.rank() == 3) return n.out(item_of_image(n, pooled(n, image, window_of({}, windows[0])), x));
  if (x.rank() == 4) return n.out(item_of_image(n, pooled(n, image, window_of(windows[0], windows[1])), x));
  const Shape of = image.shape();
  const Value planes = n.im.add_one(Reshape{{of[0] * of[1], of[2], of[3], of[4]}}, {image});
  const Value flat = pooled(n, planes, window_of(windows[1], windows[2]));
  const int64_t rows = flat.shape()[1], columns = flat.shape()[2];
  const Value columns_of_depth = n.im.add_one(Reshape{{of[0], of[1], rows * columns, of[4]}}, {flat});
  const Value y = pooled(n, columns_of_depth, window_of(windows[0], {}));
  n.out(item_of_image(n, n.im.add_one(Reshape{{of[0], y.shape()[1], rows, columns, of[4]}}, {y}), x));
}

// ---- resizing: along an axis each output is a weighted sum of inputs, so that it is a product by a matrix

struct ResizeMode {
  std::string mode, coordinates, nearest;
  float cubic = -0.75f;
  bool excludes_outside = false;
};

double input_position(const NodeImport& n, const ResizeMode& mode, double x, int64_t in, int64_t out,
                      double scale) {
  const auto inputs = static_cast<double>(in), outputs = static_cast<double>(out);
  if (mode.coordinates == "half_pixel") return (x + 0.5) / scale - 0.5;
  if (mode.coordinates == "half_pixel_symmetric") {
    const double adjusted = outputs / (inputs * scale), center = inputs / 2;
    return center * (1 - adjusted) + (x + 0.5) / scale - 0.5;
  }
  if (mode.coordinates == "pytorch_half_pixel") return out > 1 ? (x + 0.5) / scale - 0.5 : 0;
  // By the output's whole length, as in PyTorch and ONNX Runtime; onnx's reference has inputs * scale there.
  if (mode.coordinates == "align_corners") return out == 1 ? 0 : x * (inputs - 1) / (outputs - 1);
  if (mode.coordinates == "asymmetric") return x / scale;
  n.fail(fmt::format("its coordinate_transformation_mode is '{}'", mode.coordinates));
}

double rounded(const NodeImport& n, const std::string& nearest, double x) {
  if (nearest == "round_prefer_floor") return std::ceil(x - 0.5);
  if (nearest == "round_prefer_ceil") return std::floor(x + 0.5);
  if (nearest == "floor") return std::floor(x);
  if (nearest == "ceil") return std::ceil(x);
  n.fail(fmt::format("its nearest_mode is '{}'", nearest));
}

// The weights (out, in) of an axis.
HostTensor resize_matrix(const NodeImport& n, const ResizeMode& mode, int64_t in, int64_t out, double scale) {
  if (in * out > Importer::kMaxFolded) n.fail("is too large");
  const HostTensor matrix({DType::kF32, {out, in}});
  for (int64_t row = 0; row < out; ++row) {
    const double x = input_position(n, mode, static_cast<double>(row), in, out, scale);
    std::vector<std::pair<double, double>> terms;  // positions and weights
    if (mode.mode == "nearest") {
      terms = {{rounded(n, mode.nearest, x), 1}};
    } else if (mode.mode == "linear") {
      const double left = std::floor(x), share = x - left;
      terms = {{left, 1 - share}, {left + 1, share}};
    } else {  // cubic: Keys 1981
      const double a = static_cast<double>(mode.cubic), left = std::floor(x), t = x - left;
      const auto near_weight = [&](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
      const auto far_weight = [&](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
      terms = {{left - 1, far_weight(t + 1)},
               {left, near_weight(t)},
               {left + 1, near_weight(1 - t)},
               {left + 2, far_weight(2 - t)}};
    }
    double sum = 1;
    if (mode.excludes_outside && mode.mode == "cubic") {
      sum = 0;
      for (auto& [at, weight] : terms) {
        if (at < 0 || at > static_cast<double>(in - 1)) weight = 0;
        sum += weight;
      }
    }
    for (const auto& [at, weight] : terms) {
      const auto column = static_cast<int64_t>(std::clamp(at, 0.0, static_cast<double>(in - 1)));
      matrix.data<float>()[static_cast<size_t>(row * in + column)] += static_cast<float>(weight / sum);
    }
  }
  return matrix;
}

// The item with the matrix applied along an axis.
Item along_axis(NodeImport& n, const Item& x, int axis, const HostTensor& matrix) {
  const Axes order = n.im.order_of(x);
  const Value value = n.im.value_in(x, order);
  const int place = inverse(order)[static_cast<size_t>(axis)];
  int64_t before = 1, after = 1;
  for (int i = 0; i < place; ++i) before *= value.shape()[i];
  for (int i = place + 1; i < value.shape().rank(); ++i) after *= value.shape()[i];
  const int64_t extent = value.shape()[place];
  const Value weights = n.im.plain(n.im.constant(matrix, ElementType::kFloat));
  // Along the last axis it is one product of all rows.
  const Value product =
      after == 1
          ? n.im.add_one(MatMul{false, true}, {n.im.add_one(Reshape{{before, extent}}, {value}), weights})
          : n.im.add_one(MatMul{}, {weights, n.im.add_one(Reshape{{before, extent, after}}, {value})});
  const Value result = n.im.add_one(Reshape{value.shape().with(place, matrix.shape()[0])}, {product});
  return n.im.item_of(result, x.type, order);
}

}  // namespace

void import_max_pool(NodeImport& n) {
  if (n.node.outputs.size() > 1 && !n.node.outputs[1].empty()) n.fail("gives indices");
  add_pool(n, max_pooled);
}

void import_average_pool(NodeImport& n) {
  add_pool(n, average_pooled);
}

void import_global_average_pool(NodeImport& n) {
  n.out(n.im.reduce(ReduceKind::kMean, n.in(0), image_axes(n), true));
}

void import_global_max_pool(NodeImport& n) {
  n.out(n.im.reduce(ReduceKind::kMax, n.in(0), image_axes(n), true));
}

void import_resize(NodeImport& n) {
  const Item& x = n.in(0);
  if (x.dtype() != DType::kF32) n.fail("takes integers");
  const bool is_old = n.opset < 11;  // X and scales alone
  ResizeMode mode{n.text("mode", "nearest"),
                  n.text("coordinate_transformation_mode", is_old ? "asymmetric" : "half_pixel"),
                  n.text("nearest_mode", is_old ? "floor" : "round_prefer_floor"),
                  n.number("cubic_coeff_a", -0.75f), n.integer("exclude_outside", 0) != 0};
  if (mode.mode == "bilinear") mode.mode = "linear";
  if (mode.mode != "nearest" && mode.mode != "linear" && mode.mode != "cubic")
    n.fail(fmt::format("its mode is '{}'", mode.mode));
  if (n.integer("antialias", 0) != 0) n.fail("smooths (antialias)");
  if (n.text("keep_aspect_ratio_policy", "stretch") != "stretch") n.fail("keeps the aspect ratio");
  std::vector<int> axes = in_order(x.rank());
  if (n.has_attribute("axes")) {
    axes.clear();
    for (int64_t axis : n.integers("axes")) axes.push_back(n.axis(axis, x.rank()));
  }
  std::vector<double> scales(axes.size(), 0);
  std::vector<int64_t> sizes;
  const size_t scales_at = is_old ? 1 : 2;
  if (!is_old && n.has(3)) {
    sizes = n.integers_in(3);
  } else if (n.has_attribute("scales")) {  // Upsample-7
    const std::vector<float>& given = n.node.find("scales")->numbers;
    scales.assign(given.begin(), given.end());
  } else {
    if (!n.has(scales_at) || !n.in(scales_at).constant) n.fail("its scales depend on the data");
    const HostTensor given = n.im.dense(n.in(scales_at));
    if (given.spec().dtype != DType::kF32) n.fail("its scales are integers");
    scales.assign(given.data<float>().begin(), given.data<float>().end());
  }
  Item y = x;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t in = x.shape[axes[i]];
    if (i >= (sizes.empty() ? scales.size() : sizes.size())) n.fail("its sizes or scales are too few");
    double scale = sizes.empty() ? scales[i] : static_cast<double>(sizes[i]) / static_cast<double>(in);
    const double extent = std::floor(static_cast<double>(in) * scale);
    const int64_t out = !sizes.empty()                ? sizes[i]
                        : extent >= 0 && extent < 1e9 ? static_cast<int64_t>(extent)
                                                      : -1;
    if (in < 1 || out < 1) n.fail(fmt::format("resizes {} to {}", in, out));
    if (out == in && scale == 1) continue;
    y = along_axis(n, y, axes[i], resize_matrix(n, mode, in, out, scale));
  }
  n.out(y);
}

// ---- GridSample: values of an image between its pixels, at positions from a grid

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
