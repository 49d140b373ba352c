#include "tools/doctor/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "base/files.h"

namespace headroom::doctor {
namespace {

// Decodes a version from the number in the library's own format.
using Decode = std::string (*)(long long);

std::string by_thousands(long long v) {  // CUDA's: 13000 is 13.0
  return fmt::format("{}.{}", v / 1000, v % 1000 / 10);
}

std::string dnn(long long v) {  // cuDNN's: 91400 is 9.14.0, 8902 is 8.9.2
  const long long major = v >= 10000 ? 10000 : 1000;
  return fmt::format("{}.{}.{}", v / major, v % major / 100, v % 100);
}

std::string collective(long long v) {  // NCCL's: 22707 is 2.27.7, 2708 is 2.7.8
  return v >= 10000 ? fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100)
                    : fmt::format("{}.{}.{}", v / 1000, v % 1000 / 100, v % 100);
}

std::string blas(long long v) {  // cuBLAS's: 130100 is 13.1.0, since version 10 of it
  return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100);
}

// The way that a library returns its version: as the result, or through a pointer. None needs a handle.
enum class Asked { kResult, kPointer };

struct Known {
  const char* name;
  std::vector<const char*> files;  // the newest first
  const char* function;            // null: the version is in the file's name
  Asked asked;
  Decode decode;
};

// The libraries to look for. The functions are declared in NVIDIA's headers, which need not be installed.
const std::vector<Known>& known_libraries() {
  static const std::vector<Known> known = {
      {"libcuda", {"libcuda.so.1"}, nullptr, Asked::kResult, nullptr},
      {"libnvidia-ml", {"libnvidia-ml.so.1"}, nullptr, Asked::kResult, nullptr},
      {"libcudart",
       {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"},
       "cudaRuntimeGetVersion",
       Asked::kPointer,
       by_thousands},
      {"libcublasLt",
       {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"},
       "cublasLtGetVersion",
       Asked::kResult,
       blas},
      {"libcublas",
       {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"},
       nullptr,
       Asked::kResult,
       nullptr},
      {"libcudnn", {"libcudnn.so.9", "libcudnn.so.8"}, "cudnnGetVersion", Asked::kResult, dnn},
      {"libnccl", {"libnccl.so.2"}, "ncclGetVersion", Asked::kPointer, collective},
      {"libnvrtc",
       {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"},
       nullptr,
       Asked::kResult,
       nullptr}};
  return known;
}

// Returns "580.65.06" for "/usr/lib/libcuda.so.580.65.06"; empty if the name ends in ".so" or there is none.
std::string version_of_name(const std::string& path) {
  const size_t at = path.rfind(".so.");
  return at == path.npos ? "" : path.substr(at + 4);
}

std::string ask(const Known& library, void* handle) {
  if (library.function == nullptr) return "";
  void* symbol = dlsym(handle, library.function);
  if (symbol == nullptr) return "";
  if (library.asked == Asked::kResult) {
    return library.decode(static_cast<long long>(reinterpret_cast<size_t (*)()>(symbol)()));
  }
  int version = 0;
  return reinterpret_cast<int (*)(int*)>(symbol)(&version) == 0 ? library.decode(version) : "";
}

// The number that `function` of `file` writes; nothing if either is missing or it writes 0.
std::optional<int> number_of(const std::vector<const char*>& files, const char* function) {
  for (const char* file : files) {
    void* handle = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) continue;
    auto* get = reinterpret_cast<int (*)(int*)>(dlsym(handle, function));
    int version = 0;
    if (get != nullptr && get(&version) == 0 && version > 0) return version;
  }
  return std::nullopt;
}

std::string own_maps() {
  return read_file("/proc/self/maps", int64_t{64} << 20);
}

}  // namespace

std::vector<LibraryFile> mapped_libraries(std::string_view maps) {
  std::vector<LibraryFile> result;
  std::set<std::string> seen;
  while (!maps.empty()) {
    const std::string_view line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(maps.size(), line.size() + 1));
    const size_t slash = line.find('/');
    if (slash == line.npos) continue;
    const std::string path(line.substr(slash));
    const std::string file = path.substr(path.rfind('/') + 1);
    for (const Known& library : known_libraries()) {
      if (!file.starts_with(fmt::format("{}.so", library.name))) continue;
      if (seen.insert(path).second) result.push_back({library.name, path, version_of_name(path)});
    }
  }
  return result;
}

std::vector<LibraryFile> load_libraries() {
  std::vector<std::pair<std::string, std::string>> answers;  // by name
  for (const Known& library : known_libraries()) {
    for (const char* file : library.files) {
      // Stays loaded: drivers break when they are unloaded, and the maps are read below.
      void* handle = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
      if (handle == nullptr) continue;
      answers.emplace_back(library.name, ask(library, handle));
      break;
    }
  }
  std::vector<LibraryFile> libraries = mapped_libraries(own_maps());
  const std::vector<std::string> twice = duplicates(libraries);
  for (LibraryFile& library : libraries) {
    // With two files it is unknown which one answered.
    if (std::ranges::find(twice, library.name) != twice.end()) continue;
    for (const auto& [name, version] : answers) {
      if (name == library.name && !version.empty()) library.version = version;
    }
  }
  return libraries;
}

std::vector<std::string> duplicates(const std::vector<LibraryFile>& libraries) {
  std::vector<std::string> names;
  for (const LibraryFile& library : libraries) {
    const auto count = std::ranges::count_if(
        libraries, [&](const LibraryFile& other) { return other.name == library.name; });
    if (count > 1 && std::ranges::find(names, library.name) == names.end()) {
      names.push_back(library.name);
    }
  }
  return names;
}

std::optional<int> driver_cuda_version() {
  return number_of({"libcuda.so.1"}, "cuDriverGetVersion");
}

std::optional<int> runtime_cuda_version() {
  return number_of({"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}, "cudaRuntimeGetVersion");
}

}  // namespace headroom::doctor
