// bf16 tensors in DeviceFloats, two to a float.
#pragma once

#include <cstring>
#include <vector>

#include "base/half.h"

namespace headroom {

inline std::vector<float> packed_halves(const std::vector<float>& values) {
  std::vector<uint16_t> halves((values.size() + 1) / 2 * 2);
  for (size_t i = 0; i < values.size(); ++i) halves[i] = bf16_of(values[i]);
  std::vector<float> packed(halves.size() / 2);
  std::memcpy(packed.data(), halves.data(), 4 * packed.size());
  return packed;
}

inline std::vector<float> unpacked_halves(const std::vector<float>& packed, size_t count) {
  std::vector<uint16_t> halves(2 * packed.size());
  std::memcpy(halves.data(), packed.data(), 4 * packed.size());
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = float_of_bf16(halves[i]);
  return values;
}

}  // namespace headroom
