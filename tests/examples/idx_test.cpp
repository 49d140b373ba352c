#include "examples/models/mnist/idx.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>
#include <string>

#include "base/errors.h"
#include "tests/gzipped.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

std::string big_endian(uint32_t value) {
  std::string result;
  for (int shift = 24; shift >= 0; shift -= 8) result += static_cast<char>(value >> shift);
  return result;
}

std::string idx(std::initializer_list<uint32_t> extents, std::string_view data) {
  std::string result = big_endian(0x00000800 + static_cast<uint32_t>(extents.size()));
  for (const uint32_t extent : extents) result += big_endian(extent);
  return result + std::string(data);
}

// The error message for `content` as an array of `rank` axes.
std::string refusal(const std::string& content, int rank) {
  const ScratchFolder folder;
  const std::string path = folder.write("data", content);
  try {
    read_idx(path, rank);
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message.substr(path.size() + 2);
  }
  return "accepted";
}

TEST(ReadIdx, GivesExtentsAndBytes) {
  const ScratchFolder folder;
  const IdxArray array = read_idx(folder.write("a", idx({2, 1, 3}, "abcdef")), 3);
  EXPECT_EQ(array.extents, (std::vector<int64_t>{2, 1, 3}));
  EXPECT_EQ(std::string(array.data.begin(), array.data.end()), "abcdef");
}

TEST(ReadIdx, DetectsGzipByContentNotByName) {
  const ScratchFolder folder;
  EXPECT_EQ(read_idx(folder.write("plain.gz", idx({3}, "abc")), 1).data.size(), 3u);
  EXPECT_EQ(read_idx(folder.write("zipped", gzipped(idx({3}, "abc"))), 1).data.size(), 3u);
}

TEST(ReadIdx, RefusesAnotherMagicNumber) {
  EXPECT_NE(refusal(idx({3}, "abc"), 3).find("wrong magic number 00000801 at byte 0, expected 00000803"),
            std::string::npos);
  EXPECT_NE(refusal("hello world, this is text", 1).find("wrong magic number"), std::string::npos);
}

TEST(ReadIdx, RefusesEveryTruncation) {
  const std::string whole = idx({2, 2}, "abcd");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(refusal(whole.substr(0, length), 2).find("truncated"), std::string::npos) << length;
  }
}

TEST(ReadIdx, RefusesEveryTruncationOfGzip) {
  const std::string whole = gzipped(idx({2, 2}, "abcd"));
  for (size_t length = 2; length < whole.size(); ++length) {
    EXPECT_NE(refusal(whole.substr(0, length), 2), "accepted") << length;
  }
}

TEST(ReadIdx, RefusesDamagedGzip) {
  std::string content = gzipped(idx({600}, std::string(600, 'x')));
  content[content.size() - 6] = static_cast<char>(content[content.size() - 6] ^ 1);  // in the checksum
  const std::string message = refusal(content, 1);
  EXPECT_NE(message.find("the gzip data is corrupt"), std::string::npos) << message;
  EXPECT_EQ(message.find("<fd"), std::string::npos) << message;
}

TEST(ReadIdx, RefusesMoreDataThanTheHeaderStates) {
  EXPECT_NE(refusal(idx({3}, "abcd"), 1).find("oversized: more than the 3 bytes"), std::string::npos);
  // A gzip bomb is read one byte past the size in its header, not to its end.
  // NOLINTNEXTLINE(bugprone-string-constructor)
  EXPECT_NE(refusal(gzipped(idx({3}, std::string(50'000'000, '\0'))), 1).find("oversized"),
            std::string::npos);
}

TEST(ReadIdx, RefusesAbsurdExtents) {
  EXPECT_NE(refusal(idx({0}, ""), 1).find("extent 0 at byte 4 is 0"), std::string::npos);
  EXPECT_NE(refusal(idx({0xffffffff}, "abc"), 1).find("extent 0 at byte 4 is 4294967295"), std::string::npos);
  EXPECT_NE(refusal(idx({0x10000, 0x10000, 0x10000}, "abc"), 3).find("extent 1 at byte 8"),
            std::string::npos);
}

TEST(ReadIdx, RefusesAMissingFileAndAFolder) {
  const ScratchFolder folder;
  EXPECT_THROW(read_idx(folder / "missing", 1), InvalidArgument);
  EXPECT_THROW(read_idx(folder.path(), 1), InvalidArgument);
}

class Mnist : public testing::Test {
 protected:
  std::string refusal(MnistSplit split = MnistSplit::kTrain) {
    try {
      load_mnist(folder_.path(), split);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  }
  const std::string images_ = idx({2, 28, 28}, std::string(2 * 784, '\x05'));
  const std::string labels_ = idx({2}, std::string("\x00\x09", 2));
  ScratchFolder folder_;
};

TEST_F(Mnist, APipeIsRefusedAndNotWaitedFor) {
  const std::string pipe = folder_ / "train-images-idx3-ubyte";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  folder_.write("train-labels-idx1-ubyte", labels_);
  EXPECT_EQ(refusal(), pipe + ": is not a regular file");
}

TEST_F(Mnist, FindsFilesByTheirUsualNames) {
  folder_.write("train-images-idx3-ubyte.gz", gzipped(images_));
  folder_.write("train-labels.idx1-ubyte", labels_);
  const Dataset train = load_mnist(folder_.path(), MnistSplit::kTrain);
  EXPECT_EQ(train.count, 2);
  EXPECT_EQ(train.images, std::vector<uint8_t>(2 * 784, 5));
  EXPECT_EQ(train.labels, (std::vector<uint8_t>{0, 9}));
  EXPECT_NE(refusal(MnistSplit::kTest).find("contains neither t10k-images-idx3-ubyte nor"),
            std::string::npos);
}

TEST_F(Mnist, RefusesAMissingFolder) {
  try {
    load_mnist(folder_ / "nowhere", MnistSplit::kTrain);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()), (folder_ / "nowhere") + ": no such folder");
  }
}

TEST_F(Mnist, RefusesCountsThatDiffer) {
  folder_.write("train-images-idx3-ubyte", images_);
  folder_.write("train-labels-idx1-ubyte", idx({3}, std::string(3, '\1')));
  EXPECT_NE(refusal().find("3 labels for the 2 images"), std::string::npos);
}

TEST_F(Mnist, RefusesALabelAboveNine) {
  folder_.write("train-images-idx3-ubyte", images_);
  folder_.write("train-labels-idx1-ubyte", idx({2}, "\x03\x0a"));
  EXPECT_NE(refusal().find("label 1 is 10, not in 0..9"), std::string::npos);
}

TEST_F(Mnist, RefusesOtherImageSizes) {
  folder_.write("train-images-idx3-ubyte", idx({2, 32, 28}, std::string(2 * 32 * 28, '\0')));
  folder_.write("train-labels-idx1-ubyte", labels_);
  EXPECT_NE(refusal().find("images are 32x28, not 28x28"), std::string::npos);
}

}  // namespace
}  // namespace headroom
