// What every fuzz target is: one function that takes any bytes. It may refuse them by throwing
// InvalidArgument, and nothing else may happen. libFuzzer calls it with clang, run_mutations.cpp with other
// compilers.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
