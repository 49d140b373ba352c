// The form of every fuzz target: one function that takes any bytes. It may refuse them by throwing
// InvalidArgument; anything else is a fault. With clang libFuzzer calls it, one in each program. Elsewhere
// run_mutations.cpp calls those of all targets by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

struct FuzzTarget {
  std::string_view name;
  int (*run)(const uint8_t* data, size_t size);
};
std::span<const FuzzTarget> fuzz_targets();
