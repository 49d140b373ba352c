// ONNX ops between floats and whole numbers of few bits. Weights stay as the file stores them until a use.
#include <fmt/format.h>

#include "runtime/onnx/op_table.h"
#include "runtime/onnx/variable_data.h"

namespace headroom::onnx {
namespace {

// Half of the range of a signed type: what makes its numbers those of unsigned_bytes().
float offset_of(ElementType type) {
  return type == ElementType::kInt8 ? 128.0f : type == ElementType::kInt4 ? 8.0f : 0.0f;
}

struct Range {
  float least, most;
};

Range range_of(const NodeImport& n, ElementType type) {
  const int64_t bits = stored_bits(type);
  if (is_float(type) || type == ElementType::kBool || bits == 0 || bits > 16)
    n.fail(fmt::format("quantizes to {}", to_string(type)));
  const bool is_signed =
      type == ElementType::kInt4 || type == ElementType::kInt8 || type == ElementType::kInt16;
  const int64_t numbers = int64_t{1} << bits, least = is_signed ? -numbers / 2 : 0;
  return {static_cast<float>(least), static_cast<float>(least + numbers - 1)};
}

Item plus(Importer& im, const Item& x, float number) {
  return im.binary(BinaryKind::kAdd, x, im.number(number));
}

// The tensor whose axes let one scale meet each block of numbers, and the scales likewise.
struct Blocks {
  Shape numbers, scales;
};

Blocks blocks_of(const Quantized& q) {
  const Shape& shape = q.numbers.shape;
  const int rank = shape.rank();
  if (q.scale.shape.elements() == 1) return {shape, {}};
  std::vector<int64_t> numbers(shape.begin(), shape.end()), scales(static_cast<size_t>(rank), 1);
  const auto axis = static_cast<size_t>(q.axis);
  if (q.block > 1) {
    scales.assign(q.scale.shape.begin(), q.scale.shape.end());
    const bool fits = static_cast<int>(scales.size()) == rank && scales[axis] * q.block == numbers[axis];
    if (!fits) {
      throw Unsupported{fmt::format("scales {} are not those of blocks of {} numbers of {} along axis {}",
                                    to_string(q.scale.shape), q.block, to_string(shape), q.axis)};
    }
    if (rank == Shape::kMaxRank) throw Unsupported{"its tensor has too high a rank for blocks"};
    numbers[axis] = scales[axis];
    numbers.insert(numbers.begin() + q.axis + 1, q.block);
    scales.insert(scales.begin() + q.axis + 1, 1);
  } else {
    if (q.scale.rank() != 1 || q.scale.shape[0] != numbers[axis]) {
      throw Unsupported{fmt::format("scales {} are not those of axis {} of {}", to_string(q.scale.shape),
                                    q.axis, to_string(shape))};
    }
    scales[axis] = numbers[axis];
  }
  return {Shape(std::span<const int64_t>(numbers)), Shape(std::span<const int64_t>(scales))};
}

// The operands 1 and 2, with the axis and the block of the attributes, of a tensor.
Quantized quantization_of(const NodeImport& n, const Item& numbers) {
  Quantized q{numbers, n.im.cast(n.in(1), ElementType::kFloat), std::nullopt};
  if (n.has(2)) q.zero_point = n.in(2);
  if (q.scale.shape.elements() != 1) q.axis = n.axis(n.integer("axis", 1), numbers.rank());
  if (const int64_t block = n.integer("block_size", 0); block != 0) {
    if (block < 0) n.fail(fmt::format("a block of {}", block));
    q.block = block;
  }
  // ONNX Runtime's quantizer writes biases with a scale [1] and a zero point [].
  if (q.zero_point && q.zero_point->shape.elements() == 1 && q.scale.shape.elements() == 1)
    q.zero_point = n.im.reshape(*q.zero_point, q.scale.shape);
  if (q.zero_point && q.zero_point->shape != q.scale.shape)
    n.fail("its scales and zero points differ in shape");
  blocks_of(q);  // refuses what does not fit
  return q;
}

}  // namespace

// The numbers of a stored source as floats, moved as unsigned_bytes() moves them.
Item Importer::stored_numbers(const Item& item) {
  Source& source = sources_[static_cast<size_t>(item.source)];
  const int64_t count = source.shape.elements(), bytes = stored_bytes(source.type, count);
  if (!source.value)
    source.value =
        graph_.variable(source.name, {DType::kU8, {bytes}}, first_value(source, model_, seed_), place());
  Item numbers = cast(item_of(*source.value, ElementType::kUint8, {0}), ElementType::kFloat);
  if (stored_bits(source.type) == 4) {
    const Item high = unary(UnaryKind::kFloor, binary(BinaryKind::kMul, numbers, number(1.0f / 16)));
    const Item low = binary(BinaryKind::kSub, numbers, binary(BinaryKind::kMul, high, number(16)));
    numbers = reshape(concat({reshape(low, {bytes, 1}), reshape(high, {bytes, 1})}, 1), {2 * bytes});
    if (count < 2 * bytes) numbers = slice(numbers, Slice{{0}, {count}});
  }
  return reshape(numbers, source.shape);
}

Item Importer::dequantized(const Quantized& q) {
  const Blocks blocks = blocks_of(q);
  const bool has_bytes = is_stored(q.numbers);
  const float offset = has_bytes ? offset_of(q.numbers.type) : 0;
  Item numbers = has_bytes ? stored_numbers(q.numbers) : cast(q.numbers, ElementType::kFloat);
  const Shape shape = numbers.shape;
  numbers = reshape(numbers, blocks.numbers);
  if (q.zero_point) {
    const Item zero = reshape(cast(*q.zero_point, ElementType::kFloat), blocks.scales);
    numbers = binary(BinaryKind::kSub, numbers, offset == 0 ? zero : plus(*this, zero, offset));
  } else if (offset != 0) {
    numbers = plus(*this, numbers, -offset);
  }
  return reshape(binary(BinaryKind::kMul, numbers, reshape(q.scale, blocks.scales)), shape);
}

void import_dequantize_linear(NodeImport& n) {
  const Item& x = n.in(0);
  if (is_float(x.type)) n.fail("takes floats");
  const Quantized q = quantization_of(n, x);
  const auto type = static_cast<ElementType>(n.integer("output_dtype", static_cast<int64_t>(n.in(1).type)));
  if (!n.im.is_stored(x)) return n.out(n.im.cast(n.im.dequantized(q), type));
  Item late;
  late.type = type;
  late.shape = x.shape;
  late.axes = in_order(x.rank());
  late.quantized = std::make_shared<const Quantized>(q);
  n.out(std::move(late));
}

void import_quantize_linear(NodeImport& n) {
  const Item x = n.im.cast(n.in(0), ElementType::kFloat);
  const auto type = static_cast<ElementType>(
      n.integer("output_dtype", static_cast<int64_t>(n.has(2) ? n.in(2).type : ElementType::kUint8)));
  const auto [least, most] = range_of(n, type);
  const Quantized q = quantization_of(n, x);
  const Blocks blocks = blocks_of(q);
  const Item scaled =
      n.im.binary(BinaryKind::kDiv, n.im.reshape(x, blocks.numbers), n.im.reshape(q.scale, blocks.scales));
  Item y = n.im.unary(UnaryKind::kRound, scaled);
  if (q.zero_point) {
    const Item zero = n.im.cast(*q.zero_point, ElementType::kFloat);
    y = n.im.binary(BinaryKind::kAdd, y, n.im.reshape(zero, blocks.scales));
  }
  n.out(n.im.cast(n.im.reshape(n.im.unary(UnaryKind::kClip, y, least, most), x.shape), type));
}

void import_dynamic_quantize_linear(NodeImport& n) {
  const Item& x = n.in(0);
  const auto extreme = [&](BinaryKind kind, const Item& item) {
    const Item all = n.im.reduce(ReduceKind::kMax, item, in_order(item.rank()), false);
    return n.im.binary(kind, all, n.im.number(0));
  };
  const Item most = extreme(BinaryKind::kMax, x);
  const Item least = n.im.binary(BinaryKind::kMul,
                                 extreme(BinaryKind::kMax, n.im.binary(BinaryKind::kMul, x, n.im.number(-1))),
                                 n.im.number(-1));
  const Item scale =
      n.im.binary(BinaryKind::kMul, n.im.binary(BinaryKind::kSub, most, least), n.im.number(1.0f / 255));
  const auto whole = [&](const Item& item) {
    return n.im.unary(UnaryKind::kClip, n.im.unary(UnaryKind::kRound, item), 0, 255);
  };
  const Item zero =
      whole(n.im.binary(BinaryKind::kMul, n.im.binary(BinaryKind::kDiv, least, scale), n.im.number(-1)));
  const Item moved = n.im.binary(
      BinaryKind::kAdd, n.im.unary(UnaryKind::kRound, n.im.binary(BinaryKind::kDiv, x, scale)), zero);
  n.out(n.im.cast(n.im.unary(UnaryKind::kClip, moved, 0, 255), ElementType::kUint8));
  n.out(scale);
  n.out(n.im.cast(zero, ElementType::kUint8));
}

}  // namespace headroom::onnx
