// Compresses as gzip does, for tests of its readers.
#pragma once

#include <string>
#include <string_view>

namespace headroom {

enum class GzipHeader : unsigned char { kPlain, kWhole };  // kWhole: with all that a header may have

std::string gzipped(std::string_view content, int level = 9, GzipHeader kind = GzipHeader::kPlain);

}  // namespace headroom
