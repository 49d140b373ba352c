// The start-up hook of Python programs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace headroom {

// The files of python/, "/name.py" and text, which the build puts into the command, and the SHA-256 of them
// all.
extern const std::string_view kHookHash;
extern const std::span<const std::pair<const char*, std::string_view>> kHookFiles;

// Returns the folder with these files, for PYTHONPATH: one in the cache, where Python keeps them compiled, so
// that they need not be compiled at each start. Where the cache cannot be used it is `temporary`/python,
// written anew. Throws Error if that cannot be written.
std::string python_hook_folder(const std::string& temporary);

}  // namespace headroom
