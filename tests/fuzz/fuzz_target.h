// The form of every fuzz target: one function that takes any bytes. It may refuse them by throwing
// InvalidArgument; anything else is a fault. libFuzzer calls it with clang, run_mutations.cpp with other
// compilers.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
