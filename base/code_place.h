// A place in the code of those who call us. Knows no graph.
#pragma once

#include <string>

namespace headroom {

class CodePlace {
 public:
  // The line that calls the function of which this is a default argument; std::source_location is missing
  // from clang 14.
  static constexpr CodePlace here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  // A place that a file names: "net.py" and 31, or "encoder.layer.0" and no line. `file` must outlive this.
  static constexpr CodePlace named(const char* file, int line = 0) { return {file, line}; }
  // "examples/nets.cpp:31": from the root of these sources on; "net.cpp:31" elsewhere, with the path as the
  // compiler was given it.
  std::string text() const;

 private:
  constexpr CodePlace(const char* file, int line) : file_(file), line_(line) {}

  const char* file_;
  int line_;
};

}  // namespace headroom
