#include "kernels/cuda/generated/cubin_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>

#include "base/errors.h"
#include "base/files.h"
#include "kernels/cuda/library/algorithm_cache.h"

namespace headroom::cuda {
namespace {

// FNV-1a (Fowler, Noll, Vo), 64 bits, from any start.
uint64_t hash_of(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// A file of the cache: its key and a sum of its bytes in the first line, then the machine code.
std::string first_line(const std::string& key, std::string_view cubin) {
  return fmt::format("headroom_kernel 1 {} {:016x}\n", key, hash_of(cubin, 0xcbf29ce484222325u));
}

constexpr int64_t kMostBytes = int64_t{1} << 20;  // of a kernel of one expression; some 10 KiB are usual
constexpr int kMostFiles = 4096;                  // of the cache, which then begins anew

}  // namespace

std::string key_of_text(const std::string& text) {
  return fmt::format("{:016x}{:016x}", hash_of(text, 0xcbf29ce484222325u),
                     hash_of(text, 0x9ae16a3b2f90404fu));
}

std::string cubin_cache_folder() {
  const std::string algorithms = algorithm_cache_path();
  return algorithms.empty() ? "" : (std::filesystem::path(algorithms).parent_path() / "kernels").string();
}

std::string kept_cubin(const std::string& folder, const std::string& key) {
  std::error_code error;
  const std::string path = folder + "/" + key;
  if (folder.empty() || !std::filesystem::is_regular_file(path, error)) return {};
  try {
    const std::string content = read_file(path, kMostBytes);
    std::string cubin = content.substr(std::min(content.size(), content.find('\n') + 1));
    return content == first_line(key, cubin) + cubin ? cubin : std::string();
  } catch (const InvalidArgument&) {
    return {};
  }
}

void keep_cubin(const std::string& folder, const std::string& key, const std::string& cubin) noexcept {
  if (folder.empty()) return;
  try {
    std::filesystem::create_directories(folder);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
    const auto files = std::filesystem::directory_iterator(folder);
    if (std::distance(begin(files), end(files)) >= kMostFiles) {
      for (const auto& file : std::filesystem::directory_iterator(folder)) std::filesystem::remove(file);
    }
    const std::string line = first_line(key, cubin);
    const std::string_view parts[] = {line, cubin};
    write_file(folder + "/" + key, parts);
  } catch (const std::exception&) {  // the next run compiles it again
  }
}

}  // namespace headroom::cuda
