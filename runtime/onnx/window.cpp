#include "runtime/onnx/window.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom::onnx {
namespace {

int bounded(const NodeImport& n, int64_t value, int64_t least) {
  constexpr int64_t kMaxExtent = 1 << 24;
  if (value < least || value > kMaxExtent)
    n.fail(fmt::format("its window has a size, stride or padding of {}", value));
  return static_cast<int>(value);
}

// The axes (N, H, W, C), or (N, W, C), of an item.
Axes channels_last(int rank) {
  return rank == 3 ? Axes{0, 2, 1} : Axes{0, 2, 3, 1};
}

}  // namespace

Window window_of(const NodeImport& n, const Item& x, const std::vector<int64_t>& kernel) {
  if (x.rank() != 3 && x.rank() != 4) {
    n.fail(fmt::format("takes {}; only sequences (N,C,L) and images (N,C,H,W) are supported",
                       to_string(x.shape)));
  }
  const size_t axes = static_cast<size_t>(x.rank()) - 2, first = 2 - axes;
  if (kernel.size() != axes) n.fail("its window has other axes than its image");
  Window window;
  const auto fill = [&](const std::vector<int64_t>& from, Pair& to) {
    if (from.empty()) return;
    if (from.size() != axes) n.fail("its strides or dilations have other axes than its image");
    for (size_t i = 0; i < axes; ++i) to[first + i] = bounded(n, from[i], 1);
  };
  fill(kernel, window.size);
  fill(n.integers("strides"), window.stride);
  fill(n.integers("dilations"), window.dilation);
  const std::vector<int64_t> pads = n.integers("pads");
  const std::string mode = n.text("auto_pad", "NOTSET");
  if (!pads.empty() && pads.size() != 2 * axes) n.fail("its pads are not two for each axis");
  const bool rounds_up = n.integer("ceil_mode", 0) != 0;
  for (size_t i = 0; i < axes; ++i) {
    const size_t axis = first + i;
    const int64_t extent = x.shape[static_cast<int>(2 + i)], stride = window.stride[axis];
    const int64_t span = int64_t{window.size[axis] - 1} * window.dilation[axis] + 1;
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      const int64_t outputs = (extent + stride - 1) / stride;
      const int64_t total = std::max<int64_t>(0, (outputs - 1) * stride + span - extent);
      const int64_t less = total / 2, more = total - less;
      window.before[axis] = bounded(n, mode == "SAME_UPPER" ? less : more, 0);
      window.after[axis] = bounded(n, mode == "SAME_UPPER" ? more : less, 0);
    } else if (mode == "NOTSET" && !pads.empty()) {
      window.before[axis] = bounded(n, pads[i], 0);
      window.after[axis] = bounded(n, pads[i + axes], 0);
    } else if (mode != "NOTSET" && mode != "VALID") {
      n.fail(fmt::format("its auto_pad is '{}'", mode));
    }
    if (!rounds_up) continue;
    const int64_t padded = extent + window.before[axis] + window.after[axis];
    if (padded < span) n.fail("its window is larger than its image");
    int64_t outputs = (padded - span + stride - 1) / stride + 1;
    // A window that would begin in the trailing padding is omitted.
    if ((outputs - 1) * stride >= extent + window.before[axis]) --outputs;
    const int64_t lacking = (outputs - 1) * stride + span - padded;
    window.after[axis] += bounded(n, std::max<int64_t>(0, lacking), 0);
  }
  return window;
}

Value image_of(NodeImport& n, const Item& x) {
  const Value value = n.im.value_in(x, channels_last(x.rank()));
  if (x.rank() == 4) return value;
  const Shape& shape = value.shape();
  return n.im.add_one(Reshape{{shape[0], 1, shape[1], shape[2]}}, {value});
}

Item item_of_image(NodeImport& n, Value image, const Item& like) {
  if (like.rank() == 4) return n.im.item_of(image, like.type, channels_last(4));
  const Shape& shape = image.shape();
  const Value rows = n.im.add_one(Reshape{{shape[0], shape[2], shape[3]}}, {image});
  return n.im.item_of(rows, like.type, channels_last(3));
}

Value padded_image(NodeImport& n, Value image, Pair before, Pair after, float value) {
  const auto zero = Pair{0, 0};
  if (before == zero && after == zero) return image;
  const Shape& shape = image.shape();
  const Shape whole = {shape[0], shape[1] + before[0] + after[0], shape[2] + before[1] + after[1], shape[3]};
  const SliceGrad embed{{0, before[0], before[1], 0}, whole};
  const Value padded = n.im.add_one(embed, {image});
  if (value == 0) return padded;
  HostTensor ones({DType::kU8, {1, shape[1], shape[2], 1}});
  std::fill(ones.data<uint8_t>().begin(), ones.data<uint8_t>().end(), uint8_t{1});
  const HostTensor inside = compute(SliceGrad{embed.begin, {1, whole[1], whole[2], 1}}, std::vector{ones});
  const Value mask = n.im.plain(n.im.constant(inside, ElementType::kBool));
  const Value around = n.im.plain(n.im.number(value));
  return n.im.add_one(Where{}, {mask, padded, around});
}

}  // namespace headroom::onnx
