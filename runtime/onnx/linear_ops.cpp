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

// Returns ONNX's filter (K,C/groups,KH,KW) in the order that `conv` needs. Filters stored in 16 bits are for
// a GPU, whose library would transpose a filter of our order at each step.
Value filter_of(NodeImport& n, const Item& w, Conv2d& conv) {
  conv.filter_by_result = n.im.stores_half() && w.rank() == 4;
  if (conv.filter_by_result) return n.im.value_in(w, {0, 2, 3, 1});
  const Value value = n.im.value_in(w, w.rank() == 3 ? Axes{2, 1, 0} : Axes{2, 3, 1, 0});
  if (w.rank() == 4) return value;
  const Shape& shape = value.shape();
  return n.im.add_one(Reshape{{1, shape[0], shape[1], shape[2]}}, {value});
}

std::vector<int64_t> kernel_of(const NodeImport& n, const Item& w) {
  std::vector<int64_t> kernel = n.integers("kernel_shape");
  if (kernel.empty() && w.rank() > 2) kernel.assign(w.shape.begin() + 2, w.shape.end());
  return kernel;
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

void import_conv(NodeImport& n) {
  require_floats(n);
  const Item &x = n.in(0), &w = n.in(1);
  const Window window = window_of(n, x, kernel_of(n, w));
  if (w.rank() != x.rank()) n.fail(fmt::format("its filter is {}", to_string(w.shape)));
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

void import_conv_transpose(NodeImport& n) {
  require_floats(n);
  const Item &x = n.in(0), &w = n.in(1);
  if (w.rank() != x.rank()) n.fail(fmt::format("its filter is {}", to_string(w.shape)));
  const bool has_shape = n.has_attribute("output_shape");
  const std::string mode = n.text("auto_pad", "NOTSET");
  Window window;
  {
    // Its padding is that of the convolution whose input it gives, whose output x is.
    const std::vector<int64_t> kernel = kernel_of(n, w);
    const size_t axes = kernel.size(), first = 2 - std::min<size_t>(2, axes);
    if (x.rank() < 3 || x.rank() > 4 || static_cast<int>(axes) != x.rank() - 2)
      n.fail("its window has other axes than its image");
    const auto fill = [&](std::string_view name, const std::vector<int64_t>& from, size_t at, int64_t least,
                          Pair& to) {
      for (size_t i = 0; i < axes && !from.empty(); ++i) {
        const int64_t value = at + i < from.size() ? from[at + i] : -1;
        if (value < least || value > 1 << 24) n.fail(fmt::format("its {} are wrong", name));
        to[first + i] = static_cast<int>(value);
      }
    };
    fill("kernel_shape", kernel, 0, 1, window.size);
    fill("strides", n.integers("strides"), 0, 1, window.stride);
    fill("dilations", n.integers("dilations"), 0, 1, window.dilation);
    if (mode == "NOTSET" && !has_shape) {
      fill("pads", n.integers("pads"), 0, 0, window.before);
      fill("pads", n.integers("pads"), axes, 0, window.after);
    }
  }
  const int groups = groups_of(n);
  Conv2d conv{window.stride, {0, 0}, window.dilation, groups};
  const Value image = image_of(n, x), filter = filter_of(n, w, conv);
  const Shape taps = conv_filter_shape(conv, filter.shape());
  const std::vector<int64_t> extra = n.integers("output_padding"), wanted = n.integers("output_shape");
  const size_t first = x.rank() == 4 ? 0 : 1;
  std::array<int64_t, 2> whole{}, extents{};  // before and after the padding is cut off
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t in = image.shape()[static_cast<int>(1 + axis)], stride = window.stride[axis];
    const int64_t span = int64_t{window.size[axis] - 1} * window.dilation[axis] + 1;
    const int64_t added = axis >= first && axis - first < extra.size() ? extra[axis - first] : 0;
    if (added < 0 || added > 1 << 24) n.fail("its output_padding is wrong");
    int64_t full = (in - 1) * stride + span + added;
    int64_t out = full - window.before[axis] - window.after[axis];
    if (axis >= first && (has_shape || mode == "SAME_UPPER" || mode == "SAME_LOWER")) {
      const size_t i =
          wanted.size() > 2 && static_cast<int>(wanted.size()) == x.rank() ? axis - first + 2 : axis - first;
      if (has_shape && i >= wanted.size()) n.fail("its output_shape has other axes than its image");
      out = has_shape ? wanted[i] : in * stride;
      // More than all: zeros follow.
      if (out > full && out - full < int64_t{1} << 24) full = out;
      const int64_t total = full - out;
      if (total < 0) n.fail("its output_shape is too large");
      const int64_t less = total / 2;
      window.before[axis] = static_cast<int>(mode == "SAME_UPPER" ? less : total - less);
      if (mode != "SAME_UPPER" && mode != "SAME_LOWER") window.before[axis] = static_cast<int>(less);
    }
    if (out < 1) n.fail("its output is empty");
    whole[axis] = full;
    extents[axis] = out;
  }
  const int64_t channels = w.shape[1] * groups;
  const Shape &from = image.shape(), result = {from[0], extents[0], extents[1], channels};
  Pair after{};
  for (size_t axis = 0; axis < 2; ++axis) {
    after[axis] = static_cast<int>(whole[axis] - extents[axis]) - window.before[axis];
  }
  // Our convolutions pad both sides equally; otherwise, or if the forward convolution would not end at x, the
  // whole result is computed and cut.
  Conv2d padded = conv;
  padded.padding = window.before;
  const bool fits = [&] {
    for (size_t axis = 0; axis < 2; ++axis) {
      const int k = static_cast<int>(axis);
      if (window_output(extents[axis], taps[k], padded.stride[axis], padded.padding[axis],
                        padded.dilation[axis]) != from[1 + k]) {
        return false;
      }
    }
    return true;
  }();
  Value y;
  if (fits) {
    y = n.im.add_one(Conv2dInputGrad{padded, result}, {image, filter});
  } else {
    y = n.im.add_one(Conv2dInputGrad{conv, {from[0], whole[0], whole[1], channels}}, {image, filter});
    std::array<int64_t, 2> kept{};
    for (size_t axis = 0; axis < 2; ++axis) {
      kept[axis] = std::min(extents[axis], whole[axis] - window.before[axis]);
    }
    y = n.im.add_one(Slice{{0, window.before[0], window.before[1], 0}, {from[0], kept[0], kept[1], channels}},
                     {y});
  }
  n.out(item_of_image(n, biased(n, y), x));
}

}  // namespace headroom::onnx
