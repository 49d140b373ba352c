#include "runtime/program.h"

#include <fmt/format.h>

#include <exception>

#include "runtime/core/errors.h"

namespace headroom {

int run_program(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return exit_code(error);
  }
}

}  // namespace headroom
