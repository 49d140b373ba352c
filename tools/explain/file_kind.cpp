#include "tools/explain/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/text.h"

namespace headroom::explain {
namespace {

enum class Next { kReport, kRun, kUnpack, kNothing };

struct FileKind {
  std::string_view beginning, what;
  Next next = Next::kNothing;
};

// First bytes of formats other than logs. Those of traces are as in trace/formats.h, which this folder does
// not know.
constexpr FileKind kKinds[] = {
    {"(dp0\n", "a pickle", Next::kReport},
    {"(lp0\n", "a pickle", Next::kReport},
    {std::string_view("}q\0", 3), "a pickle", Next::kReport},
    {std::string_view("]q\0", 3), "a pickle", Next::kReport},
    {"headroom-trace ", "a recording", Next::kReport},
    {"op,id,bytes", "a trace", Next::kReport},
    {"Thread,Time,Action,Pointer,Size,Stream", "RMM's record of allocations", Next::kReport},
    {"PK\x03\x04", "a ZIP archive, as torch.save and numpy.savez write"},
    {"\x28\xb5\x2f\xfd", "compressed by zstd", Next::kUnpack},
    {"\xfd"
     "7zXZ",
     "compressed by xz", Next::kUnpack},
    {"BZh", "compressed by bzip2", Next::kUnpack},
    {"\x1f\x8b", "compressed twice", Next::kUnpack},
    {"\x89HDF", "an HDF5 file"},
    {"\x93NUMPY", "a NumPy array"},
    {"GGUF", "a GGUF model"},
    {"SQLite format 3", "an SQLite database, as Nsight Systems exports"},
    {"\x7f"
     "ELF",
     "a program or library"},
    {"\x89PNG", "a picture"},
    {"%PDF-", "a PDF document"},
};

// Protocols 2 to 5, of which PyTorch's snapshots are, say so first.
bool is_pickle(std::string_view beginning) {
  return beginning.size() > 1 && beginning[0] == '\x80' && beginning[1] >= 2 && beginning[1] <= 5;
}

// The length of a header in 8 bytes, then the header: JSON.
bool is_safetensors(std::string_view beginning) {
  if (beginning.size() < 10 || beginning[8] != '{' || (beginning[9] != '"' && beginning[9] != '}'))
    return false;
  return beginning.substr(4, 4) == std::string_view("\0\0\0\0", 4);
}

// The version, which is small, then the length of the producer's name and the name, or the graph.
bool is_onnx(std::string_view beginning) {
  if (beginning.size() < 8 || beginning[0] != '\x08' || beginning[1] < 1 || beginning[1] > 31) return false;
  if (beginning[2] == '\x3a') return true;
  const auto length = static_cast<size_t>(static_cast<uint8_t>(beginning[3]));
  const std::string_view name = beginning.substr(4, length);
  return beginning[2] == '\x12' && name.size() == length &&
         std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
}

std::string advice(Next next, std::string_view path) {
  const std::string file = path == "-" ? "FILE" : shell_word(path);
  switch (next) {
    case Next::kReport:
      return fmt::format("; memory snapshots and traces are read by headroom report {}", file);
    case Next::kRun:
      return fmt::format("; headroom run --model {} runs it", file);
    case Next::kUnpack:
      return "; unpack it first";
    case Next::kNothing:
      break;
  }
  return "; give the text that the program printed";
}

}  // namespace

std::string why_no_log(std::string_view beginning, std::string_view path) {
  const auto is = [&](std::string_view what, Next next = Next::kNothing) {
    return fmt::format("is not a log: it is {}{}", what, advice(next, path));
  };
  if (is_pickle(beginning)) return is("a pickle", Next::kReport);
  if (is_safetensors(beginning)) return is("a safetensors file");
  if (is_onnx(beginning)) return is("an ONNX model", Next::kRun);
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // starts text saved by Excel
  if (beginning.starts_with(kByteOrderMark)) beginning.remove_prefix(kByteOrderMark.size());
  for (const FileKind& kind : kKinds) {
    if (beginning.starts_with(kind.beginning)) return is(kind.what, kind.next);
  }
  return "";
}

}  // namespace headroom::explain
