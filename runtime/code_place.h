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
  // "net.cpp:31", with the path as the compiler was given it.
  std::string text() const { return std::string(file_) + ":" + std::to_string(line_); }

 private:
  constexpr CodePlace(const char* file, int line) : file_(file), line_(line) {}

  const char* file_;
  int line_;
};

}  // namespace headroom
