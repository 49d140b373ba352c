// Machine code of generated kernels, kept in files between runs: compiling them takes longer than starting a
// program. Knows no compiler and no device.
#pragma once

#include <string>

namespace headroom::cuda {

// The name of the machine code that a compiler makes of `text`, in which all stands that it depends on.
std::string key_of_text(const std::string& text);

// The folder `kernels` beside the file of algorithm_cache_path(); empty if that is off.
std::string cubin_cache_folder();

// The machine code of that key; empty if none is kept, or its file is damaged or not ours.
std::string kept_cubin(const std::string& folder, const std::string& key);
// Keeps it for later runs. A file that cannot be written changes nothing.
void keep_cubin(const std::string& folder, const std::string& key, const std::string& cubin) noexcept;

}  // namespace headroom::cuda
