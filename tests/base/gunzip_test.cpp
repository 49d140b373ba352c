// gunzip returns the content regardless of the pieces in which it is read, and names the fault of a file.
#include "base/gunzip.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <string>
#include <string_view>

#include "tests/gzipped.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

// Numbers that repeat here and there, so that a part of it is compressed well.
std::string some_text(size_t bytes) {
  std::mt19937 engine(5);
  std::string text;
  while (text.size() < bytes) text += std::to_string(engine() % 5000) + (engine() % 7 == 0 ? "\n" : " ");
  text.resize(bytes);
  return text;
}

struct Outcome {
  std::string content;
  Gunzip::Fault fault;
  int64_t stored_bytes;
};
Outcome read_all(std::string_view stored, int64_t piece_bytes = 1 << 16) {
  const ScratchFolder folder;
  const int descriptor = open(folder.write("stored", std::string(stored)).c_str(), O_RDONLY);
  Gunzip gunzip([descriptor](void* to, int64_t bytes) -> int64_t {
    return ::read(descriptor, to, static_cast<size_t>(bytes));
  });
  Outcome outcome{};
  std::string piece(static_cast<size_t>(piece_bytes), '\0');
  for (int64_t got = piece_bytes; got == piece_bytes;) {
    got = gunzip.read(piece.data(), piece_bytes);
    outcome.content += piece.substr(0, static_cast<size_t>(got));
  }
  outcome.fault = gunzip.fault();
  outcome.stored_bytes = gunzip.stored_bytes();
  close(descriptor);
  return outcome;
}

void expect_content(std::string_view stored, std::string_view content, int64_t piece_bytes = 1 << 16) {
  const Outcome outcome = read_all(stored, piece_bytes);
  EXPECT_EQ(outcome.fault, Gunzip::Fault::kNone);
  EXPECT_TRUE(outcome.content == content) << outcome.content.size() << " bytes, not " << content.size();
  EXPECT_EQ(outcome.stored_bytes, static_cast<int64_t>(stored.size()));
}

TEST(GunzipTest, GivesTheContentBackInPiecesOfAnySize) {
  const std::string text = some_text(700'000);
  for (const int level : {0, 1, 6, 9}) {
    for (const int64_t piece : {1'000'000, 65'536, 4096, 77})
      expect_content(gzipped(text, level), text, piece);
  }
  expect_content(gzipped(text.substr(0, 300)), text.substr(0, 300), 1);
  expect_content(gzipped(""), "");
}

TEST(GunzipTest, ReadsWhatIsNotGzipAsItIs) {
  const std::string text = some_text(600'000);
  for (const int64_t piece : {1'000'000, 4096, 13}) expect_content(text, text, piece);
  for (const std::string_view small : {"", "\x1f", "\x1f\x8c", "a"}) expect_content(small, small);
}

TEST(GunzipTest, ReadsMembersBehindEachOtherAndLeavesOutWhatFollowsThem) {
  const std::string one = some_text(300'000), other = some_text(1000);
  expect_content(gzipped(one) + gzipped("") + gzipped(other), one + other);
  const Outcome padded = read_all(gzipped(other) + std::string(512, '\0'));
  EXPECT_EQ(padded.fault, Gunzip::Fault::kNone);
  EXPECT_EQ(padded.content, other);
}

// A file is read by pieces of 256 KiB.
TEST(GunzipTest, ReadsAHeaderThatIsCutByTheEndOfAPieceOfTheFile) {
  constexpr size_t kPiece = 1 << 18;
  const std::string text = some_text(kPiece), other = some_text(100);
  const size_t around = gzipped(text, 0).size() - text.size();
  for (const GzipHeader header : {GzipHeader::kPlain, GzipHeader::kWhole}) {
    const std::string second = gzipped(other, 6, header);
    for (size_t cut = 1; cut + 10 < second.size(); ++cut) {
      const std::string_view begin = std::string_view(text).substr(0, kPiece - around - cut);
      const std::string first = gzipped(begin, 0);
      ASSERT_LT(first.size(), kPiece) << cut;
      ASSERT_GE(first.size() + second.size(), kPiece) << cut;
      expect_content(first + second, std::string(begin) + other);
    }
  }
}

TEST(GunzipTest, SaysThatAFileEndsTooEarlyWhereverItDoes) {
  const std::string text = some_text(3000), stored = gzipped(text);
  for (size_t bytes = 2; bytes < stored.size(); ++bytes) {
    const Outcome outcome = read_all(stored.substr(0, bytes));
    ASSERT_EQ(outcome.fault, Gunzip::Fault::kTruncated) << bytes << " of " << stored.size();
    ASSERT_TRUE(std::string_view(text).starts_with(outcome.content));
  }
}

TEST(GunzipTest, SaysThatAFileIsCorruptAndGivesNothingElseForTheWholeContent) {
  const std::string text = some_text(3000), stored = gzipped(text);
  int refused = 0;
  const size_t head = 10;  // only its method and flags are checked
  for (size_t at = head; at < stored.size(); ++at) {
    std::string broken = stored;
    broken[at] = static_cast<char>(broken[at] ^ 0x10);
    const Outcome outcome = read_all(broken);
    // Bits that fill the last byte of the data mean nothing.
    EXPECT_TRUE(outcome.fault != Gunzip::Fault::kNone || outcome.content == text) << "byte " << at;
    refused += outcome.fault == Gunzip::Fault::kCorrupt ? 1 : 0;
  }
  EXPECT_GT(refused, static_cast<int>(stored.size() - head) * 9 / 10);
  std::string method = stored;
  method[2] = 7;
  EXPECT_EQ(read_all(method).fault, Gunzip::Fault::kCorrupt);
}

}  // namespace
}  // namespace headroom
