// A stand-in that follows RMM's published interface.
#pragma once
#include <new>
#include <stdexcept>
#include <string>

namespace rmm {
struct logic_error : std::logic_error {
  using std::logic_error::logic_error;
};
class bad_alloc : public std::bad_alloc {
 public:
  bad_alloc(const char* message) : what_(message) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};
class out_of_memory : public bad_alloc {
 public:
  using bad_alloc::bad_alloc;
};
}  // namespace rmm
