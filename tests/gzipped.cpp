#include "tests/gzipped.h"

#include <zlib.h>

namespace headroom {

std::string gzipped(std::string_view content, int level, GzipHeader kind) {
  constexpr int kGzip = 16 + MAX_WBITS, kMemory = 8;
  z_stream stream{};
  deflateInit2(&stream, level, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY);
  std::string name = "content", extra = "some more", comment = "nothing of note";
  gz_header header{};
  if (kind == GzipHeader::kWhole) {
    header.name = reinterpret_cast<Bytef*>(name.data());
    header.extra = reinterpret_cast<Bytef*>(extra.data());
    header.extra_len = static_cast<uInt>(extra.size());
    header.comment = reinterpret_cast<Bytef*>(comment.data());
    header.hcrc = 1;
    deflateSetHeader(&stream, &header);
  }
  std::string result(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

}  // namespace headroom
