// Helpers of the runtime's tests: graphs run on the CPU with a plain strategy.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "base/random.h"
#include "device/host/cpu_device.h"
#include "runtime/graph/functions.h"
#include "runtime/session/session.h"

namespace headroom {

inline constexpr auto kPlanModes = enum_values<PlanMode>();

// A CPU with the baseline strategy.
struct CpuHarness {
  CpuDevice device;
  std::unique_ptr<Allocator> allocator = make_allocator({.name = "direct"}, device);
};

// Deterministic values in [low, high).
inline std::vector<float> random_floats(int64_t count, uint64_t seed, float low = -1, float high = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = low + (high - low) * random_unit_float(seed, 0, i);
  return values;
}

// Writes floats or integers to a variable.
template <typename T>
void write(Variables& variables, Value variable, const std::vector<T>& values) {
  variables.write(variable, std::as_bytes(std::span(values)));
}

template <typename T>
std::vector<T> read(const Variables& variables, Value variable) {
  const std::vector<std::byte> bytes = variables.read(variable);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <typename T>
std::vector<T> fetch(Session& session, Value value) {
  const std::span<const T> values = session.output<T>(value);
  return {values.begin(), values.end()};
}

}  // namespace headroom
