// Weights are used where their file is mapped, on a CPU and unless something changes them.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "runtime/onnx/read_model.h"
#include "runtime/session/session.h"
#include "tests/runtime/onnx/model_bytes.h"
#include "tests/runtime/onnx/small_nets.h"
#include "tests/scratch_folder.h"

namespace headroom::test {
namespace {

constexpr int64_t kWords = 300, kWidth = 20, kTableBytes = kWords * kWidth * 4, kWordType = 7;

void append(std::string& bytes, const std::vector<float>& numbers) {
  bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
}

// words (2) -> rows of a table, times w (kWidth,4). Both lie in one file, the table after `skipped_bytes`.
class TableNet {
 public:
  explicit TableNet(int64_t skipped_bytes) {
    std::string data(static_cast<size_t>(skipped_bytes), '\0');
    append(data, table);
    append(data, w);
    std::ofstream(folder_ / "data.bin", std::ios::binary) << data;
    ModelBytes net;
    net.input("words", kWordType, {"2"}).output("y");
    net.external("table", {kWords, kWidth}, "data.bin", skipped_bytes, kTableBytes);
    net.external("w", {kWidth, 4}, "data.bin", skipped_bytes + kTableBytes, kWidth * 16);
    net.node("Gather", {"table", "words"}, {"x"}).node("MatMul", {"x", "w"}, {"y"});
    std::ofstream(folder_ / "net.onnx", std::ios::binary) << net.bytes();
    model = std::make_shared<const onnx::Model>(onnx::read_model(folder_ / "net.onnx"));
  }

  const std::vector<float> table = wave(kWords * kWidth), w = wave(kWidth * 4);
  std::shared_ptr<const onnx::Model> model;

 private:
  const ScratchFolder folder_;
};

// The variable that has the bytes of the initializer, and its address in the mapped file.
struct Weight {
  Value value;
  const std::byte* in_file;
};
Weight weight_of(const onnx::ImportedModel& imported, size_t initializer) {
  const onnx::Tensor& tensor = imported.model->initializers[initializer];
  for (const onnx::BoundTensor& parameter : imported.parameters) {
    if (parameter.name == tensor.name) return {parameter.value, tensor.data.data()};
  }
  throw InvalidArgument("no parameter " + tensor.name);
}

std::vector<float> run(const onnx::ModelInference& inference, Variables& variables) {
  Session session(inference.graph, inference.targets(), PlanMode::kPacked, variables);
  const auto words = session.input<int32_t>(inference.model.inputs[0].value);
  words[0] = 7;
  words[1] = kWords - 1;
  session.run();
  const auto y = session.output<float>(inference.outputs[0]);
  return {y.begin(), y.end()};
}

TEST(MappedWeights, AreUsedInTheirFileOnACpu) {
  const TableNet net(64);
  const auto inference = make_model_inference(net.model, {});
  Runtime runtime({.device = "cpu"});
  Variables variables(inference->graph, runtime.device(), runtime.allocator());
  for (const size_t i : {0u, 1u}) {
    const Weight weight = weight_of(inference->model, i);
    EXPECT_EQ(variables.data(weight.value.id), weight.in_file);
    EXPECT_THROW(variables.write(weight.value, variables.read(weight.value)), InvalidArgument);
  }
  EXPECT_LT(runtime.allocator().statistics().allocated.peak, kTableBytes);
  const std::vector<float> y = run(*inference, variables);
  for (size_t j = 0; j < 4; ++j) {
    float expected = 0;
    for (size_t k = 0; k < kWidth; ++k) expected += net.table[7 * kWidth + k] * net.w[4 * k + j];
    EXPECT_NEAR(y[j], expected, 1e-5f);
  }
}

TEST(MappedWeights, AreCopiedToADeviceWithTheSameResult) {
  const TableNet net(64);
  const auto inference = make_model_inference(net.model, {});
  Runtime cpu({.device = "cpu"}), gpu({.device = "sim"});
  Variables here(inference->graph, cpu.device(), cpu.allocator());
  Variables there(inference->graph, gpu.device(), gpu.allocator());
  EXPECT_NE(there.data(weight_of(inference->model, 0).value.id), weight_of(inference->model, 0).in_file);
  EXPECT_EQ(run(*inference, here), run(*inference, there));
}

TEST(MappedWeights, AreCopiedWhereNoFloatMayLie) {
  const TableNet net(63);
  const auto inference = make_model_inference(net.model, {});
  Runtime runtime({.device = "cpu"});
  Variables variables(inference->graph, runtime.device(), runtime.allocator());
  EXPECT_GE(runtime.allocator().statistics().allocated.peak, kTableBytes);
  const TableNet aligned(64);
  const auto same = make_model_inference(aligned.model, {});
  Variables mapped(same->graph, runtime.device(), runtime.allocator());
  EXPECT_EQ(run(*inference, variables), run(*same, mapped));
}

TEST(MappedWeights, AreCopiedIfTheyAreTrained) {
  const TableNet net(64);
  const auto step = make_model_step(net.model, {});
  Runtime runtime({.device = "cpu"});
  const Variables variables(step->graph, runtime.device(), runtime.allocator());
  const Weight table = weight_of(step->model, 0);
  EXPECT_NE(variables.data(table.value.id), table.in_file);
  EXPECT_EQ(std::memcmp(variables.read(table.value).data(), table.in_file, kTableBytes), 0);
}

}  // namespace
}  // namespace headroom::test
