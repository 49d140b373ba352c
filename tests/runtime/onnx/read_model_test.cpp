#include "runtime/onnx/read_model.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/errors.h"
#include "base/safetensors.h"
#include "tests/runtime/onnx/model_bytes.h"
#include "tests/scratch_folder.h"

namespace headroom::test {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// x -> Relu -> y
ModelBytes relu_model() {
  ModelBytes model;
  model.input("x", 1, {"batch", "3"}).output("y").node("Relu", {"x"}, {"y"});
  return model;
}

// Returns the reason that the bytes are refused; empty if they are not.
std::string parse_refusal(const std::string& bytes) {
  try {
    onnx::parse_model(as_bytes(bytes), "net.onnx");
    return {};
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(ReadModel, GivesNodesInputsAndTheUsersLines) {
  ModelBytes bytes;
  bytes.input("x", 1, {"batch", "3"}).output("y").floats("w", {3, 2}, {1, 2, 3, 4, 5, 6});
  bytes.node(
      "MatMul", {"x", "w"}, {"y"}, {},
      {{"pkg.torch.onnx.name_scopes", "['', 'encoder', 'encoder.layer', 'linear']"},
       {"pkg.torch.onnx.stack_trace",
        "File \"/home/me/net.py\", line 31, in forward\n  a\nFile \"/x/site-packages/t.py\", line 7, in f"}});
  const std::string text = bytes.bytes();
  const onnx::Model model = onnx::parse_model(as_bytes(text), "net.onnx");
  ASSERT_EQ(model.nodes.size(), 1u);
  EXPECT_EQ(model.nodes[0].text(), "node y (MatMul) in encoder.layer, net.py:31");
  EXPECT_EQ(model.opset(), 17);
  ASSERT_EQ(model.inputs.size(), 1u);
  EXPECT_EQ((*model.inputs[0].shape)[0].parameter, "batch");
  EXPECT_EQ((*model.inputs[0].shape)[1].extent, 3);
  ASSERT_EQ(model.initializers.size(), 1u);
  EXPECT_EQ(model.initializers[0].elements(), 6);
  // In place: no copy was made of the weights.
  EXPECT_GE(model.initializers[0].data.data(), as_bytes(text).data());
  EXPECT_LT(model.initializers[0].data.data(), as_bytes(text).data() + text.size());
}

TEST(ReadModel, EveryTruncationIsRefusedInOneLine) {
  ModelBytes bytes = relu_model();
  bytes.floats("w", {4}, {1, 2, 3, 4}).integers("shape", {1, -1});
  const std::string whole = bytes.bytes();
  ASSERT_EQ(parse_refusal(whole), "");
  // The last message says which opset it is: without it all cuts are seen.
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string why = parse_refusal(whole.substr(0, size));
    EXPECT_TRUE(why.starts_with("net.onnx: ")) << size;
    EXPECT_EQ(why.find('\n'), std::string::npos);
  }
}

TEST(ReadModel, RefusesWhatContradictsItself) {
  EXPECT_NE(parse_refusal("not a model").find("not an ONNX file"), std::string::npos);
  EXPECT_NE(
      parse_refusal(relu_model().node("Relu", {"x"}, {"y"}).bytes()).find("two nodes make the value 'y'"),
      std::string::npos);
  EXPECT_NE(parse_refusal(relu_model().floats("y", {1}, {1}).bytes()).find("two values are named 'y'"),
            std::string::npos);
  EXPECT_NE(parse_refusal(relu_model().node("Relu", {"nowhere"}, {"z"}).bytes()).find("which nothing makes"),
            std::string::npos);
  EXPECT_NE(parse_refusal(relu_model().output("z").bytes()).find("nothing makes the output 'z'"),
            std::string::npos);
  ModelBytes cycle = relu_model();
  cycle.node("Add", {"x", "b"}, {"a"}).node("Relu", {"a"}, {"b"});
  EXPECT_NE(parse_refusal(cycle.bytes()).find("the graph has a cycle"), std::string::npos);
  EXPECT_NE(parse_refusal(relu_model().floats("w", {int64_t{1} << 40, int64_t{1} << 40}, {}).bytes())
                .find("too large"),
            std::string::npos);
  EXPECT_NE(parse_refusal(relu_model().floats("w", {-2}, {}).bytes()).find("an extent of -2"),
            std::string::npos);
  EXPECT_NE(parse_refusal(relu_model().floats("w", {3}, {1}).bytes()).find("do not make 3 elements"),
            std::string::npos);
}

class ReadModelFiles : public testing::Test {
 protected:
  std::string model_with(const std::string& location, int64_t offset = 0, int64_t bytes = 8) {
    const fs::path path = root() / "net.onnx";
    write(path, relu_model().external("w", {2}, location, offset, bytes).bytes());
    return path.string();
  }
  std::string refusal_of(const std::string& path) {
    try {
      onnx::read_model(path);
      return {};
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  }

  fs::path root() const { return folder_.path(); }

  ScratchFolder folder_;
};

TEST_F(ReadModelFiles, MapsExternalData) {
  const std::array<float, 3> data = {9, 1, 2};
  write(root() / "net.data", {reinterpret_cast<const char*>(data.data()), sizeof data});
  const onnx::Model model = onnx::read_model(model_with("net.data", 4));
  float first = 0;
  std::memcpy(&first, model.initializers[0].data.data(), sizeof first);
  EXPECT_EQ(first, 1);
  EXPECT_FALSE(model.initializers[0].is_absent);
  EXPECT_NE(refusal_of(model_with("net.data", 8)).find("ends after"), std::string::npos);
  EXPECT_NE(refusal_of(model_with("net.data", 0, 12)).find("12 bytes of external data"), std::string::npos);
}

TEST_F(ReadModelFiles, AMissingExternalFileIsNoError) {
  EXPECT_TRUE(onnx::read_model(model_with("elsewhere.data")).initializers[0].is_absent);
}

TEST_F(ReadModelFiles, ExternalDataStaysInTheFolder) {
  write(root() / "secret", std::string(8, 'x'));
  fs::create_directory(root() / "models");
  for (const std::string& location : {std::string("../secret"), (root() / "secret").string(),
                                      std::string("a/../../secret"), std::string()}) {
    EXPECT_NE(refusal_of(model_with(location)).find("outside the model's folder"), std::string::npos)
        << location;
  }
  fs::create_symlink("../secret", root() / "models" / "link");
  const fs::path path = root() / "models" / "net.onnx";
  write(path, relu_model().external("w", {2}, "link", 0, 8).bytes());
  EXPECT_NE(refusal_of(path.string()).find("outside the model's folder"), std::string::npos);
}

TEST_F(ReadModelFiles, WeightsComeFromASafetensorsFile) {
  const std::string model = model_with("elsewhere.data"), weights = (root() / "w.safetensors").string();
  const std::array<float, 2> data = {5, 6};
  const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
  save_safetensors(weights,
                   std::vector<NamedTensor>{{"w", {DType::kF32, {2}}, {bytes, bytes + sizeof data}}});
  const onnx::Model read = onnx::read_model(model, {weights});
  EXPECT_FALSE(read.initializers[0].is_absent);
  float second = 0;
  std::memcpy(&second, read.initializers[0].data.data() + 4, sizeof second);
  EXPECT_EQ(second, 6);
  save_safetensors(weights,
                   std::vector<NamedTensor>{{"v", {DType::kF32, {2}}, {bytes, bytes + sizeof data}}});
  EXPECT_THROW(onnx::read_model(model, {weights}), InvalidArgument);
}

// A sparse file: its weights follow a hole of 3 GiB.
TEST_F(ReadModelFiles, ExternalDataMayLieBeyondTwoGibibytes) {
  constexpr int64_t kOffset = int64_t{3} << 30;
  ModelBytes net;
  net.input("x", 1, {"batch", "2"}).output("y").external("w", {2}, "weights", kOffset, 8);
  net.node("Mul", {"x", "w"}, {"y"});
  const fs::path folder = root();
  write(folder / "net.onnx", net.bytes());
  const std::array<float, 2> data = {5, 6};
  std::ofstream file(folder / "weights", std::ios::binary);
  file.seekp(kOffset);
  file.write(reinterpret_cast<const char*>(data.data()), sizeof data);
  file.close();
  const onnx::Model model = onnx::read_model((folder / "net.onnx").string());
  ASSERT_FALSE(model.initializers[0].is_absent);
  float second = 0;
  std::memcpy(&second, model.initializers[0].data.data() + 4, sizeof second);
  EXPECT_EQ(second, 6);
}

TEST_F(ReadModelFiles, RefusesWhatIsNoFile) {
  EXPECT_NE(refusal_of(folder_.path()).find("not a regular file"), std::string::npos);
  EXPECT_NE(refusal_of("/nowhere.onnx").find("cannot open it"), std::string::npos);
}

TEST(ConvertElements, GivesOurTypes) {
  const std::array<int64_t, 3> large = {INT64_MAX, -5, INT64_MIN};
  const std::vector<std::byte> converted =
      onnx::convert_elements(onnx::ElementType::kInt64, std::as_bytes(std::span(large)), 3);
  std::array<int32_t, 3> values;
  ASSERT_EQ(converted.size(), sizeof values);
  std::memcpy(values.data(), converted.data(), sizeof values);
  EXPECT_EQ(values, (std::array<int32_t, 3>{INT32_MAX, -5, INT32_MIN}));
  const std::array<uint16_t, 4> halves = {0x3c00, 0xc000, 0x0001, 0x7c00};
  const std::vector<std::byte> floats =
      onnx::convert_elements(onnx::ElementType::kFloat16, std::as_bytes(std::span(halves)), 4);
  std::array<float, 4> numbers;
  std::memcpy(numbers.data(), floats.data(), sizeof numbers);
  EXPECT_EQ(numbers, (std::array<float, 4>{1, -2, 0x1p-24f, INFINITY}));
}

}  // namespace
}  // namespace headroom::test
