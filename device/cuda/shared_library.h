// A driver's library that is loaded on demand, so that programs start without it. Knows no function by name.
#pragma once

#include <dlfcn.h>

namespace headroom::cuda {

// Stays loaded until the program ends: drivers do not take being unloaded.
class SharedLibrary {
 public:
  explicit SharedLibrary(const char* file) : handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {}

  // Sets `function` to the symbol of that name; returns false and sets null if there is none.
  template <typename F>
  bool find(const char* name, F*& function) const {
    function = handle_ == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(handle_, name));
    return function != nullptr;
  }

 private:
  void* handle_;
};

}  // namespace headroom::cuda
