// Tests the limits on a pickle's memory.
#include "trace/pickle.h"

#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/errors.h"
#include "tests/gzipped.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

std::string repeated(std::string_view opcodes, int64_t bytes) {
  std::string content(opcodes);
  while (std::ssize(content) < bytes) content += std::string(content);
  return "\x80\x04" + content;
}

// The content bytes that are read before the pickle is refused for its memory; -1 if it is not.
int64_t read_before_refusal(const std::string& content, bool is_gzipped) {
  const ScratchFolder folder;
  const std::string path = folder.write("pickle", is_gzipped ? gzipped(content, 6) : content);
  TraceInput input(path);
  try {
    const Pickle pickle(input);
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("far more than a snapshot of its size"), std::string::npos) << message;
    EXPECT_EQ(message.ends_with("gunzip it first"), is_gzipped) << message;
    return input.at_bytes();
  }
  return -1;
}

// Each value of `opcodes` uses at least `bytes_taken`, so that the bytes read show the bytes used.
struct Bomb {
  std::string_view opcodes;
  int64_t bytes_taken;
};

TEST(Pickle, EmptyContainersAreRefusedBeforeTheyFillTheMemory) {
  // A container and a value on the stack; for a tuple of one, also the value in it.
  for (const auto& [opcodes, bytes_taken] : {Bomb{"]", 24}, Bomb{"N\x85", 32}}) {
    for (const bool is_gzipped : {false, true}) {
      if (!is_gzipped && opcodes.size() > 1) continue;  // as much for each byte as a file may take
      const int64_t read = read_before_refusal(repeated(opcodes, 9 * kMiB), is_gzipped);
      ASSERT_GT(read, 0) << opcodes;
      const int64_t taken = read / std::ssize(opcodes) * bytes_taken;
      EXPECT_LT(taken, 320 * kMiB) << opcodes;
    }
  }
}

TEST(Pickle, WhatGzipMadeSmallTakesLittleMemory) {
  for (const auto& [opcodes, bytes_taken] : {Bomb{"N", 8}, Bomb{"(", 8}}) {
    const std::string content = repeated(opcodes, 18 * kMiB);
    const int64_t read = read_before_refusal(content, true);
    ASSERT_GT(read, 0) << opcodes;
    const auto stored = static_cast<int64_t>(gzipped(content).size());
    EXPECT_LT(read * bytes_taken, 128 * kMiB + 257 * stored) << opcodes;
    // Its size justifies the memory; it only lacks an end.
    const ScratchFolder folder;
    TraceInput input(folder.write("pickle", content));
    EXPECT_THROW(Pickle{input}, InvalidArgument);
    EXPECT_EQ(input.at_bytes(), std::ssize(content)) << opcodes;
  }
}

TEST(Pickle, WhatAHistoryTakesIsNotRefused) {
  // Texts, each used sixty times, like the frames of a stack, and events with them: 2 bytes a value.
  std::string content = "\x80\x04]\x94(";
  for (int i = 0; i < 200; ++i) content += std::string("\x8c\x04name\x94");
  content += "e](";
  for (int event = 0; event < 200'000; ++event) {
    content += "](";
    for (int frame = 0; frame < 60; ++frame) content += {'h', static_cast<char>(1 + (event + frame) % 200)};
    content += "eJ";
    for (int byte = 0; byte < 4; ++byte) content += static_cast<char>(event * 2654435761u >> (8 * byte));
  }
  content += "e.";
  const ScratchFolder folder;
  for (const std::string& stored : {content, gzipped(content, 6)}) {
    TraceInput input(folder.write("pickle", stored));
    const Pickle pickle(input);
    EXPECT_EQ(pickle.list(pickle.root()).size(), 400'000u);
  }
}

}  // namespace
}  // namespace headroom
