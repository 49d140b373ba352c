#include "examples/mnist/idx.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <future>
#include <string_view>

#include "runtime/core/bytes.h"
#include "runtime/core/errors.h"

namespace headroom {
namespace {

// Above any use of the format here (MNIST's largest file has 45 MiB), below what a broken header could ask
// for.
constexpr int64_t kMaxDataBytes = kGiB;
constexpr uint8_t kUnsignedByte = 0x08;  // third byte of the magic number

// A file read through zlib, which passes bytes on unchanged where there is no gzip header.
class Input {
 public:
  explicit Input(const std::string& path) : path_(path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) fail("is a folder, not a file");
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail(std::strerror(errno));
    file_ = gzdopen(descriptor, "rb");
    if (file_ == nullptr) {
      close(descriptor);
      fail("no memory to read it");
    }
    gzbuffer(file_, 1 << 17);
  }
  ~Input() { gzclose(file_); }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  // Bytes read into `destination`: fewer than asked at the end only.
  int64_t read(uint8_t* destination, int64_t bytes) {
    int64_t done = 0;
    while (done < bytes) {
      const auto chunk = static_cast<unsigned>(std::min(bytes - done, kMiB));
      const int got = gzread(file_, destination + done, chunk);
      if (got <= 0) break;
      done += got;
    }
    int status = Z_OK;
    const char* message = gzerror(file_, &status);
    if (status == Z_BUF_ERROR)
      fail(fmt::format("the gzip data is truncated (after {} bytes of content)", at_ + done));
    if (status == Z_DATA_ERROR)
      fail(fmt::format("the gzip data is corrupt after byte {}: {}", at_ + done, reason(message)));
    if (status != Z_OK) fail(fmt::format("reading failed after byte {}: {}", at_ + done, reason(message)));
    at_ += done;
    return done;
  }

  [[noreturn]] void fail(std::string_view why) const {
    throw InvalidArgument(fmt::format("{}: {}", path_, why));
  }

 private:
  // Without the "<fd:3>: " that zlib puts in front in place of the name, which it was not told.
  static std::string_view reason(std::string_view message) {
    const size_t name_end = message.find(">: ");
    return name_end == std::string_view::npos ? message : message.substr(name_end + 3);
  }

  std::string path_;
  gzFile file_ = nullptr;
  int64_t at_ = 0;
};

// The extents of an array of `rank` axes: big-endian 32-bit numbers after the magic number.
std::vector<int64_t> read_header(Input& input, int rank) {
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
      if (std::filesystem::exists(path, ignored)) return path;
    }
  }
  throw InvalidArgument(
      fmt::format("{}: holds neither {}-{} nor {}-{}.gz", folder, stem, suffix, stem, suffix));
}

}  // namespace

IdxArray read_idx(const std::string& path, int rank) {
  Input input(path);
  IdxArray array{.extents = read_header(input, rank), .data = {}};
  int64_t expected = 1;
  for (const int64_t extent : array.extents) expected *= extent;
  // Addresses for all that the header claims, but pages only as data arrives: a header alone takes no memory,
  // and no page is touched twice, which costs as much as unpacking where pages are new to a virtual machine.
  array.data.reserve(static_cast<size_t>(expected));
  int64_t have = 0;
  while (have < expected) {
    const int64_t chunk = std::min(expected - have, kMiB);
    array.data.resize(static_cast<size_t>(have + chunk));
    const int64_t got = input.read(array.data.data() + have, chunk);
    have += got;
    if (got < chunk)
      input.fail(fmt::format("truncated: {} bytes of data, the header says {}", have, expected));
  }
  // Reading past the end also makes zlib compare the checksum.
  uint8_t extra = 0;
  if (input.read(&extra, 1) != 0)
    input.fail(fmt::format("oversized: data goes on after the {} bytes of the header", expected));
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
  const auto bad = std::find_if(labels.data.begin(), labels.data.end(),
                                [](uint8_t label) { return label >= Dataset::kClasses; });
  if (bad != labels.data.end()) {
    throw InvalidArgument(
        fmt::format("{}: label {} is {}, not in 0..9", label_path, bad - labels.data.begin(), *bad));
  }
  return {.count = images.extents[0], .images = std::move(images.data), .labels = std::move(labels.data)};
}

}  // namespace headroom
