#include "base/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian and data is copied as it is");

namespace headroom {
namespace {

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 8;               // the header's length, before the header
constexpr uint64_t kMaxHeaderBytes = 100000000;  // the reference implementation's bound
constexpr int64_t kMaxFileBytes = 64 * kGiB;
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::array<std::pair<DType, std::string_view>, 5> kTypeNames = {{{DType::kF32, "F32"},
                                                                           {DType::kI32, "I32"},
                                                                           {DType::kU8, "U8"},
                                                                           {DType::kBf16, "BF16"},
                                                                           {DType::kF16, "F16"}}};
// All types of the format whose elements are whole bytes, with those.
constexpr std::array<std::pair<std::string_view, int64_t>, 13> kStoredBytes = {{{"F32", 4},
                                                                                {"I32", 4},
                                                                                {"U8", 1},
                                                                                {"I64", 8},
                                                                                {"F64", 8},
                                                                                {"F16", 2},
                                                                                {"BF16", 2},
                                                                                {"I16", 2},
                                                                                {"U16", 2},
                                                                                {"U32", 4},
                                                                                {"U64", 8},
                                                                                {"I8", 1},
                                                                                {"BOOL", 1}}};

std::string_view type_name(DType dtype) {
  return std::ranges::find_if(kTypeNames, [&](const auto& row) { return row.first == dtype; })->second;
}

// Finds a name that a header has twice: the parser would silently keep the last. The parser's own callback
// would make its work grow with the square of the names.
class Names final : public nlohmann::json_sax<Json> {
 public:
  std::optional<std::string> repeated;

  bool key(std::string& name) override {
    if (depth_ != 1 || names_.insert(name).second) return true;
    repeated = name;
    return false;
  }
  bool start_object(size_t) override { return enter(1); }
  bool end_object() override { return enter(-1); }
  bool start_array(size_t) override { return enter(1); }
  bool end_array() override { return enter(-1); }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  bool enter(int64_t levels) {
    depth_ += levels;
    return true;
  }

  int64_t depth_ = 0;
  std::unordered_set<std::string> names_;
};

// One file being read; errors name it.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  // Reads the whole file, whose tensors must have a DType.
  TensorFile read() {
    const std::string content =
        read_file(path_, kMaxFileBytes, [this](std::string_view start) { check_start(start); });
    only_ours_ = true;
    TensorFile file;
    for (const StoredTensor& entry : view(content, file.metadata)) {
      TensorSpec spec{*dtype_of_name(entry.type), {}};
      try {
        spec.shape = Shape(std::span<const int64_t>(entry.extents));
      } catch (const InvalidArgument& error) {
        fail(fmt::format("tensor '{}': {}", entry.name, error.what()));
      }
      file.tensors.push_back({entry.name, spec, {entry.data.begin(), entry.data.end()}});
    }
    return file;
  }

  // The tensors of the content, which they point into.
  std::vector<StoredTensor> view(std::string_view content, TensorMetadata& metadata) {
    content_ = content;
    const Json header = read_header();
    std::vector<StoredTensor> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadata) {
        metadata = read_metadata(value);
      } else {
        entries.push_back(read_entry(name, value));
      }
    }
    std::ranges::sort(entries, [](const StoredTensor& a, const StoredTensor& b) {
      return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
    });
    int64_t at = 0;
    for (const StoredTensor& entry : entries) {
      const int64_t begin = entry.data.data() - reinterpret_cast<const std::byte*>(data_.data());
      if (begin < at) fail(fmt::format("tensor '{}': its data overlaps the one before", entry.name));
      if (begin > at) fail(fmt::format("tensor '{}': {} unused bytes before it", entry.name, begin - at));
      at = begin + static_cast<int64_t>(entry.data.size());
    }
    const auto have = static_cast<int64_t>(data_.size());
    if (at != have) fail(fmt::format("{} bytes after the last tensor", have - at));
    return entries;
  }

 private:
  static std::optional<DType> dtype_of_name(std::string_view name) {
    for (const auto& [dtype, known] : kTypeNames) {
      if (known == name) return dtype;
    }
    return std::nullopt;
  }

  [[noreturn]] void fail(std::string_view why) const {
    throw InvalidArgument(fmt::format("{}: {}", path_, why));
  }

  // Returns the length of the header after checking the file's first bytes.
  uint64_t check_start(std::string_view start) const {
    uint64_t length = 0;
    if (start.size() < kLengthBytes) fail("truncated: no room for the length of the header");
    std::memcpy(&length, start.data(), kLengthBytes);
    if (length > kMaxHeaderBytes)
      fail(fmt::format("the header's length is {}: not a safetensors file", length));
    if (length == 0 || (start.size() > kLengthBytes && start[kLengthBytes] != '{'))
      fail("the header does not start with '{'");
    return length;
  }

  // Parses the header and sets data_ to the bytes after it.
  Json read_header() {
    const uint64_t length = check_start(content_);
    if (length > content_.size() - kLengthBytes) {
      fail(fmt::format("truncated: a header of {} bytes in a file of {}", length, content_.size()));
    }
    const std::string_view text = content_.substr(kLengthBytes, length);
    data_ = content_.substr(kLengthBytes + length);
    try {
      Names names;
      Json::sax_parse(text, &names);
      if (names.repeated) fail(fmt::format("tensor '{}': appears twice in the header", *names.repeated));
      return Json::parse(text);
    } catch (const Json::exception& error) {
      fail(fmt::format("the header is not JSON: {}", error.what()));
    }
  }

  TensorMetadata read_metadata(const Json& value) const {
    try {
      if (value.is_object()) return value.get<TensorMetadata>();
    } catch (const Json::exception&) {
    }
    fail("its metadata is not an object of texts");
  }

  StoredTensor read_entry(const std::string& name, const Json& value) const {
    const auto bad = [&](std::string_view why) { fail(fmt::format("tensor '{}': {}", name, why)); };
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      bad("needs dtype, shape and data_offsets, and nothing else");
    }
    const Json& dtype = value["dtype"];
    const auto row = std::ranges::find_if(kStoredBytes, [&](const auto& known) {
      return dtype.is_string() && dtype.get_ref<const std::string&>() == known.first;
    });
    if (row == kStoredBytes.end() || (only_ours_ && !dtype_of_name(row->first)))
      bad(fmt::format("dtype {} is not one of F32, I32, U8{}",
                      dtype.dump(-1, ' ', true, Json::error_handler_t::replace),
                      only_ours_ ? "" : ", I64, ..."));
    std::optional<std::vector<int64_t>> extents = whole_numbers(value["shape"]);
    if (!extents) bad("shape is not a list of whole numbers");
    const std::optional<std::vector<int64_t>> offsets = whole_numbers(value["data_offsets"]);
    if (!offsets || offsets->size() != 2) bad("data_offsets is not a pair of whole numbers");
    const int64_t begin = (*offsets)[0], end = (*offsets)[1];
    if (end < begin || end > static_cast<int64_t>(data_.size())) {
      bad(fmt::format("data_offsets [{}, {}) lie outside the {} bytes of data", begin, end, data_.size()));
    }
    // By division: the product of an absurd shape may overflow.
    const int64_t bytes = end - begin, each = row->second;
    int64_t elements = 1;
    for (int64_t extent : *extents) {
      if (extent > 0 && elements > INT64_MAX / extent) bad("its extents are too large");
      elements *= extent;
    }
    if (bytes % each != 0 || bytes / each != elements) {
      bad(fmt::format("{} bytes of data do not make {}[{}]", bytes, row->first, fmt::join(*extents, ",")));
    }
    const auto* data = reinterpret_cast<const std::byte*>(data_.data());
    return {name, std::string(row->first), std::move(*extents), {data + begin, data + end}};
  }

  // A list of integers in [0, 2^63); nothing for any other value.
  static std::optional<std::vector<int64_t>> whole_numbers(const Json& value) {
    std::vector<int64_t> result;
    if (!value.is_array()) return std::nullopt;
    for (const Json& item : value) {
      if (!item.is_number_unsigned() || item.get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
      result.push_back(item.get<int64_t>());
    }
    return result;
  }

  std::string path_;
  bool only_ours_ = false;
  std::string_view content_, data_;
};

}  // namespace

void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                      const TensorMetadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::vector<std::string_view> parts(2);
  int64_t at = 0;
  for (const NamedTensor& tensor : tensors) {
    const auto bytes = static_cast<int64_t>(tensor.data.size());
    if (bytes != tensor.spec.bytes()) {
      throw InvalidArgument(fmt::format("{}: tensor '{}' has {} bytes, {} needs {}", path, tensor.name, bytes,
                                        to_string(tensor.spec), tensor.spec.bytes()));
    }
    if (tensor.name == kMetadata || header.contains(tensor.name)) {
      throw InvalidArgument(
          fmt::format("{}: a tensor cannot be named '{}' (reserved, or used twice)", path, tensor.name));
    }
    header[tensor.name] = {
        {"dtype", type_name(tensor.spec.dtype)},
        {"shape", std::vector<int64_t>(tensor.spec.shape.begin(), tensor.spec.shape.end())},
        {"data_offsets", {at, at + bytes}}};
    parts.emplace_back(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    at += bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    throw InvalidArgument(fmt::format("{}: a tensor's name or the metadata is not UTF-8", path));
  }
  text.resize(static_cast<size_t>(round_up(static_cast<int64_t>(text.size()), 8)), ' ');  // aligns the data
  const uint64_t length = text.size();
  parts[0] = {reinterpret_cast<const char*>(&length), kLengthBytes};
  parts[1] = text;
  write_file(path, parts);
}

TensorFile load_safetensors(const std::string& path) {
  return Reader(path).read();
}

std::vector<StoredTensor> view_safetensors(const MappedFile& file) {
  TensorMetadata metadata;
  const std::span<const std::byte> bytes = file.bytes();
  return Reader(file.path()).view({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, metadata);
}

}  // namespace headroom
