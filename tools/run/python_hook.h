// The start-up hook of Python programs.
#pragma once

#include <string>
#include <string_view>

namespace headroom {

// The files of python/, which the build puts into the command, and the SHA-256 of them all.
extern const std::string_view kHookHash;
extern const std::string_view kPythonHook;
extern const std::string_view kHeadroomHook;
extern const std::string_view kHeadroomFacts;
extern const std::string_view kHeadroomModels;
extern const std::string_view kHeadroomObjects;
extern const std::string_view kHeadroomRequest;
extern const std::string_view kHeadroomSource;

// Returns the folder with these files, for PYTHONPATH: one in the cache, where Python keeps them compiled, so
// that they need not be compiled at each start. Where the cache cannot be used it is `temporary`/python,
// written anew. Throws Error if that cannot be written.
std::string python_hook_folder(const std::string& temporary);

}  // namespace headroom
