// NVIDIA's libraries as the loader finds them: where, which version, and whether twice. Knows no GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::doctor {

struct LibraryFile {
  std::string name;     // "libcublas"
  std::string path;     // links followed
  std::string version;  // "13.1.0", by its own word where it was asked, else by the file's name; may be empty
};

// Loads what the loader finds of each library that training on a GPU uses, and asks it its version. Loading
// makes no context. What is already loaded, by LD_PRELOAD for instance, is part of it.
std::vector<LibraryFile> load_libraries();

// The libraries of that kind among the files that a process has mapped, given the text of its
// /proc/PID/maps. Each file once; versions by the files' names.
std::vector<LibraryFile> mapped_libraries(std::string_view maps);

// The names of which there are two files.
std::vector<std::string> duplicates(const std::vector<LibraryFile>& libraries);

// The newest CUDA that the installed driver runs, and the CUDA runtime's own version, each as 1000 * major +
// 10 * minor; nothing where there is none.
std::optional<int> driver_cuda_version();
std::optional<int> runtime_cuda_version();

}  // namespace headroom::doctor
