// The facts that a verdict is told from, as a file: a run's verdict can be told again without its program or
// a GPU.
#pragma once

#include <string>

#include "tools/run/verdict.h"

namespace headroom {

// Throws as write_file.
void write_failure(const std::string& path, const Failure& failure);

// Tells the verdict of such a file. Throws InvalidArgument if it is none.
std::string verdict_of_file(const std::string& path);

}  // namespace headroom
