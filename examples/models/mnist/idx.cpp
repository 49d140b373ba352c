#include "examples/models/mnist/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <future>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"

namespace headroom {
namespace {

// Far above MNIST's largest file (45 MiB), and below the size that a broken header could request.
constexpr int64_t kMaxDataBytes = kGiB;
constexpr uint8_t kUnsignedByte = 0x08;  // third byte of the magic number

// The extents of an array of `rank` axes: big-endian 32-bit numbers after the magic number.
std::vector<int64_t> read_header(InputFile& input, int rank) {
  std::array<uint8_t, 4> word{};
  if (input.read(word.data(), 4) != 4) input.fail("truncated: the file ends inside the magic number");
  const std::array<uint8_t, 4> magic = {0, 0, kUnsignedByte, static_cast<uint8_t>(rank)};
  if (word != magic) {
    input.fail(
        fmt::format("wrong magic number {:02x}{:02x}{:02x}{:02x} at byte 0, expected 000008{:02x} "
                    "(unsigned bytes, {} axes)",
                    word[0], word[1], word[2], word[3], rank, rank));
  }
  std::vector<int64_t> extents;
  int64_t elements = 1;
  for (int axis = 0; axis < rank; ++axis) {
    if (input.read(word.data(), 4) != 4)
      input.fail(fmt::format("truncated: the file ends inside extent {}", axis));
    int64_t extent = 0;
    for (const uint8_t byte : word) extent = extent << 8 | byte;
    if (extent == 0) input.fail(fmt::format("extent {} at byte {} is 0", axis, 4 + 4 * axis));
    if (extent > kMaxDataBytes / elements) {
      input.fail(fmt::format("extent {} at byte {} is {}: more than {} of data", axis, 4 + 4 * axis, extent,
                             format_bytes(kMaxDataBytes)));
    }
    elements *= extent;
    extents.push_back(extent);
  }
  return extents;
}

// The first of the usual names of a file that exists in `folder`.
std::string find_file(const std::string& folder, std::string_view stem, std::string_view suffix) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw InvalidArgument(fmt::format("{}: no such folder", folder));
  }
  for (const char separator : {'-', '.'}) {
    for (const std::string_view end : {"", ".gz"}) {
      const std::string path = fmt::format("{}/{}{}{}{}", folder, stem, separator, suffix, end);
      const std::filesystem::file_status status = std::filesystem::status(path, ignored);
      if (!std::filesystem::exists(status)) continue;
      // Opening a pipe without a writer would block forever.
      if (!std::filesystem::is_regular_file(status) && !std::filesystem::is_directory(status)) {
        throw InvalidArgument(fmt::format("{}: is not a regular file", path));
      }
      return path;
    }
  }
  throw InvalidArgument(
      fmt::format("{}: contains neither {}-{} nor {}-{}.gz", folder, stem, suffix, stem, suffix));
}

}  // namespace

IdxArray read_idx(const std::string& path, int rank) {
  InputFile input(path);
  IdxArray array{.extents = read_header(input, rank), .data = {}};
  int64_t expected = 1;
  for (const int64_t extent : array.extents) expected *= extent;
  // Reserves addresses for the whole array but touches pages only as data arrives: a wrong header takes no
  // memory, and no page is touched twice, which can cost as much as unpacking in a virtual machine.
  array.data.reserve(static_cast<size_t>(expected));
  int64_t have = 0;
  while (have < expected) {
    const int64_t chunk = std::min(expected - have, kMiB);
    array.data.resize(static_cast<size_t>(have + chunk));
    const int64_t got = input.read(array.data.data() + have, chunk);
    have += got;
    if (got < chunk) input.fail(fmt::format("truncated: {} bytes of data instead of {}", have, expected));
  }
  // Reading past the end makes the checksum be verified.
  uint8_t extra = 0;
  if (input.read(&extra, 1) != 0)
    input.fail(fmt::format("oversized: more than the {} bytes that the header states", expected));
  return array;
}

Dataset load_mnist(const std::string& folder, MnistSplit split) {
  const std::string_view prefix = split == MnistSplit::kTrain ? "train" : "t10k";
  const std::string image_path = find_file(folder, fmt::format("{}-images", prefix), "idx3-ubyte");
  const std::string label_path = find_file(folder, fmt::format("{}-labels", prefix), "idx1-ubyte");
  std::future<IdxArray> reading_labels = std::async(std::launch::async, read_idx, label_path, 1);
  IdxArray images = read_idx(image_path, 3);
  IdxArray labels = reading_labels.get();
  if (images.extents[1] != Dataset::kSide || images.extents[2] != Dataset::kSide) {
    throw InvalidArgument(
        fmt::format("{}: images are {}x{}, not 28x28", image_path, images.extents[1], images.extents[2]));
  }
  if (images.extents[0] != labels.extents[0]) {
    throw InvalidArgument(fmt::format("{}: {} labels for the {} images of {}", label_path, labels.extents[0],
                                      images.extents[0], image_path));
  }
  const auto bad =
      std::ranges::find_if(labels.data, [](uint8_t label) { return label >= Dataset::kClasses; });
  if (bad != labels.data.end()) {
    throw InvalidArgument(
        fmt::format("{}: label {} is {}, not in 0..9", label_path, bad - labels.data.begin(), *bad));
  }
  return {.count = images.extents[0], .images = std::move(images.data), .labels = std::move(labels.data)};
}

}  // namespace headroom
