// The files of python/, which the build puts into the command.
#pragma once

#include <string_view>

namespace headroom {

extern const std::string_view kPythonHook;
extern const std::string_view kHeadroomHook;
extern const std::string_view kHeadroomFacts;

}  // namespace headroom
