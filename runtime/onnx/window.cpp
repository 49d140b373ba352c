#include "runtime/onnx/window.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom::onnx {
namespace {

// The axes (N, ..., C) of an item.
Axes channels_last(int rank) {
  Axes axes = {0};
  for (int axis = 2; axis < rank; ++axis) axes.push_back(axis);
  axes.push_back(1);
  return axes;
}

}  // namespace

int window_integer(const NodeImport& n, int64_t value, int64_t least) {
  constexpr int64_t kMaxExtent = 1 << 24;
  if (value < least || value > kMaxExtent)
    n.fail(fmt::format("its window has a size, stride or padding of {}", value));
  return static_cast<int>(value);
}

Window window_of(const AxisWindow& down, const AxisWindow& across) {
  return {{down.size, across.size},     {down.stride, across.stride}, {down.dilation, across.dilation},
          {down.before, across.before}, {down.after, across.after},   {down.added, across.added}};
}

std::vector<int64_t> kernel_of(const NodeImport& n, const Item& filter) {
  if (filter.rank() < 3) n.fail(fmt::format("its filter is {}", to_string(filter.shape)));
  const std::vector<int64_t> kernel(filter.shape.begin() + 2, filter.shape.end());
  if (n.has_attribute("kernel_shape") && n.integers("kernel_shape") != kernel)
    n.fail(fmt::format("its filter is {}, not of its kernel_shape", to_string(filter.shape)));
  return kernel;
}

std::vector<AxisWindow> axis_windows(const NodeImport& n, const Item& x, const std::vector<int64_t>& kernel) {
  if (x.rank() < 3 || x.rank() > 5) {
    n.fail(fmt::format(
        "takes {}; only sequences (N,C,L), images (N,C,H,W) and volumes (N,C,D,H,W) are supported",
        to_string(x.shape)));
  }
  const size_t axes = static_cast<size_t>(x.rank()) - 2;
  if (kernel.size() != axes) n.fail("its window has other axes than its image");
  const std::vector<int64_t> strides = n.integers("strides"), dilations = n.integers("dilations");
  const std::vector<int64_t> pads = n.integers("pads");
  for (const auto* list : {&strides, &dilations}) {
    if (!list->empty() && list->size() != axes)
      n.fail("its strides or dilations have other axes than its image");
  }
  const std::string mode = n.text("auto_pad", "NOTSET");
  if (!pads.empty() && pads.size() != 2 * axes) n.fail("its pads are not two for each axis");
  const bool rounds_up = n.integer("ceil_mode", 0) != 0;
  std::vector<AxisWindow> windows;
  for (size_t i = 0; i < axes; ++i) {
    AxisWindow window{window_integer(n, kernel[i], 1)};
    if (!strides.empty()) window.stride = window_integer(n, strides[i], 1);
    if (!dilations.empty()) window.dilation = window_integer(n, dilations[i], 1);
    const int64_t extent = x.shape[static_cast<int>(2 + i)], stride = window.stride, span = window.span();
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      const int64_t outputs = (extent + stride - 1) / stride;
      const int64_t total = std::max<int64_t>(0, (outputs - 1) * stride + span - extent);
      const int64_t less = total / 2, more = total - less;
      window.before = window_integer(n, mode == "SAME_UPPER" ? less : more, 0);
      window.after = window_integer(n, mode == "SAME_UPPER" ? more : less, 0);
    } else if (mode == "NOTSET" && !pads.empty()) {
      window.before = window_integer(n, pads[i], 0);
      window.after = window_integer(n, pads[i + axes], 0);
    } else if (mode != "NOTSET" && mode != "VALID") {
      n.fail(fmt::format("its auto_pad is '{}'", mode));
    }
    if (rounds_up) {
      const int64_t padded = extent + window.before + window.after;
      if (padded < span) n.fail("its window is larger than its image");
      int64_t outputs = (padded - span + stride - 1) / stride + 1;
      // A window that would begin in the trailing padding is omitted.
      if ((outputs - 1) * stride >= extent + window.before) --outputs;
      const int64_t lacking = (outputs - 1) * stride + span - padded;
      window.added = window_integer(n, std::max<int64_t>(0, lacking), 0);
      window.after += window.added;
    }
    windows.push_back(window);
  }
  return windows;
}

Value image_of(NodeImport& n, const Item& x) {
  const Value value = n.im.value_in(x, channels_last(x.rank()));
  if (x.rank() != 3) return value;
  const Shape& shape = value.shape();
  return n.im.add_one(Reshape{{shape[0], 1, shape[1], shape[2]}}, {value});
}

Item item_of_image(NodeImport& n, Value image, const Item& like) {
  if (like.rank() != 3) return n.im.item_of(image, like.type, channels_last(like.rank()));
  const Shape& shape = image.shape();
  const Value rows = n.im.add_one(Reshape{{shape[0], shape[2], shape[3]}}, {image});
  return n.im.item_of(rows, like.type, channels_last(3));
}

Value padded_image(NodeImport& n, Value image, Pair before, Pair after) {
  const auto zero = Pair{0, 0};
  if (before == zero && after == zero) return image;
  const Shape& shape = image.shape();
  const Shape whole = {shape[0], shape[1] + before[0] + after[0], shape[2] + before[1] + after[1], shape[3]};
  return n.im.add_one(SliceGrad{{0, before[0], before[1], 0}, whole}, {image});
}

}  // namespace headroom::onnx
