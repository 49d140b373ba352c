// The texts of python/sitecustomize.py and python/headroom_hook.py, which the build puts into the command.
#pragma once

#include <string_view>

namespace headroom {

extern const std::string_view kPythonHook;
extern const std::string_view kHeadroomHook;

}  // namespace headroom
