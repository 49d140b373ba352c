// Owns a handle of a C library and calls its destroy function. Knows no library.
#pragma once

#include <memory>
#include <type_traits>

namespace headroom::cuda {

template <auto kDestroy>
struct Destroy {
  template <typename T>
  void operator()(T* handle) const {
    kDestroy(handle);
  }
};

// For a handle type that is a pointer: Owned<cudaStream_t, cudaStreamDestroy>.
template <typename T, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroy<kDestroy>>;

}  // namespace headroom::cuda
