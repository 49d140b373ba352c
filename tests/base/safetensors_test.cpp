#include "base/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/errors.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

std::string file_of(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string result(sizeof length, '\0');
  std::memcpy(result.data(), &length, sizeof length);
  return result.append(header).append(data);
}

NamedTensor tensor(std::string name, TensorSpec spec) {
  NamedTensor result{std::move(name), spec, std::vector<std::byte>(static_cast<size_t>(spec.bytes()))};
  for (size_t i = 0; i < result.data.size(); ++i) result.data[i] = static_cast<std::byte>(i * 7 + 1);
  return result;
}

TEST(Safetensors, GiveBackWhatWasSaved) {
  const ScratchFolder folder;
  const std::vector<NamedTensor> saved = {tensor("conv/filter", {DType::kF32, {3, 3, 1, 32}}),
                                          tensor("a name with \"quotes\" and ü", {DType::kI32, {}}),
                                          tensor("empty", {DType::kF32, {0, 4}}),
                                          tensor("bytes", {DType::kU8, {5}})};
  const TensorMetadata metadata = {{"steps done", "7"}, {"", "a \"quoted\" ü\n"}};
  save_safetensors(folder / "w", saved, metadata);
  EXPECT_EQ(load_safetensors(folder / "w").metadata, metadata);
  const std::vector<NamedTensor> loaded = load_safetensors(folder / "w").tensors;
  ASSERT_EQ(loaded.size(), saved.size());
  for (const NamedTensor& expected : saved) {
    const auto found = std::find_if(loaded.begin(), loaded.end(),
                                    [&](const NamedTensor& t) { return t.name == expected.name; });
    ASSERT_NE(found, loaded.end()) << expected.name;
    EXPECT_EQ(found->spec, expected.spec);
    EXPECT_EQ(found->data, expected.data);
  }
}

TEST(Safetensors, AlignTheDataAndTakeMetadata) {
  const ScratchFolder folder;
  save_safetensors(folder / "w", std::vector{tensor("x", {DType::kU8, {1}})});
  EXPECT_EQ((std::filesystem::file_size(folder / "w") - 1) % 8, 0u);
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}   )";
  const TensorFile file = load_safetensors(folder.write("m", file_of(header, "ab")));
  EXPECT_EQ(file.tensors.size(), 1u);
  EXPECT_EQ(file.metadata, (TensorMetadata{{"format", "pt"}}));
}

TEST(Safetensors, SavingReplacesTheWholeFileAndLeavesNothingElse) {
  const ScratchFolder folder;
  save_safetensors(folder / "w", std::vector{tensor("x", {DType::kF32, {1000}})});
  save_safetensors(folder / "w", std::vector{tensor("y", {DType::kF32, {1}})});
  EXPECT_EQ(load_safetensors(folder / "w").tensors.at(0).name, "y");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Safetensors, AFailedSaveLeavesTheOldFile) {
  const ScratchFolder folder;
  save_safetensors(folder / "w", std::vector{tensor("x", {DType::kF32, {1}})});
  std::vector<NamedTensor> twice = {tensor("y", {DType::kF32, {1}}), tensor("y", {DType::kF32, {1}})};
  EXPECT_THROW(save_safetensors(folder / "w", twice), InvalidArgument);
  twice[1].name = "z";
  twice[1].data.pop_back();
  EXPECT_THROW(save_safetensors(folder / "w", twice), InvalidArgument);
  twice[1] = tensor("__metadata__", {DType::kF32, {1}});
  EXPECT_THROW(save_safetensors(folder / "w", twice), InvalidArgument);
  twice[1].name = "\xff";
  EXPECT_THROW(save_safetensors(folder / "w", twice), InvalidArgument);
  EXPECT_THROW(save_safetensors(folder / "w", {}, {{"x", "\xff"}}), InvalidArgument);
  EXPECT_THROW(save_safetensors(folder / "no/such/folder/w", {}), InvalidArgument);
  EXPECT_EQ(load_safetensors(folder / "w").tensors.at(0).name, "x");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Safetensors, SavingThroughALinkKeepsTheLink) {
  const ScratchFolder folder;
  folder.write("target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  save_safetensors(folder / "link", std::vector{tensor("x", {DType::kU8, {1}})});
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(load_safetensors(folder / "target").tensors.at(0).name, "x");
}

struct BrokenFile {
  std::string content;
  std::string reason;
};

class BrokenSafetensors : public testing::TestWithParam<BrokenFile> {};

TEST_P(BrokenSafetensors, AreRefusedInOneLineThatSaysWhy) {
  const ScratchFolder folder;
  const std::string path = folder.write("w", GetParam().content);
  try {
    load_safetensors(path);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    EXPECT_NE(message.find(GetParam().reason), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return file_of(R"({"x":{"dtype":")" + std::string(dtype) + R"(","shape":)" + std::string(shape) +
                     R"(,"data_offsets":)" + std::string(offsets) + "}}",
                 "12345678");
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenSafetensors,
    testing::Values(BrokenFile{"", "no room for the length"}, BrokenFile{"1234567", "no room for the length"},
                    BrokenFile{std::string(8, '\xff'), "not a safetensors file"},
                    BrokenFile{file_of("{}", "").substr(0, 9),
                               "truncated: a header of 2 bytes in a file of 9"},
                    BrokenFile{file_of("[]", ""), "does not start with '{'"},
                    BrokenFile{file_of("{\"x\":", ""), "not JSON"},
                    BrokenFile{file_of("{\"x\":\"\xff\"}", ""), "not JSON"},
                    BrokenFile{file_of(R"({"__metadata__":["a"]})", ""), "not an object of texts"},
                    BrokenFile{file_of(R"({"__metadata__":{"a":1}})", ""), "not an object of texts"},
                    BrokenFile{file_of(R"({"x":1})", ""), "needs dtype, shape and data_offsets"},
                    BrokenFile{file_of(R"({"x":{"dtype":"U8","shape":[1]}})", "a"),
                               "needs dtype, shape and data_offsets"},
                    BrokenFile{file_of(R"({"x":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", "a"),
                               "dtype 7 is not one of"},
                    BrokenFile{entry("F64", "[1]", "[0,8]"), "dtype \"F64\" is not one of F32, I32, U8"},
                    BrokenFile{entry("F32", "[-2]", "[0,8]"), "shape is not a list of whole numbers"},
                    BrokenFile{entry("F32", "[1.5]", "[0,8]"), "shape is not a list of whole numbers"},
                    BrokenFile{entry("F32", "2", "[0,8]"), "shape is not a list of whole numbers"},
                    BrokenFile{entry("F32", "[1,1,1,1,1,1,2]", "[0,8]"), "tensor 'x'"},
                    BrokenFile{entry("F32", "[4294967296,4294967296]", "[0,8]"), "tensor 'x'"},
                    BrokenFile{entry("F32", "[2305843009213693952,2]", "[0,8]"),
                               "8 bytes of data do not make F32[2305843009213693952,2]"},
                    BrokenFile{entry("F32", "[3]", "[0,8]"), "8 bytes of data do not make F32[3]"},
                    BrokenFile{entry("F32", "[2]", "[8,0]"), "lie outside the 8 bytes"},
                    BrokenFile{entry("F32", "[2]", "[4,12]"), "lie outside the 8 bytes"},
                    BrokenFile{entry("F32", "[2]", "[0]"), "data_offsets is not a pair"},
                    BrokenFile{entry("F32", "[2]", "[0,18446744073709551615]"), "data_offsets is not a pair"},
                    BrokenFile{entry("F32", "[1]", "[0,4]"), "4 bytes after the last tensor"},
                    BrokenFile{entry("F32", "[1]", "[4,8]"), "4 unused bytes before it"},
                    BrokenFile{file_of(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                       R"("y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                                       "abc"),
                               "tensor 'y': its data overlaps"},
                    BrokenFile{file_of(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                       R"("x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                       "a"),
                               "tensor 'x': appears twice"}));

}  // namespace
}  // namespace headroom
