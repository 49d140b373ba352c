// ONNX ops that multiply matrices and filters.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/onnx/op_table.h"
#include "runtime/onnx/window.h"

namespace headroom::onnx {
namespace {

bool is_zero(const Item& item) {
  if (!item.constant || item.dtype() != DType::kF32) return false;
  const auto values = item.constant->data<float>();
  return std::ranges::all_of(values, [](float value) { return value == 0; });
}

// Returns ONNX's filter (K,C/groups,...) in the order that `conv` needs; that of volumes as one filter of
// images for each plane of its depth. Filters stored in 16 bits are for a GPU, whose library would transpose
// a filter of our order at each step.
Value filter_of(NodeImport& n, const Item& w, Conv2d& conv) {
  conv.filter_by_result = n.im.stores_half() && w.rank() >= 4;
  if (w.rank() == 3) {
    const Value value = n.im.value_in(w, {2, 1, 0});
    const Shape& shape = value.shape();
    return n.im.add_one(Reshape{{1, shape[0], shape[1], shape[2]}}, {value});
  }
  if (w.rank() == 4) return n.im.value_in(w, conv.filter_by_result ? Axes{0, 2, 3, 1} : Axes{2, 3, 1, 0});
  return n.im.value_in(w, conv.filter_by_result ? Axes{2, 0, 3, 4, 1} : Axes{2, 3, 4, 1, 0});
}

// The images (N D,H,W,C) of the planes begin, begin + step, ... of volumes (N,D,H,W,C).
Value planes_of(NodeImport& n, Value volume, int64_t begin, int64_t step, int64_t count) {
  const Shape& of = volume.shape();
  Value taken = volume;
  if (count != of[1] || begin != 0) {
    taken = n.im.add_one(Slice{{0, begin, 0, 0, 0}, of.with(1, count), {1, step, 1, 1, 1}}, {volume});
  }
  return n.im.add_one(Reshape{{of[0] * count, of[2], of[3], of[4]}}, {taken});
}

// The filter of images for a plane of the filter of volumes.
Value plane_of_filter(NodeImport& n, Value filter, int64_t at) {
  const Shape& of = filter.shape();
  const Value plane = n.im.add_one(Slice{{at, 0, 0, 0, 0}, of.with(0, 1)}, {filter});
  return n.im.add_one(Reshape{{of[1], of[2], of[3], of[4]}}, {plane});
}

// Each plane of the filter adds a convolution of images.
void require_few_planes(const NodeImport& n, int64_t depth) {
  constexpr int64_t kMost = 64;
  if (depth > kMost) n.fail(fmt::format("its filter has {} planes, more than {}", depth, kMost));
}

int groups_of(const NodeImport& n) {
  const int64_t groups = n.integer("group", 1);
  if (groups < 1 || groups > 1 << 24) n.fail(fmt::format("has {} groups", groups));
  return static_cast<int>(groups);
}

// Returns the bias over so many channels, zeros if there is none.
Value bias_of(NodeImport& n, int64_t channels) {
  if (!n.has(2)) return n.im.plain(n.im.constant(HostTensor({DType::kF32, {channels}}), ElementType::kFloat));
  if (n.in(2).shape != Shape{channels}) n.fail(fmt::format("its bias is {}", to_string(n.in(2).shape)));
  return n.im.plain(n.in(2));
}

// y + bias over the channels, which are last.
Value biased(NodeImport& n, Value y) {
  if (!n.has(2) || is_zero(n.in(2))) return y;
  return n.im.add_one(Binary{BinaryKind::kAdd}, {y, bias_of(n, y.shape().last())});
}

void require_floats(const NodeImport& n) {
  for (size_t i = 0; i < n.operands(); ++i) {
    if (n.has(i) && n.in(i).dtype() != DType::kF32) n.fail("takes integers");
  }
}

// Tensor cores take 8 channels of 16 bits at once, and libraries fill up fewer with zeros, or take slower
// kernels. A strided convolution of an image of few channels is one without stride of blocks of its pixels:
// (N,H,W,C) becomes (N,H/s,W/s,s s C), and a filter of k k pixels one of ceil(k/s) ceil(k/s) blocks, with
// zeros at its end. ResNet's first layer and the patches of a vision transformer are such.
class BlocksOfPixels {
 public:
  BlocksOfPixels(const Window& window, const Shape& image, const Shape& filter) : window_(window) {
    const int64_t pixels = int64_t{window.stride[0]} * window.stride[1];
    channels_ = image[3];
    while (channels_ < kChannelsAtOnce && channels_ * pixels % kChannelsAtOnce != 0) ++channels_;
    pays_ = image[3] < kChannelsAtOnce && filter[2] == image[3] && window.dilation == Pair{1, 1};
    for (size_t axis = 0; axis < 2; ++axis) {
      const int64_t in = image[static_cast<int>(1 + axis)], stride = window.stride[axis];
      if (stride > window.size[axis]) pays_ = false;  // pixels between the windows would also be multiplied
      const int64_t all = in + window.before[axis] + window.after[axis] - window.size[axis];
      if (all < 0) pays_ = false;
      filter_blocks_[axis] = (window.size[axis] + stride - 1) / stride;
      image_blocks_[axis] = all / stride + filter_blocks_[axis];
      // The last pixels may be in no window at all.
      if (image_blocks_[axis] * stride < in + window.before[axis]) pays_ = false;
    }
  }
  bool pay() const { return pays_; }

  Value of_image(NodeImport& n, Value image) const {
    const Shape whole = {image.shape()[0], image_blocks_[0] * window_.stride[0],
                         image_blocks_[1] * window_.stride[1], channels_};
    return blocks(n, n.im.add_one(SliceGrad{{0, window_.before[0], window_.before[1], 0}, whole}, {image}));
  }
  // Converts a filter (K,KH,KW,C), whose layout is that of images.
  Value of_filter(NodeImport& n, Value filter) const {
    const Shape whole = {filter.shape()[0], filter_blocks_[0] * window_.stride[0],
                         filter_blocks_[1] * window_.stride[1], channels_};
    return blocks(n, n.im.add_one(SliceGrad{{0, 0, 0, 0}, whole}, {filter}));
  }

 private:
  static constexpr int64_t kChannelsAtOnce = 8;

  Value blocks(NodeImport& n, Value image) const {
    const Shape& shape = image.shape();
    const int64_t down = window_.stride[0], across = window_.stride[1];
    if (down * across == 1) return image;
    const int64_t rows = shape[1] / down, columns = shape[2] / across;
    const Value parted = n.im.add_one(Reshape{{shape[0], rows, down, columns, across, shape[3]}}, {image});
    const Value gathered = n.im.add_one(Transpose{{0, 1, 3, 2, 4, 5}}, {parted});
    return n.im.add_one(Reshape{{shape[0], rows, columns, down * across * shape[3]}}, {gathered});
  }

  Window window_;
  int64_t channels_;
  std::array<int64_t, 2> image_blocks_{}, filter_blocks_{};
  bool pays_;
};

}  // namespace

void import_mat_mul(NodeImport& n) {
  n.out(n.im.matmul(n.in(0), n.in(1)));
}

void import_gemm(NodeImport& n) {
  require_floats(n);
  Item a = n.in(0), b = n.in(1);
  if (a.rank() != 2 || b.rank() != 2) n.fail("takes matrices");
  if (n.integer("transA", 0) != 0) a = n.im.transpose(a, {1, 0});
  if (n.integer("transB", 0) != 0) b = n.im.transpose(b, {1, 0});
  if (a.shape[1] != b.shape[0])
    n.fail(fmt::format("multiplies {} by {}", to_string(a.shape), to_string(b.shape)));
  Item y = n.im.binary(BinaryKind::kMul, n.im.matmul(a, b), n.im.number(n.number("alpha", 1)));
  if (n.has(2) && !is_zero(n.in(2))) {
    y = n.im.binary(BinaryKind::kAdd, y,
                    n.im.binary(BinaryKind::kMul, n.in(2), n.im.number(n.number("beta", 1))));
  }
  n.out(y);
}

namespace {

// Volumes: the sum of a convolution of images for each plane of the filter. x (N,C,D,H,W)
void add_conv_of_volumes(NodeImport& n, const std::vector<AxisWindow>& windows) {
  const Item &x = n.in(0), &w = n.in(1);
  const AxisWindow& deep = windows[0];
  const Window window = window_of(windows[1], windows[2]);
  Conv2d op{window.stride, window.before, window.dilation, groups_of(n)};
  if (!window.is_symmetric()) op.padding = {0, 0};
  const Value filter = filter_of(n, w, op);
  Value volume = image_of(n, x);
  const Shape of = volume.shape();
  require_few_planes(n, deep.size);
  const int64_t depth = of[1] + deep.before + deep.after;
  if (depth < deep.span()) n.fail("its window is larger than its image");
  if (depth != of[1])
    volume = n.im.add_one(SliceGrad{{0, deep.before, 0, 0, 0}, of.with(1, depth)}, {volume});
  const int64_t planes = (depth - deep.span()) / deep.stride + 1;
  std::optional<Value> sum;
  for (int64_t at = 0; at < deep.size; ++at) {
    Value images = planes_of(n, volume, at * deep.dilation, deep.stride, planes);
    if (!window.is_symmetric()) images = padded_image(n, images, window.before, window.after);
    const Value y = n.im.add_one(op, {images, plane_of_filter(n, filter, at)});
    sum = sum ? n.im.add_one(Binary{BinaryKind::kAdd}, {*sum, y}) : y;
  }
  const Value y = biased(n, *sum);
  const Shape& image = y.shape();
  n.out(item_of_image(n, n.im.add_one(Reshape{{of[0], planes, image[1], image[2], image[3]}}, {y}), x));
}

}  // namespace

void import_conv(NodeImport& n) {
  require_floats(n);
  const Item &x = n.in(0), &w = n.in(1);
  const std::vector<AxisWindow> windows = axis_windows(n, x, kernel_of(n, w));
  if (w.rank() != x.rank()) n.fail(fmt::format("its filter is {}", to_string(w.shape)));
  if (x.rank() == 5) return add_conv_of_volumes(n, windows);
  const Window window = window_of(x.rank() == 3 ? AxisWindow{} : windows[0], windows.back());
  Value image = image_of(n, x);
  Conv2d op{window.stride, window.before, window.dilation, groups_of(n)};
  const Shape filter = {w.rank() == 4 ? w.shape[2] : 1, w.shape.last(), w.shape[1], w.shape[0]};
  const BlocksOfPixels blocks(window, image.shape(), filter);
  const Value stored = filter_of(n, w, op);
  if (op.filter_by_result && op.groups == 1 && blocks.pay()) {
    Conv2d of_blocks;
    of_blocks.filter_by_result = true;
    const Value y = n.im.add_one(of_blocks, {blocks.of_image(n, image), blocks.of_filter(n, stored)});
    return n.out(item_of_image(n, biased(n, y), x));
  }
  if (!window.is_symmetric()) {
    image = padded_image(n, image, window.before, window.after);
    op.padding = {0, 0};
  }
  const bool is_forward = !n.im.is_training() && op.filter_by_result;
  const Value y = is_forward ? n.im.add_one(ConvBias{op}, {image, stored, bias_of(n, w.shape[0])})
                             : biased(n, n.im.add_one(op, {image, stored}));
  n.out(item_of_image(n, y, x));
}

namespace {

// One axis of a transposed convolution, which gives the input of the convolution that x is the output of.
struct TransposedAxis {
  AxisWindow window;              // no padding behind
  int64_t whole = 1, extent = 1;  // of the result, before and after its padding is cut off
};

std::vector<TransposedAxis> transposed_axes(const NodeImport& n, const Item& x,
                                            const std::vector<int64_t>& kernel) {
  const size_t axes = kernel.size();
  if (x.rank() < 3 || x.rank() > 5 || static_cast<int>(axes) != x.rank() - 2)
    n.fail("its window has other axes than its image");
  const bool has_shape = n.has_attribute("output_shape");
  const std::string mode = n.text("auto_pad", "NOTSET");
  const bool is_same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  const std::vector<int64_t> strides = n.integers("strides"), dilations = n.integers("dilations");
  const std::vector<int64_t> pads = n.integers("pads"), extra = n.integers("output_padding");
  std::vector<int64_t> wanted = n.integers("output_shape");
  for (const auto* list : {&strides, &dilations, &extra}) {
    if (!list->empty() && list->size() != axes)
      n.fail("its strides, dilations or output_padding have other axes than its image");
  }
  if (!pads.empty() && pads.size() != 2 * axes) n.fail("its pads are not two for each axis");
  if (wanted.size() == axes + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (has_shape && wanted.size() != axes) n.fail("its output_shape has other axes than its image");
  std::vector<TransposedAxis> all;
  for (size_t i = 0; i < axes; ++i) {
    AxisWindow window{window_integer(n, kernel[i], 1)};
    if (!strides.empty()) window.stride = window_integer(n, strides[i], 1);
    if (!dilations.empty()) window.dilation = window_integer(n, dilations[i], 1);
    const bool is_padded = mode == "NOTSET" && !has_shape && !pads.empty();
    if (is_padded) window.before = window_integer(n, pads[i], 0);
    const int64_t after = is_padded ? window_integer(n, pads[i + axes], 0) : 0;
    const int64_t added = extra.empty() ? 0 : window_integer(n, extra[i], 0);
    const int64_t in = x.shape[static_cast<int>(2 + i)];
    if (in > int64_t{1} << 32) n.fail("is too large");
    int64_t whole = (in - 1) * window.stride + window.span() + added;
    int64_t extent = whole - window.before - after;
    if (has_shape || is_same) {
      extent = has_shape ? wanted[i] : in * window.stride;
      // More than all: zeros follow.
      if (extent > whole && extent - whole < int64_t{1} << 24) whole = extent;
      const int64_t total = whole - extent;
      if (total < 0) n.fail("its output_shape is too large");
      window.before = window_integer(n, mode == "SAME_LOWER" ? total - total / 2 : total / 2, 0);
    }
    if (extent < 1) n.fail("its output is empty");
    all.push_back({window, whole, extent});
  }
  return all;
}

// Images (N,H,W,K) to (N,H',W',C).
Value transposed_conv(NodeImport& n, Value images, Value filter, const Conv2d& conv,
                      const TransposedAxis& down, const TransposedAxis& across) {
  const Shape from = images.shape(), taps = conv_filter_shape(conv, filter.shape());
  const int64_t channels = taps[2] * conv.groups;
  // Our convolutions pad both sides equally; otherwise, or if the forward convolution would not end at x, the
  // whole result is computed and cut.
  Conv2d padded = conv;
  padded.padding = {down.window.before, across.window.before};
  const auto fits = [&](const TransposedAxis& axis, int i) {
    return window_output(axis.extent, taps[i], axis.window.stride, axis.window.before,
                         axis.window.dilation) == from[1 + i];
  };
  if (fits(down, 0) && fits(across, 1))
    return n.im.add_one(Conv2dInputGrad{padded, {from[0], down.extent, across.extent, channels}},
                        {images, filter});
  const Value y =
      n.im.add_one(Conv2dInputGrad{conv, {from[0], down.whole, across.whole, channels}}, {images, filter});
  const auto kept = [](const TransposedAxis& axis) {
    return std::min(axis.extent, axis.whole - axis.window.before);
  };
  return n.im.add_one(
      Slice{{0, down.window.before, across.window.before, 0}, {from[0], kept(down), kept(across), channels}},
      {y});
}

}  // namespace

void import_conv_transpose(NodeImport& n) {
  require_floats(n);
  const Item &x = n.in(0), &w = n.in(1);
  if (w.rank() != x.rank()) n.fail(fmt::format("its filter is {}", to_string(w.shape)));
  const std::vector<TransposedAxis> axes = transposed_axes(n, x, kernel_of(n, w));
  const TransposedAxis &across = axes.back(),
                       down = axes.size() == 1 ? TransposedAxis{} : axes[axes.size() - 2];
  Conv2d conv{{down.window.stride, across.window.stride},
              {0, 0},
              {down.window.dilation, across.window.dilation},
              groups_of(n)};
  const Value filter = filter_of(n, w, conv), image = image_of(n, x);
  if (x.rank() < 5) {
    const Value y = transposed_conv(n, image, filter, conv, down, across);
    return n.out(item_of_image(n, biased(n, y), x));
  }
  // Volumes: each plane of the filter adds its images, `dilation` planes after those of the plane before.
  const TransposedAxis& deep = axes[0];
  require_few_planes(n, deep.window.size);
  const Shape of = image.shape();
  const Value images = planes_of(n, image, 0, 1, of[1]);
  std::optional<Value> sum;
  for (int64_t at = 0; at < deep.window.size; ++at) {
    const Value y = transposed_conv(n, images, plane_of_filter(n, filter, at), conv, down, across);
    const Shape& to = y.shape();
    const Value volume = n.im.add_one(Reshape{{of[0], of[1], to[1], to[2], to[3]}}, {y});
    const SliceGrad placed{{0, at * deep.window.dilation, 0, 0, 0},
                           volume.shape().with(1, deep.whole),
                           {1, deep.window.stride, 1, 1, 1}};
    const Value part = n.im.add_one(placed, {volume});
    sum = sum ? n.im.add_one(Binary{BinaryKind::kAdd}, {*sum, part}) : part;
  }
  const int64_t kept = std::min(deep.extent, deep.whole - deep.window.before);
  const Value y = n.im.add_one(Slice{{0, deep.window.before, 0, 0, 0}, sum->shape().with(1, kept)}, {*sum});
  n.out(item_of_image(n, biased(n, y), x));
}

}  // namespace headroom::onnx
