// NVIDIA's libraries as the loader finds them: path, version, duplicates. Knows no GPU.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::doctor {

struct LibraryFile {
  std::string name;     // "libcublas"
  std::string path;     // links followed
  std::string version;  // "13.1.0", as it reports itself or else from the file's name; may be empty
};

// Loads the libraries that training on a GPU uses and asks each for its version. Includes libraries that are
// already loaded, for instance by LD_PRELOAD. Makes no context.
std::vector<LibraryFile> load_libraries();

// Returns the same libraries among the files that a process has mapped, from the text of its /proc/PID/maps.
// Lists each file once; versions come from the files' names.
std::vector<LibraryFile> mapped_libraries(std::string_view maps);

// The names with more than one file.
std::vector<std::string> duplicates(const std::vector<LibraryFile>& libraries);

// Return the newest CUDA that the installed driver supports, and the CUDA runtime's own version, each as 1000
// * major + 10 * minor; nullopt if there is none.
std::optional<int> driver_cuda_version();
std::optional<int> runtime_cuda_version();

}  // namespace headroom::doctor
