// ONNX ops that are a few others: losses, activations, norms, and picks by an order.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
namespace {

// Sums and products of items, written shorter.
struct Arithmetic {
  Importer& im;

  Item add(const Item& a, const Item& b) const { return im.binary(BinaryKind::kAdd, a, b); }
  Item sub(const Item& a, const Item& b) const { return im.binary(BinaryKind::kSub, a, b); }
  Item mul(const Item& a, const Item& b) const { return im.binary(BinaryKind::kMul, a, b); }
  Item div(const Item& a, const Item& b) const { return im.binary(BinaryKind::kDiv, a, b); }
  Item exp(const Item& x) const { return im.unary(UnaryKind::kExp, x); }
  Item log(const Item& x) const { return im.unary(UnaryKind::kLog, x); }
  Item sqrt(const Item& x) const { return im.unary(UnaryKind::kSqrt, x); }
  Item number(float value) const { return im.number(value); }
  Item equal(const Item& a, const Item& b) const { return im.compare(CompareKind::kEqual, a, b); }
  Item less(const Item& a, const Item& b) const { return im.compare(CompareKind::kLess, a, b); }
  Item sum(const Item& x, std::vector<int> axes, bool keep) const {
    return im.reduce(ReduceKind::kSum, x, std::move(axes), keep);
  }
  Item float_of(const Item& x) const { return im.cast(x, ElementType::kFloat); }
};

Shape shape_with(const Shape& shape, int axis, int64_t extent) {
  std::vector<int64_t> extents(shape.begin(), shape.end());
  extents.insert(extents.begin() + axis, extent);
  return Shape(std::span<const int64_t>(extents));
}

Shape shape_without(const Shape& shape, int axis) {
  std::vector<int64_t> extents(shape.begin(), shape.end());
  extents.erase(extents.begin() + axis);
  return Shape(std::span<const int64_t>(extents));
}

Item part_of(const NodeImport& n, const Item& x, int axis, int64_t begin, int64_t extent) {
  Slice slice{std::vector<int64_t>(static_cast<size_t>(x.rank()), 0), x.shape.with(axis, extent)};
  slice.begin[static_cast<size_t>(axis)] = begin;
  return n.im.slice(x, slice);
}

Item log_softmax(const NodeImport& n, const Item& x, int axis) {
  const Arithmetic a{n.im};
  const Item centered = a.sub(x, n.im.reduce(ReduceKind::kMax, x, {axis}, true));
  return a.sub(centered, a.log(a.sum(a.exp(centered), {axis}, true)));
}

// The negative of what `logs` (N,C,..) has for the classes of `labels` (N,..), weighted and reduced.
Item negative_likelihood(const NodeImport& n, const Item& logs, const Item& labels) {
  const Arithmetic a{n.im};
  if (logs.rank() < 2 || labels.shape != shape_without(logs.shape, 1))
    n.fail(fmt::format("labels {} do not fit {}", to_string(labels.shape), to_string(logs.shape)));
  const int64_t classes = logs.shape[1];
  const Item apart = n.im.reshape(n.im.cast(labels, ElementType::kInt64), shape_with(labels.shape, 1, 1));
  const Item is_class = a.equal(n.im.positions(1, logs.rank(), classes), apart);
  const auto picked = [&](const Item& of) {
    return a.sum(n.im.where(is_class, of, a.number(0)), {1}, false);
  };
  std::vector<int64_t> along(static_cast<size_t>(logs.rank()), 1);
  along[1] = classes;
  Item weight = n.has(2) ? n.im.reshape(n.in(2), Shape(std::span<const int64_t>(along))) : a.number(1);
  weight = picked(n.im.expand(weight, logs.shape));
  Item loss = a.mul(a.mul(picked(logs), weight), a.number(-1));
  if (n.has_attribute("ignore_index")) {
    const Item is_ignored = a.equal(labels, n.im.cast(n.im.whole(n.integer("ignore_index", 0)), labels.type));
    weight = n.im.where(is_ignored, a.number(0), weight);
    loss = n.im.where(is_ignored, a.number(0), loss);
  }
  const std::string reduction = n.text("reduction", "mean");
  if (reduction == "none") return loss;
  if (reduction != "sum" && reduction != "mean")
    n.fail(fmt::format("its reduction '{}' is not supported", printable(reduction)));
  const Item sum = a.sum(loss, in_order(loss.rank()), false);
  return reduction == "sum" ? sum : a.div(sum, a.sum(weight, in_order(weight.rank()), false));
}

}  // namespace

void import_negative_log_likelihood_loss(NodeImport& n) {
  n.out(negative_likelihood(n, n.in(0), n.in(1)));
}

void import_softmax_cross_entropy_loss(NodeImport& n) {
  const Item logs = log_softmax(n, n.in(0), n.axis(1, n.in(0).rank()));
  n.out(negative_likelihood(n, logs, n.in(1)));
  n.out(logs);
}

void import_swish(NodeImport& n) {
  const Arithmetic a{n.im};
  const Item& x = n.in(0);
  n.out(a.mul(x, n.im.unary(UnaryKind::kSigmoid, a.mul(x, a.number(n.number("alpha", 1))))));
}

void import_sinh(NodeImport& n) {
  const Arithmetic a{n.im};
  const Item up = a.exp(n.in(0)), down = a.exp(a.mul(n.in(0), a.number(-1)));
  n.out(a.mul(a.sub(up, down), a.number(0.5f)));
}

void import_cosh(NodeImport& n) {
  const Arithmetic a{n.im};
  const Item up = a.exp(n.in(0)), down = a.exp(a.mul(n.in(0), a.number(-1)));
  n.out(a.mul(a.add(up, down), a.number(0.5f)));
}

void import_tan(NodeImport& n) {
  n.out(Arithmetic{n.im}.div(n.im.unary(UnaryKind::kSin, n.in(0)), n.im.unary(UnaryKind::kCos, n.in(0))));
}

void import_asinh(NodeImport& n) {  // sign(x) log(|x| + sqrt(x^2 + 1))
  const Arithmetic a{n.im};
  const Item size = n.im.unary(UnaryKind::kAbs, n.in(0));
  const Item length = a.sqrt(a.add(a.mul(size, size), a.number(1)));
  n.out(a.mul(n.im.unary(UnaryKind::kSign, n.in(0)), a.log(a.add(size, length))));
}

void import_acosh(NodeImport& n) {
  const Arithmetic a{n.im};
  const Item& x = n.in(0);
  n.out(a.log(a.add(x, a.sqrt(a.sub(a.mul(x, x), a.number(1))))));
}

void import_atanh(NodeImport& n) {
  const Arithmetic a{n.im};
  const Item& x = n.in(0);
  const Item ratio = a.div(a.add(x, a.number(1)), a.sub(a.number(1), x));
  n.out(a.mul(a.log(ratio), a.number(0.5f)));
}

void import_shrink(NodeImport& n) {
  const Arithmetic a{n.im};
  const Item x = a.float_of(n.in(0));
  const float limit = n.number("lambd", 0.5f), bias = n.number("bias", 0);
  const Item above = n.im.where(a.less(a.number(limit), x), a.sub(x, a.number(bias)), a.number(0));
  n.out(n.im.cast(n.im.where(a.less(x, a.number(-limit)), a.add(x, a.number(bias)), above), n.in(0).type));
}

void import_hardmax(NodeImport& n) {
  const Item& given = n.in(0);
  const int axis = n.axis(n.integer("axis", n.opset < 13 ? 1 : -1), given.rank());
  Item x = given;
  if (n.opset < 13) {  // the axes from this one on are one
    int64_t rows = 1;
    for (int i = 0; i < axis; ++i) rows *= given.shape[i];
    x = n.im.reshape(given, {rows, rows == 0 ? 0 : given.shape.elements() / rows});
  }
  const int along = n.opset < 13 ? 1 : axis;
  const Item best = n.im.apply(ArgMax{along}, {n.im.cast(x, ElementType::kFloat)}, ElementType::kInt64);
  const Item places = n.im.positions(along, x.rank(), x.shape[along]);
  const Item is_best = n.im.compare(CompareKind::kEqual, places, n.im.reshape(best, x.shape.with(along, 1)));
  n.out(n.im.reshape(n.im.cast(is_best, given.type), given.shape));
}

void import_lp_normalization(NodeImport& n) {
  const Arithmetic a{n.im};
  const Item& x = n.in(0);
  const int axis = n.axis(n.integer("axis", -1), x.rank());
  const int64_t p = n.integer("p", 2);
  if (p != 1 && p != 2) n.fail(fmt::format("a norm with p = {}", p));
  const Item sum = a.sum(p == 1 ? n.im.unary(UnaryKind::kAbs, x) : a.mul(x, x), {axis}, true);
  const Item norm = p == 1 ? sum : a.sqrt(sum);
  n.out(a.div(x, n.im.where(a.equal(norm, a.number(0)), a.number(1), norm)));
}

void import_mean_variance_normalization(NodeImport& n) {
  const Arithmetic a{n.im};
  const Item& x = n.in(0);
  const std::vector<int64_t> given = n.integers("axes");
  const std::vector<int> axes = n.axes(given.empty() ? std::vector<int64_t>{0, 2, 3} : given, x.rank());
  const Item centered = a.sub(x, n.im.reduce(ReduceKind::kMean, x, axes, true));
  const Item variance = n.im.reduce(ReduceKind::kMean, a.mul(centered, centered), axes, true);
  n.out(a.div(centered, a.add(a.sqrt(variance), a.number(1e-9f))));
}

void import_cum_prod(NodeImport& n) {
  const Arithmetic a{n.im};
  const Item& x = n.in(0);
  const int axis = n.axis(n.integer_in(1), x.rank());
  const bool is_exclusive = n.integer("exclusive", 0) != 0, is_reverse = n.integer("reverse", 0) != 0;
  constexpr int64_t kLongest = 4096;
  const int64_t extent = x.shape[axis];
  if (extent > kLongest) n.fail(fmt::format("multiplies {} numbers; {} is the most", extent, kLongest));
  if (extent < 1) return n.out(x);
  std::vector<Item> products;
  for (int64_t i = 0; i < extent; ++i) {
    const int64_t at = is_reverse ? extent - 1 - i : i;
    const Item part = part_of(n, x, axis, at, 1);
    if (i == 0 && is_exclusive) products.push_back(n.im.expand(n.im.cast(n.im.whole(1), x.type), part.shape));
    if (i == extent - 1 && is_exclusive) break;
    products.push_back(products.empty() ? part : a.mul(products.back(), part));
  }
  if (is_reverse) std::ranges::reverse(products);
  n.out(n.im.concat(products, axis));
}

// The place of each element of an axis in the order of its row: as many elements come before it as are above
// it, or equal and earlier.
void import_top_k(NodeImport& n) {
  const Arithmetic a{n.im};
  const Item& given = n.in(0);
  const int axis = n.axis(n.integer("axis", -1), given.rank());
  const int64_t count = n.has(1) ? n.integer_in(1) : n.integer("k", 1), extent = given.shape[axis];
  if (count < 0 || count > extent) n.fail(fmt::format("takes {} of {}", count, extent));
  constexpr int64_t kLongest = int64_t{1} << 14;
  if (extent > kLongest) n.fail(fmt::format("orders {} numbers; {} is the most", extent, kLongest));
  if (given.rank() + 1 > Shape::kMaxRank) n.fail("has too high a rank");
  Axes last;  // the axis is moved to the end
  for (int i = 0; i < given.rank(); ++i) {
    if (i != axis) last.push_back(i);
  }
  last.push_back(axis);
  const Item moved = n.im.transpose(given, last);
  const Item x = a.float_of(moved);
  const int rank = x.rank();
  const Item here = n.im.reshape(x, shape_with(x.shape, rank, 1)),  // (.., i, 1)
      other = n.im.reshape(x, shape_with(x.shape, rank - 1, 1));    // (.., 1, j)
  const Item is_above = n.integer("largest", 1) != 0 ? a.less(here, other) : a.less(other, here);
  const Item is_earlier =
      a.less(n.im.positions(rank, rank + 1, extent), n.im.positions(rank - 1, rank + 1, extent));
  const Item ties = n.im.binary(BinaryKind::kMin, a.equal(here, other), is_earlier);
  const Item place =
      a.sum(a.float_of(n.im.binary(BinaryKind::kMax, is_above, ties)), {rank}, true);     // (.., i, 1)
  const Item is_kth = a.equal(place, a.float_of(n.im.positions(rank, rank + 1, count)));  // (.., i, k)
  const Item indices =
      a.sum(n.im.where(is_kth, a.float_of(n.im.positions(rank - 1, rank + 1, extent)), a.number(0)),
            {rank - 1}, false);
  const Item values = a.sum(n.im.where(is_kth, here, a.number(0)), {rank - 1}, false);
  const Axes back = inverse(last);
  n.out(n.im.cast(n.im.transpose(values, back), given.type));
  n.out(n.im.cast(n.im.transpose(indices, back), ElementType::kInt64));
}

void import_reverse_sequence(NodeImport& n) {
  const Arithmetic a{n.im};
  const Item& x = n.in(0);
  const int batch = n.axis(n.integer("batch_axis", 1), x.rank()),
            time = n.axis(n.integer("time_axis", 0), x.rank());
  if (batch == time) n.fail("its axes of batch and time are the same");
  Axes order = {batch, time};
  for (int i = 0; i < x.rank(); ++i) {
    if (i != batch && i != time) order.push_back(i);
  }
  const Item moved = n.im.transpose(x, order);
  const int64_t rows = moved.shape[0], steps = moved.shape[1];
  if (n.in(1).shape != Shape{rows}) n.fail(fmt::format("its lengths are {}", to_string(n.in(1).shape)));
  if (rows * steps > INT32_MAX) n.fail("has more than 2^31 steps");
  const Item lengths = n.im.reshape(n.im.cast(n.in(1), ElementType::kInt64), {rows, 1});
  const Item step = n.im.positions(1, 2, steps);
  const Item back = a.sub(a.sub(lengths, n.im.whole(1)), step);
  const Item from = n.im.where(a.less(step, lengths), back, step);
  const Item flat = a.add(from, n.im.positions(0, 2, rows, steps));
  std::vector<int64_t> table(moved.shape.begin() + 1, moved.shape.end());
  table[0] = rows * steps;
  const Item all = n.im.gather(n.im.reshape(moved, Shape(std::span<const int64_t>(table))), flat, 0);
  n.out(n.im.transpose(n.im.reshape(all, moved.shape), inverse(order)));
}

void import_center_crop_pad(NodeImport& n) {
  Item x = n.in(0);
  const std::vector<int64_t> extents = n.integers_in(1), given = n.integers("axes");
  std::vector<int> axes = in_order(x.rank());
  if (n.has_attribute("axes")) {
    axes.clear();
    for (const int64_t axis : given) axes.push_back(n.axis(axis, x.rank()));
  }
  if (axes.size() != extents.size()) n.fail("its shape and its axes differ in number");
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t have = x.shape[axes[i]], want = extents[i];
    if (want < 0 || want > Importer::kMaxFolded) n.fail(fmt::format("an extent of {}", want));
    if (want <= have) {
      x = part_of(n, x, axes[i], (have - want) / 2, want);
    } else {
      std::vector<int64_t> before(static_cast<size_t>(x.rank()), 0), after = before;
      before[static_cast<size_t>(axes[i])] = (want - have) / 2;
      after[static_cast<size_t>(axes[i])] = want - have - (want - have) / 2;
      x = n.im.pad(x, before, after);
    }
  }
  n.out(x);
}

}  // namespace headroom::onnx
