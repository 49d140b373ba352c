#include "runtime/onnx/element_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "base/half.h"

namespace headroom::onnx {
namespace {

struct TypeRow {
  ElementType type;
  std::string_view name, safetensors_name;
  int64_t bits;
  DType ours;
};

constexpr TypeRow kTypes[] = {
    {ElementType::kFloat, "float", "F32", 32, DType::kF32},
    {ElementType::kUint8, "uint8", "U8", 8, DType::kU8},
    {ElementType::kInt8, "int8", "I8", 8, DType::kI32},
    {ElementType::kUint16, "uint16", "U16", 16, DType::kI32},
    {ElementType::kInt16, "int16", "I16", 16, DType::kI32},
    {ElementType::kInt32, "int32", "I32", 32, DType::kI32},
    {ElementType::kInt64, "int64", "I64", 64, DType::kI32},
    {ElementType::kBool, "bool", "BOOL", 8, DType::kU8},
    {ElementType::kFloat16, "float16", "F16", 16, DType::kF32},
    {ElementType::kDouble, "double", "F64", 64, DType::kF32},
    {ElementType::kUint32, "uint32", "U32", 32, DType::kI32},
    {ElementType::kUint64, "uint64", "U64", 64, DType::kI32},
    {ElementType::kBfloat16, "bfloat16", "BF16", 16, DType::kF32},
    {ElementType::kUint4, "uint4", "U4", 4, DType::kI32},
    {ElementType::kInt4, "int4", "I4", 4, DType::kI32},
};

const TypeRow* row_of(ElementType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

int32_t saturate(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX));
}

// Each stored element as F makes one of ours of it.
template <typename From, typename To, typename F>
std::vector<std::byte> convert(std::span<const std::byte> data, int64_t count, F f) {
  std::vector<std::byte> result(static_cast<size_t>(count) * sizeof(To));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    From stored;  // its address need not be aligned
    std::memcpy(&stored, data.data() + i * sizeof(From), sizeof(From));
    const To value = f(stored);
    std::memcpy(result.data() + i * sizeof(To), &value, sizeof(To));
  }
  return result;
}

// Each half of a byte; `sign` is 8 where that bit is one of a sign.
std::vector<std::byte> convert_halves(std::span<const std::byte> data, int64_t count, int32_t sign) {
  std::vector<std::byte> result(static_cast<size_t>(count) * sizeof(int32_t));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const int32_t half = (static_cast<int32_t>(data[i / 2]) >> (i % 2 == 0 ? 0 : 4)) & 15;
    const int32_t value = (half ^ sign) - sign;
    std::memcpy(result.data() + i * sizeof value, &value, sizeof value);
  }
  return result;
}

}  // namespace

std::string to_string(ElementType type) {
  if (const TypeRow* row = row_of(type)) return std::string(row->name);
  if (type == ElementType::kString) return "string";
  return fmt::format("type {}", static_cast<int32_t>(type));
}

ElementType type_of_safetensors(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.safetensors_name == name) return row.type;
  }
  return ElementType::kUndefined;
}

int64_t stored_bits(ElementType type) {
  const TypeRow* row = row_of(type);
  return row == nullptr ? 0 : row->bits;
}

int64_t stored_bytes(ElementType type, int64_t count) {
  const int64_t bits = stored_bits(type);
  return bits < 8 ? (bits * count + 7) / 8 : bits / 8 * count;
}

DType dtype_of_element(ElementType type) {
  const TypeRow* row = row_of(type);
  return row == nullptr ? DType::kF32 : row->ours;
}

bool is_float(ElementType type) {
  return row_of(type) != nullptr && dtype_of_element(type) == DType::kF32;
}

bool is_half(ElementType type) {
  return type == ElementType::kFloat16 || type == ElementType::kBfloat16;
}

bool is_stored_as_ours(ElementType type) {
  return type == ElementType::kFloat || type == ElementType::kInt32 || type == ElementType::kUint8;
}

std::vector<std::byte> convert_elements(ElementType type, std::span<const std::byte> data, int64_t count) {
  if (static_cast<int64_t>(data.size()) != stored_bytes(type, count)) {
    throw InvalidArgument(
        fmt::format("{} bytes do not make {} elements of {}", data.size(), count, to_string(type)));
  }
  if (is_stored_as_ours(type)) return {data.begin(), data.end()};
  switch (type) {
    case ElementType::kBool:
      return convert<uint8_t, uint8_t>(data, count, [](uint8_t v) { return static_cast<uint8_t>(v != 0); });
    case ElementType::kInt8:
      return convert<int8_t, int32_t>(data, count, [](int8_t v) { return int32_t{v}; });
    case ElementType::kInt16:
      return convert<int16_t, int32_t>(data, count, [](int16_t v) { return int32_t{v}; });
    case ElementType::kUint16:
      return convert<uint16_t, int32_t>(data, count, [](uint16_t v) { return int32_t{v}; });
    case ElementType::kUint32:
      return convert<uint32_t, int32_t>(data, count, [](uint32_t v) { return saturate(v); });
    case ElementType::kInt64:
      return convert<int64_t, int32_t>(data, count, saturate);
    case ElementType::kUint64:
      return convert<uint64_t, int32_t>(data, count, [](uint64_t v) {
        return saturate(static_cast<int64_t>(std::min<uint64_t>(v, INT64_MAX)));
      });
    case ElementType::kUint4:
      return convert_halves(data, count, 0);
    case ElementType::kInt4:
      return convert_halves(data, count, 8);
    case ElementType::kFloat16:
      return convert<uint16_t, float>(data, count, float_of_f16);
    case ElementType::kBfloat16:
      return convert<uint16_t, float>(data, count, float_of_bf16);
    case ElementType::kDouble:
      // Numbers that f32 cannot hold become infinite, as IEC 559 rounds them.
      return convert<double, float>(data, count, [](double v) { return static_cast<float>(v); });
    default:
      throw InvalidArgument(fmt::format("elements of {} are not read", to_string(type)));
  }
}

}  // namespace headroom::onnx
