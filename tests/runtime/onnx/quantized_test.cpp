// Weights of 8 and 4 bits: their numbers, and the memory that they take.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/runtime/onnx/model_bytes.h"
#include "tests/runtime/onnx/small_nets.h"

namespace headroom::test {
namespace {

constexpr int kUint8 = 2, kInt8 = 3, kUint4 = 21, kInt4 = 22;

struct Storage {
  int type, bits, least;
};

// The whole numbers of a matrix, and their bytes as a file has them.
struct Numbers {
  std::vector<int> values;
  std::string bytes;

  Numbers(const Storage& storage, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int value = storage.least + static_cast<int>((7 * i + i * i) % (1 << storage.bits));
      values.push_back(value);
      const int part = value & ((1 << storage.bits) - 1);
      if (storage.bits == 8 || i % 2 == 0) {
        bytes.push_back(static_cast<char>(part));
      } else {
        bytes.back() = static_cast<char>(bytes.back() | part << 4);
      }
    }
  }
};

// x (1,rows) times a matrix (rows,columns) of whole numbers with scales and zero points along an axis
TEST(Quantized, WeightsAreWhatTheirNumbersStandFor) {
  constexpr int64_t kRows = 6, kColumns = 5, kBlock = 3;
  for (const Storage& storage :
       {Storage{kUint8, 8, 0}, Storage{kInt8, 8, -128}, Storage{kUint4, 4, 0}, Storage{kInt4, 4, -8}}) {
    for (const bool in_blocks : {false, true}) {
      const Numbers w(storage, kRows * kColumns);
      const int64_t groups = in_blocks ? kRows / kBlock : 1;
      const Numbers zero(storage, groups * kColumns);
      const std::vector<float> scales = wave(groups * kColumns, 0.1f), x = wave(kRows, 1);
      ModelBytes net;
      net.input("x", 1, {"1", "6"}).output("y").tensor("w", storage.type, {kRows, kColumns}, w.bytes);
      const std::vector<int64_t> extents =
          in_blocks ? std::vector<int64_t>{groups, kColumns} : std::vector<int64_t>{kColumns};
      net.floats("scale", extents, scales).tensor("zero", storage.type, extents, zero.bytes);
      std::vector<std::string> attributes = {int_attribute("axis", in_blocks ? 0 : 1)};
      if (in_blocks) attributes.push_back(int_attribute("block_size", kBlock));
      net.node("DequantizeLinear", {"w", "scale", "zero"}, {"f"}, attributes)
          .node("MatMul", {"x", "f"}, {"y"});
      const std::vector<float> y = answers_of(net.bytes(21), {}, {x})[0];
      for (int64_t j = 0; j < kColumns; ++j) {
        double expected = 0;
        for (int64_t i = 0; i < kRows; ++i) {
          const auto of = static_cast<size_t>((in_blocks ? i / kBlock : 0) * kColumns + j);
          const auto at = static_cast<size_t>(i * kColumns + j);
          expected += static_cast<double>(x[static_cast<size_t>(i)]) * static_cast<double>(scales[of]) *
                      (w.values[at] - zero.values[of]);
        }
        EXPECT_NEAR(y[static_cast<size_t>(j)], expected, 1e-4 * (1 + std::abs(expected)))
            << storage.type << in_blocks;
      }
    }
  }
}

// The graph's variables have the file's bytes, whatever the number of uses.
TEST(Quantized, WeightsStayAsTheyAreStored) {
  for (const Storage& storage : {Storage{kInt8, 8, -128}, Storage{kInt4, 4, -8}}) {
    constexpr int64_t kSize = 64;
    ModelBytes net;
    net.input("x", 1, {"batch", "64"}).output("y").floats("scale", {1}, {0.01f});
    net.tensor("w", storage.type, {kSize, kSize}, Numbers(storage, kSize * kSize).bytes);
    net.node("DequantizeLinear", {"w", "scale"}, {"f"});
    net.node("MatMul", {"x", "f"}, {"a"}).node("Relu", {"a"}, {"b"}).node("MatMul", {"b", "f"}, {"y"});
    Graph graph;
    import_model(model_of(net.bytes(21)), {.batch = 2}, graph);
    int64_t bytes = 0;
    for (const ValueInfo& value : graph.values()) {
      if (value.kind == ValueKind::kVariable) bytes += value.spec.bytes();
    }
    EXPECT_LT(bytes, kSize * kSize * storage.bits / 8 + 64) << storage.type;
    EXPECT_EQ(count_of(graph, "cast"), 2) << "each use dequantizes";
  }
}

// ONNX Runtime's quantizer writes biases this way.
TEST(Quantized, AScaleOfOneElementTakesAZeroPointWithoutAxes) {
  ModelBytes net;
  net.input("x", 1, {"1", "2"}).output("y").tensor("w", kInt8, {2}, "\x04\xff").floats("scale", {1}, {0.5f});
  net.tensor("zero", kInt8, {}, "\x01").node("DequantizeLinear", {"w", "scale", "zero"}, {"f"});
  net.node("Add", {"x", "f"}, {"y"});
  EXPECT_EQ(answers_of(net.bytes(21), {}, {{10, 20}})[0], (std::vector<float>{11.5f, 19}));
}

TEST(Quantized, ActivationsGoToWholeNumbersAndBack) {
  ModelBytes net;
  net.input("x", 1, {"6"})
      .output("y")
      .output("q")
      .floats("scale", {}, {0.5f})
      .tensor("zero", kInt8, {}, std::string(1, 3));
  net.node("QuantizeLinear", {"x", "scale", "zero"}, {"q"})
      .node("DequantizeLinear", {"q", "scale", "zero"}, {"y"});
  const auto got = answers_of(net.bytes(19), {}, {{0, 0.25f, 0.75f, -0.5f, 1000, -1000}});
  EXPECT_EQ(got[1], (std::vector<float>{3, 3, 5, 2, 127, -128}));  // ties to even
  EXPECT_EQ(got[0], (std::vector<float>{0, 0, 1, -0.5f, 62, -65.5f}));
}

}  // namespace
}  // namespace headroom::test
