// A place in the callers' code. Knows no graph.
#pragma once

#include <string>

namespace headroom {

class CodePlace {
 public:
  // Returns the line of the call for which this is a default argument; clang 14 lacks std::source_location.
  static constexpr CodePlace here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  // A place that a file names: "net.py" and 31, or "encoder.layer.0" and no line. `file` must outlive this.
  static constexpr CodePlace named(const char* file, int line = 0) { return {file, line}; }
  // Formats as "examples/nets.cpp:31", relative to the root of these sources; elsewhere "net.cpp:31", with
  // the path that the compiler was given.
  std::string text() const;

 private:
  constexpr CodePlace(const char* file, int line) : file_(file), line_(line) {}

  const char* file_;
  int line_;
};

}  // namespace headroom
