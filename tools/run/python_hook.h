// The text of python/sitecustomize.py, which the build puts into the command.
#pragma once

#include <string_view>

namespace headroom {

extern const std::string_view kPythonHook;

}  // namespace headroom
