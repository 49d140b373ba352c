// The initial values of a variable. They depend only on a seed and the variable's name, not on the order in
// which variables are made. Knows no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/tensor.h"

namespace headroom {

struct Initializer {
  enum class Kind : uint8_t { kConstant, kUniform, kNormal, kNone, kGiven, kMapped };
  Kind kind = Kind::kConstant;
  float first = 0;   // the constant; low; mean
  float second = 0;  // high; standard deviation
  uint64_t seed = 0;
  std::function<std::vector<std::byte>()> given = {};  // for kGiven: the bytes, as many as the variable has
  std::shared_ptr<const MappedFile> file = {};         // for kMapped, and the bytes in it
  std::span<const std::byte> mapped = {};
};

Initializer zeros();
Initializer ones();
Initializer constant_of(float value);
// For a variable that is written before it is read, such as a data set.
Initializer unset();
// Bytes from elsewhere, such as a file, asked for when the variable gets memory.
Initializer given(std::function<std::vector<std::byte>()> bytes);
// Bytes of a file as they lie there. A CPU uses them in place for a variable that nothing changes.
Initializer mapped(std::shared_ptr<const MappedFile> file, std::span<const std::byte> bytes);
Initializer uniform(float low, float high, uint64_t seed);
Initializer normal(float mean, float deviation, uint64_t seed);
// For a filter (.., fan_in, fan_out) or a matrix (fan_in, fan_out): leading extents count into both fans.
// Glorot, Bengio 2010: uniform in +-sqrt(6 / (fan_in + fan_out)), the default of Keras layers.
Initializer glorot_uniform(const Shape& shape, uint64_t seed);
// He et al. 2015: normal with deviation sqrt(2 / fan_in), for layers with relu.
Initializer he_normal(const Shape& shape, uint64_t seed);

// The bytes of a variable's first value: those of a mapped file, or `made`, which is set to them. Random
// kinds need f32; throws InvalidArgument otherwise.
std::span<const std::byte> initial_bytes(const Initializer& initializer, std::string_view variable_name,
                                         const TensorSpec& spec, std::vector<std::byte>& made);
// Copies these bytes.
std::vector<std::byte> initial_value(const Initializer& initializer, std::string_view variable_name,
                                     const TensorSpec& spec);

}  // namespace headroom
