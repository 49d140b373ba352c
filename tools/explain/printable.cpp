#include "tools/explain/printable.h"

#include <cstdint>

namespace headroom::explain {
namespace {

// Bytes of the character that `text` begins with; 0 when it is not valid UTF-8 (RFC 3629).
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xc2 && first <= 0xdf   ? 2
                       : first >= 0xe0 && first <= 0xef ? 3
                       : first >= 0xf0 && first <= 0xf4 ? 4
                                                        : 0;
  if (bytes == 0) return 0;
  uint32_t code = first & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool control = code >= 0x80 && code < 0xa0;
  return overlong || control || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? 0 : bytes;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string clean;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte <= 0x20 || byte == 0x7f) {
      if (!clean.empty() && clean.back() != ' ') clean += ' ';
      ++i;
      continue;
    }
    const size_t bytes = character_bytes(text.substr(i));
    if (bytes == 0) {
      clean += '?';
      ++i;
    } else {
      clean += text.substr(i, bytes);
      i += bytes;
    }
  }
  while (!clean.empty() && clean.back() == ' ') clean.pop_back();
  return clean;
}

}  // namespace headroom::explain
