// Numbers for texts, looked up without a copy. Knows no format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace headroom {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using NameTable = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

}  // namespace headroom
