#include "runtime/graph/initializer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <type_traits>
#include <utility>

#include "base/errors.h"
#include "base/random.h"

namespace headroom {
namespace {

// FNV-1a over the name: each variable draws from a stream of its own.
uint64_t stream_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

float draw(const Initializer& initializer, uint64_t stream, uint64_t element) {
  switch (initializer.kind) {
    case Initializer::Kind::kNone:
    case Initializer::Kind::kGiven:
    case Initializer::Kind::kMapped:
    case Initializer::Kind::kConstant:
      return initializer.first;
    case Initializer::Kind::kUniform: {
      const float unit = random_unit_float(initializer.seed, stream, element);
      return initializer.first + unit * (initializer.second - initializer.first);
    }
    case Initializer::Kind::kNormal: {
      // Box, Muller 1958, one of the pair; 1 - u keeps the logarithm finite.
      const double u = 1 - static_cast<double>(random_unit_float(initializer.seed, stream, 2 * element));
      const double v = static_cast<double>(random_unit_float(initializer.seed, stream, 2 * element + 1));
      const double z = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
      return static_cast<float>(initializer.first + z * initializer.second);
    }
  }
  return 0;
}

template <typename T>
void fill_constant(std::vector<std::byte>& bytes, float value, std::string_view variable_name) {
  if constexpr (std::is_integral_v<T>) {  // where the conversion would be undefined
    const auto number = static_cast<double>(value);
    if (!(number >= std::numeric_limits<T>::min() && number <= std::numeric_limits<T>::max())) {
      throw InvalidArgument(
          fmt::format("variable {}: {} is not {}", variable_name, value, to_string(dtype_of<T>)));
    }
  }
  const T element = static_cast<T>(value);
  for (size_t i = 0; i < bytes.size(); i += sizeof(T)) std::memcpy(&bytes[i], &element, sizeof(T));
}

struct Fans {
  double in, out;
};

Fans fans_of(const Shape& shape) {
  if (shape.rank() < 2) {
    throw InvalidArgument(
        fmt::format("initializer: {} has no fans, it needs rank 2 at least", to_string(shape)));
  }
  double window = 1;
  for (int axis = 0; axis < shape.rank() - 2; ++axis) window *= static_cast<double>(shape[axis]);
  return {window * static_cast<double>(shape[shape.rank() - 2]), window * static_cast<double>(shape.last())};
}

}  // namespace

Initializer zeros() {
  return {};
}
Initializer ones() {
  return constant_of(1);
}
Initializer constant_of(float value) {
  return {.kind = Initializer::Kind::kConstant, .first = value};
}
Initializer unset() {
  return {.kind = Initializer::Kind::kNone};
}
Initializer given(std::function<std::vector<std::byte>()> bytes) {
  return {.kind = Initializer::Kind::kGiven, .given = std::move(bytes)};
}
Initializer mapped(std::shared_ptr<const MappedFile> file, std::span<const std::byte> bytes) {
  return {.kind = Initializer::Kind::kMapped, .file = std::move(file), .mapped = bytes};
}
Initializer uniform(float low, float high, uint64_t seed) {
  return {.kind = Initializer::Kind::kUniform, .first = low, .second = high, .seed = seed};
}
Initializer normal(float mean, float deviation, uint64_t seed) {
  return {.kind = Initializer::Kind::kNormal, .first = mean, .second = deviation, .seed = seed};
}
Initializer glorot_uniform(const Shape& shape, uint64_t seed) {
  const Fans fans = fans_of(shape);
  const auto limit = static_cast<float>(std::sqrt(6 / (fans.in + fans.out)));
  return uniform(-limit, limit, seed);
}
Initializer he_normal(const Shape& shape, uint64_t seed) {
  return normal(0, static_cast<float>(std::sqrt(2 / fans_of(shape).in)), seed);
}

std::span<const std::byte> initial_bytes(const Initializer& initializer, std::string_view variable_name,
                                         const TensorSpec& spec, std::vector<std::byte>& made) {
  const bool is_mapped = initializer.kind == Initializer::Kind::kMapped;
  if (is_mapped || initializer.kind == Initializer::Kind::kGiven) {
    if (!is_mapped) made = initializer.given();
    const std::span<const std::byte> bytes = is_mapped ? initializer.mapped : made;
    if (std::ssize(bytes) == spec.bytes()) return bytes;
    throw InvalidArgument(fmt::format("variable {}: {} is {} bytes, {} were given", variable_name,
                                      to_string(spec), spec.bytes(), bytes.size()));
  }
  made.assign(static_cast<size_t>(spec.bytes()), std::byte{});
  std::vector<std::byte>& bytes = made;
  if (initializer.kind == Initializer::Kind::kNone) return bytes;
  if (initializer.kind == Initializer::Kind::kConstant) {
    if (spec.dtype == DType::kF32) fill_constant<float>(bytes, initializer.first, variable_name);
    if (spec.dtype == DType::kI32) fill_constant<int32_t>(bytes, initializer.first, variable_name);
    if (spec.dtype == DType::kU8) fill_constant<uint8_t>(bytes, initializer.first, variable_name);
    return bytes;
  }
  if (spec.dtype != DType::kF32) {
    throw InvalidArgument(fmt::format("variable {}: random initializers give f32, not {}", variable_name,
                                      to_string(spec.dtype)));
  }
  const uint64_t stream = stream_of(variable_name);
  for (int64_t i = 0; i < spec.shape.elements(); ++i) {
    const float value = draw(initializer, stream, static_cast<uint64_t>(i));
    std::memcpy(&bytes[static_cast<size_t>(i) * sizeof(float)], &value, sizeof(float));
  }
  return bytes;
}

std::vector<std::byte> initial_value(const Initializer& initializer, std::string_view variable_name,
                                     const TensorSpec& spec) {
  std::vector<std::byte> made;
  const std::span<const std::byte> bytes = initial_bytes(initializer, variable_name, spec, made);
  return made.empty() ? std::vector(bytes.begin(), bytes.end()) : made;
}

}  // namespace headroom
