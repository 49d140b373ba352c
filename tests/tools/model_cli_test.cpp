// Models from ONNX files in `headroom models`, `train`, `predict`, `fit`, `compare` and `run`, as a user
// meets them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/safetensors.h"
#include "tests/run_shell.h"
#include "tests/runtime/onnx/model_bytes.h"

namespace headroom::test {
namespace {

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

NamedTensor tensor_of(const std::string& name, const Shape& shape, const std::vector<float>& numbers) {
  const auto* bytes = reinterpret_cast<const std::byte*>(numbers.data());
  return {name, {DType::kF32, shape}, {bytes, bytes + numbers.size() * sizeof(float)}};
}

NamedTensor labels_of(const std::vector<int32_t>& labels) {
  const auto* bytes = reinterpret_cast<const std::byte*>(labels.data());
  return {"y",
          {DType::kI32, {static_cast<int64_t>(labels.size())}},
          {bytes, bytes + labels.size() * sizeof(int32_t)}};
}

// x (batch,3) times w (3,3) -> y
ModelBytes product_net(bool has_weights = true) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3"}).output("y").node("MatMul", {"x", "w"}, {"y"});
  if (has_weights) return net.floats("w", {3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1});
  return net.external("w", {3, 3}, "elsewhere.bin", 0, 36);
}

class ModelCommands : public testing::Test {
 protected:
  Outcome headroom(const std::string& arguments) const {
    return run_shell(folder_, "cd " + (folder_ / "") +
                                  " && env -u TF_FORCE_GPU_ALLOW_GROWTH " HEADROOM_COMMAND " " + arguments);
  }
  void write(const std::string& name, const std::string& bytes) const { write_bytes(folder_ / name, bytes); }
  nlohmann::json json_of(const std::string& arguments) const {
    const Outcome outcome = headroom(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << "\n" << outcome.errors;
    return outcome.code == 0 ? nlohmann::json::parse(outcome.out) : nlohmann::json();
  }

  const ScratchFolder folder_;
  // Everything that accepts a model, with its other arguments.
  const std::vector<std::string> commands_ = {
      "models",
      "train --steps 1 --model",
      "run --steps 1 --device cpu --model",
      "predict --model",
      "fit --model",
      "compare --steps 1 --strategy direct --device sim --model",
  };
};

TEST_F(ModelCommands, TablesFitTheWidth) {
  write("net.onnx", product_net().bytes());
  const std::string commands[] = {
      "models",
      "models net.onnx",
      "solve --net mnist --batch 8 --memory 450MiB --points 2",
      "solve --net residual --batch 32 --memory 200MiB --points 0 --split-batch never",
      "train --model net.onnx --steps 3 --batch 4",
      "repro --list",
      "strategies"};
  for (const std::string& command : commands) {
    for (const size_t width : {60, 100, 200}) {
      const Outcome outcome =
          run_shell(folder_, "cd " + (folder_ / "") + " && env -u TF_FORCE_GPU_ALLOW_GROWTH COLUMNS=" +
                                 std::to_string(width) + " " HEADROOM_COMMAND " " + command);
      ASSERT_TRUE(outcome.code == 0 || outcome.code == 3) << command << outcome.errors;
      EXPECT_EQ(outcome.out.find("too narrow"), std::string::npos) << command << outcome.out;
      EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << command;
      std::istringstream lines(outcome.out);
      for (std::string line; std::getline(lines, line);) {
        // Lines that users copy stay whole.
        const bool is_command = line.starts_with("next: ") || line.starts_with("import ") ||
                                line.starts_with("x = ") || line.starts_with("torch.onnx.");
        if (is_command) continue;
        EXPECT_LE(line.size(), width) << command << "\n" << line;
      }
    }
  }
}

TEST_F(ModelCommands, ModelsListsNetsAndHowToExportThem) {
  const Outcome list = headroom("models");
  ASSERT_EQ(list.code, 0) << list.errors;
  EXPECT_NE(list.out.find("resnet50         torchvision    25,557,032  images"), std::string::npos)
      << list.out;
  EXPECT_NE(list.out.find("dynamo=True, optimize=False"), std::string::npos) << list.out;
  EXPECT_NE(list.out.find("do_constant_folding=False"), std::string::npos) << list.out;
  const Outcome one = headroom("models t5_small");
  ASSERT_EQ(one.code, 0) << one.errors;
  EXPECT_NE(one.out.find("'decoder_input_ids': x"), std::string::npos) << one.out;
  const nlohmann::json json = json_of("models --json");
  EXPECT_GT(json["models"].size(), 5u);
  for (const nlohmann::json& model : json["models"]) {
    EXPECT_EQ(model["export"].size(), 3u) << model["name"];
    EXPECT_EQ(model["export_older"].size(), 3u) << model["name"];
  }
  const Outcome unknown = headroom("models resnet5");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.errors.find("resnet50"), std::string::npos) << unknown.errors;
}

TEST_F(ModelCommands, ShowPrintsLayersAndWhatTakesMemory) {
  write("net.onnx", product_net().bytes());
  const Outcome text = headroom("models net.onnx --batch 5");
  ASSERT_EQ(text.code, 0) << text.errors;
  EXPECT_EQ(text.out.find("net.onnx: 9 parameters in 1 tensor,"), 0u) << text.out;
  EXPECT_NE(text.out.find("input x float [5,3]"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\nnext: headroom predict --model net.onnx --batch 5"), std::string::npos)
      << text.out;
  const nlohmann::json json = json_of("models net.onnx --batch 5 --json");
  EXPECT_EQ(json["parameters"], 9);
  EXPECT_EQ(json["flops"], 2 * 5 * 3 * 3);
  EXPECT_EQ(json["activation_bytes"], 5 * 3 * 4);
  EXPECT_EQ(json["training"]["weight_bytes"], 36);
  EXPECT_EQ(json["training"]["optimizer_bytes"], 72);
}

TEST_F(ModelCommands, ShowIsTheEarlierNameOfModelsWithAFile) {
  write("net.onnx", product_net().bytes());
  EXPECT_EQ(headroom("show net.onnx --batch 5").out, headroom("models net.onnx --batch 5").out);
}

TEST_F(ModelCommands, ThePageOfAModelHasPicturesOfItsLayersAndItsMemory) {
  write("net.onnx", product_net().bytes());
  ASSERT_EQ(headroom("models net.onnx --html net.html").code, 0);
  const std::string page = read_file(folder_ / "net.html", int64_t{1} << 20);
  for (const char* part : {"<title>weights: 36 B", "<title>optimizer state: 72 B", "<title>all: 9, 100.0 %",
                           "Results of the forward pass by module"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(headroom("models net.onnx --html net.onnx").code, 2);
}

TEST_F(ModelCommands, ShowCountsNodesThatTheImportMergesOnce) {
  // x -> gelu -> times w (7,7), where the gelu is five nodes of the file and one of the graph
  ModelBytes net;
  net.input("x", 1, {"batch", "7"}).output("y").floats("root", {}, {1.4142135f}).floats("one", {}, {1});
  net.floats("half", {}, {0.5f}).node("Div", {"x", "root"}, {"d"}).node("Erf", {"d"}, {"e"});
  net.node("Add", {"e", "one"}, {"a"}).node("Mul", {"x", "a"}, {"m"}).node("Mul", {"m", "half"}, {"g"});
  net.floats("w", {7, 7}, std::vector<float>(49, 1)).node("MatMul", {"g", "w"}, {"y"});
  write("net.onnx", net.bytes());
  const nlohmann::json json = json_of("models net.onnx --batch 2 --json");
  const int64_t gelu = 2 * 7, product = 2 * 2 * 7 * 7;
  EXPECT_EQ(json["flops"], gelu + product);
  EXPECT_EQ(json["activation_bytes"], 2 * (2 * 7 * 4));
  int64_t in_layers = 0;
  for (const nlohmann::json& layer : json["layers"]) {
    in_layers += layer["flops"].get<int64_t>();
    if (layer["ops"] == "MatMul") {
      EXPECT_EQ(layer["flops"], product);
    }
  }
  EXPECT_EQ(in_layers, gelu + product);
}

TEST_F(ModelCommands, TrainComparesWithAReferenceOnEachDevice) {
  write("net.onnx", product_net().bytes());
  const std::vector<float> x = {1, 2, 3, -1, 0, 1};
  // With weights of the identity, the output is the input; the gradient is x^T (softmax(x) - labels) / 2.
  std::vector<float> gradient(9, 0);
  for (size_t row = 0; row < 2; ++row) {
    float sum = 0;
    for (size_t j = 0; j < 3; ++j) sum += std::exp(x[3 * row + j]);
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) {
        const float share = std::exp(x[3 * row + j]) / sum - (j == row ? 1.0f : 0.0f);
        gradient[3 * i + j] += 0.5f * x[3 * row + i] * share;
      }
    }
  }
  save_safetensors(
      folder_ / "data.safetensors",
      std::vector<NamedTensor>{tensor_of("x", {2, 3}, x), labels_of({0, 1}),
                               tensor_of("eval_output", {2, 3}, x), tensor_of("grad.w", {3, 3}, gradient)});
  for (const std::string device : {"cpu", "sim"}) {
    const nlohmann::json json = json_of(
        "train --model net.onnx --data data.safetensors --optimizer sgd --steps 3 "
        "--learning-rate 0.05 --json --device " +
        device);
    EXPECT_LT(json["eval_output_error"], 1e-6) << device;
    EXPECT_LT(json["gradients_error"], 1e-6) << device;
    ASSERT_EQ(json["losses"].size(), 3u);
    EXPECT_LT(json["losses"][2], json["losses"][0]) << device;
  }
  std::vector<float> other = x;
  other[0] += 1;
  save_safetensors(folder_ / "data.safetensors",
                   std::vector<NamedTensor>{tensor_of("x", {2, 3}, x), labels_of({0, 1}),
                                            tensor_of("eval_output", {2, 3}, other)});
  EXPECT_GT(json_of("train --model net.onnx --data data.safetensors --json")["eval_output_error"], 0.1);
}

TEST_F(ModelCommands, TrainComparesWithinABudgetAndNamesTheLeast) {
  write("net.onnx", product_net().bytes());
  const std::vector<float> x = {1, 2, 3, -1, 0, 1};
  save_safetensors(folder_ / "data.safetensors",
                   std::vector<NamedTensor>{tensor_of("x", {2, 3}, x), labels_of({0, 1}),
                                            tensor_of("eval_output", {2, 3}, x)});
  const std::string command = "train --model net.onnx --data data.safetensors --device sim --json --memory ";
  const Outcome refused = headroom(command + "100MiB");
  EXPECT_EQ(refused.code, 3) << refused.errors;
  const std::string error = nlohmann::json::parse(refused.out)["error"];
  const size_t at = error.find("--memory ");
  ASSERT_NE(at, std::string::npos) << error;
  EXPECT_LT(json_of(command + error.substr(at + 9))["eval_output_error"], 1e-6) << error;
}

TEST_F(ModelCommands, TrainRefusesDataThatDoesNotFit) {
  write("net.onnx", product_net().bytes());
  const std::vector<float> x = {1, 2, 3, -1, 0, 1};
  const auto refusal = [&](const std::vector<NamedTensor>& tensors, const std::string& options = "") {
    save_safetensors(folder_ / "data.safetensors", tensors);
    const Outcome outcome = headroom("train --model net.onnx --data data.safetensors " + options);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
    return outcome.errors;
  };
  EXPECT_NE(refusal({tensor_of("x", {2, 3}, x)}).find("has no labels"), std::string::npos);
  EXPECT_NE(refusal({labels_of({0, 1})}).find("has no tensor 'x'"), std::string::npos);
  EXPECT_NE(refusal({tensor_of("x", {3, 2}, x), labels_of({0, 1, 1})}).find("does not fit the input"),
            std::string::npos);
  EXPECT_NE(refusal({tensor_of("x", {2, 3}, x), labels_of({0})}).find("rows"), std::string::npos);
  EXPECT_NE(refusal({tensor_of("x", {2, 3}, x), labels_of({0, 1})}, "--batch 4").find("do not make a batch"),
            std::string::npos);
}

// The numbers of a tensor of a file.
template <typename T>
std::vector<T> numbers_in(const TensorFile& file, const std::string& name) {
  for (const NamedTensor& tensor : file.tensors) {
    if (tensor.name != name) continue;
    std::vector<T> numbers(tensor.data.size() / sizeof(T));
    std::memcpy(numbers.data(), tensor.data.data(), tensor.data.size());
    return numbers;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

// The answer is that of the weights, for all rows of the data, on each device and in 16 bits.
TEST_F(ModelCommands, RunWritesWhatTheModelAnswers) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3"}).input("shift", 1, {"3"}).output("y").output("best");
  net.floats("w", {3, 3}, {1, 0, 0, 0, 2, 0, 0, 1, -1}).node("MatMul", {"x", "w"}, {"product"});
  net.node("Add", {"product", "shift"}, {"y"}).node("ArgMax", {"y"}, {"best"}, {int_attribute("axis", 1)});
  write("net.onnx", net.bytes());
  save_safetensors(folder_ / "x.safetensors",
                   std::vector<NamedTensor>{tensor_of("x", {2, 3}, {1, 2, 3, -1, 0, 1}),
                                            tensor_of("shift", {3}, {8, 0, 0.5f})});
  const std::vector<float> y = {9, 7, -2.5f, 7, 1, -0.5f};
  const std::string command = "run --model net.onnx --data x.safetensors --outputs y.safetensors --json ";
  for (const std::string options : {"--device cpu", "--device sim", "--device sim --precision bf16",
                                    "--device sim --memory 1GiB", "--device cpu --plan packed"}) {
    const nlohmann::json json = json_of(command + options);
    EXPECT_EQ(json["outputs"]["y"]["shape"], (std::vector<int64_t>{2, 3})) << options;
    EXPECT_EQ(json["outputs"]["y"]["values"], y) << options;
    EXPECT_EQ(json["outputs"]["best"]["values"], (std::vector<int>{0, 0})) << options;
    const TensorFile written = load_safetensors(folder_ / "y.safetensors");
    EXPECT_EQ(numbers_in<float>(written, "y"), y) << options;
    EXPECT_EQ(numbers_in<int32_t>(written, "best"), (std::vector<int32_t>{0, 0})) << options;
  }
  const Outcome text =
      headroom("run --model net.onnx --data x.safetensors --outputs y.safetensors --device cpu");
  EXPECT_NE(text.out.find("y f32[2,3]"), std::string::npos) << text.out;
}

TEST_F(ModelCommands, RunRefusesDataThatDoesNotFit) {
  write("net.onnx", product_net().bytes());
  save_safetensors(folder_ / "x.safetensors", std::vector<NamedTensor>{tensor_of("x", {1, 2}, {1, 2})});
  save_safetensors(folder_ / "y.safetensors", std::vector<NamedTensor>{labels_of({1, 2, 3})});
  save_safetensors(folder_ / "z.safetensors", std::vector<NamedTensor>{tensor_of("x", {1, 3}, {1, 2, 3})});
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"--model net.onnx --data x.safetensors", "tensor 'x' is F32 [1,2], the model's input f32[1,3]"},
      {"--model net.onnx --data y.safetensors", "has no tensor 'x'"},
      {"--model net.onnx --data z.safetensors --batch 2", "has 1 rows"},
      {"--model net.onnx --data nowhere.safetensors", "cannot open it"},
      {"--model net.onnx --data z.safetensors --outputs nowhere/y.safetensors", "nowhere/y.safetensors"},
      {"--net mnist --outputs y.safetensors", "--outputs needs --model"},
      {"--net mnist --data z.safetensors", "--data needs --model"},
  };
  for (const auto& [arguments, reason] : rows) {
    const Outcome outcome = headroom("run " + arguments);
    EXPECT_NE(outcome.code, 0) << arguments << "\n" << outcome.out;
    EXPECT_NE(outcome.errors.find(reason), std::string::npos) << arguments << ": " << outcome.errors;
  }
}

TEST_F(ModelCommands, EachTakesAModel) {
  write("net.onnx", product_net().bytes());
  for (const std::string& command : commands_) {
    const Outcome outcome = headroom(command + " net.onnx --batch 4");
    EXPECT_EQ(outcome.code, 0) << command << "\n" << outcome.errors;
    EXPECT_NE(outcome.out.find("net.onnx"), std::string::npos) << command << "\n" << outcome.out;
  }
}

TEST_F(ModelCommands, AModelThatDoesNotFitIsNoBadInput) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3"})
      .output("y")
      .external("w", {3, 1 << 26}, "elsewhere.bin", 0, int64_t{3} << 28);
  net.node("MatMul", {"x", "w"}, {"y"});
  write("net.onnx", net.bytes());
  const Outcome outcome = headroom("predict --model net.onnx --batch 1 --device sim");
  EXPECT_EQ(outcome.code, 3) << outcome.errors;
  EXPECT_EQ(outcome.out.find("does not fit: net.onnx"), 0u) << outcome.out;
}

TEST_F(ModelCommands, WeightsThatAreNotThereAreNoObstacle) {
  write("net.onnx", product_net(false).bytes());
  for (const std::string& command : commands_) {
    const Outcome outcome = headroom(command + " net.onnx --batch 4");
    EXPECT_EQ(outcome.code, 0) << command << "\n" << outcome.errors;
  }
  const Outcome shown = headroom("models net.onnx");
  EXPECT_NE(shown.out.find("36 B of weights are missing"), std::string::npos) << shown.out;
  const Outcome trained = headroom("train --model net.onnx --steps 1 --seed 7");
  EXPECT_NE(trained.out.find("initialized with seed 7"), std::string::npos) << trained.out;
}

TEST_F(ModelCommands, WeightsLieInASafetensorsFileBeside) {
  write("net.onnx", product_net(false).bytes());
  save_safetensors(folder_ / "weights.safetensors",
                   std::vector<NamedTensor>{tensor_of("w", {3, 3}, {2, 0, 0, 0, 2, 0, 0, 0, 2})});
  save_safetensors(folder_ / "data.safetensors",
                   std::vector<NamedTensor>{tensor_of("x", {1, 3}, {1, 2, 3}), labels_of({0}),
                                            tensor_of("eval_output", {1, 3}, {2, 4, 6})});
  const nlohmann::json json = json_of(
      "train --model net.onnx --weights weights.safetensors --data data.safetensors --steps 1 --json");
  EXPECT_EQ(json["eval_output_error"], 0);
  EXPECT_TRUE(json["notes"].empty());
}

// Every command reports a bad file in one line, and exits with 2.
TEST_F(ModelCommands, BadFilesGiveOneLine) {
  const std::string whole = product_net().bytes();
  ModelBytes cycle, types, large, twice, apart, far;
  cycle.input("x", 1, {"batch", "3"}).output("y").node("Add", {"x", "b"}, {"a"}).node("Relu", {"a"}, {"b"});
  cycle.node("Relu", {"b"}, {"y"});
  types.input("x", 7, {"batch", "3"}).output("y").floats("w", {3, 2}, std::vector<float>(6, 1));
  types.node("MatMul", {"x", "w"}, {"y"});
  large.input("x", 1, {"batch", "3"})
      .output("y")
      .external("w", {int64_t{1} << 40, int64_t{1} << 40}, "w", 0, 4);
  large.node("MatMul", {"x", "w"}, {"y"});
  twice.input("x", 1, {"batch", "3"}).output("y").node("Relu", {"x"}, {"y"}).node("Tanh", {"x"}, {"y"});
  apart.input("x", 1, {"batch", "3"}).output("y").floats("w", {4, 2}, std::vector<float>(8, 1));
  apart.node("MatMul", {"x", "w"}, {"y"});
  far.input("x", 1, {"batch", "3"}).output("y").external("w", {3, 3}, "../weights.bin", 0, 36);
  far.node("MatMul", {"x", "w"}, {"y"});
  const std::vector<std::pair<std::string, std::string>> files = {
      {"truncated", whole.substr(0, whole.size() / 2)},
      {"empty", ""},
      {"text", "this is no model\n"},
      {"cycle", cycle.bytes()},
      {"types", types.bytes()},
      {"large", large.bytes()},
      {"twice", twice.bytes()},
      {"apart", apart.bytes()},
      {"far", far.bytes()},
  };
  for (const auto& [name, bytes] : files) write(name + ".onnx", bytes);
  const std::vector<std::pair<std::string, std::string>> reasons = {
      {"truncated", "truncated.onnx"},
      {"empty", "empty.onnx"},
      {"text", "text.onnx"},
      {"cycle", "the graph has a cycle"},
      {"types", "integers"},
      {"large", "are too large"},
      {"twice", "two nodes make the value 'y'"},
      {"apart", "(MatMul)"},
      {"far", "lies outside the model's folder"},
      {"nowhere", "cannot open it"},
  };
  for (const auto& [name, reason] : reasons) {
    for (const std::string& command : commands_) {
      const Outcome outcome = headroom(command + " " + name + ".onnx");
      EXPECT_EQ(outcome.code, 2) << command << " " << name << "\n" << outcome.out;
      EXPECT_NE(outcome.errors.find(reason), std::string::npos)
          << command << " " << name << ": " << outcome.errors;
      EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
      EXPECT_EQ(outcome.out, "") << command << " " << name;
    }
  }
}

TEST_F(ModelCommands, BadOptionsGiveOneLine) {
  ModelBytes net;
  net.input("x", 1, {"batch", "length"}).output("y").node("Relu", {"x"}, {"y"});
  write("free.onnx", net.bytes());
  write("net.onnx", product_net().bytes());
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"predict --model free.onnx", "bind them by --dim length=N"},
      {"predict --model net.onnx --dim length=3", "no input has a free axis 'length'"},
      {"predict --model net.onnx --dim length", "is not NAME=N"},
      {"predict --model net.onnx --net unet", "exclude each other"},
      {"predict --model net.onnx --width 2", "a model has the widths of its file"},
      {"predict --net unet --precision bf16", "--precision needs --model"},
      {"predict --net unet --inference", "--inference needs --model"},
      {"predict --model net.onnx --inference --replicas 2 --device sim:four-2080ti", "on one device"},
      {"train --model net.onnx --output z", "has no output 'z'"},
      {"train --model net.onnx --weights nowhere.safetensors", "cannot open it"},
      {"train --model net.onnx --loss entropy", "--loss"},
      {"train", "--model"},
      {"train net.onnx", "did you mean '--model net.onnx'"},
      {"show", "FILE is required"},
  };
  for (const auto& [arguments, reason] : rows) {
    const Outcome outcome = headroom(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.out;
    EXPECT_NE(outcome.errors.find(reason), std::string::npos) << arguments << ": " << outcome.errors;
  }
}

// The forward pass has no gradients and no optimizer state, and 16 bits halve its weights; predictions are
// exact.
TEST_F(ModelCommands, InferenceTakesLessThanTrainingAndHalfTheWeightsIn16Bits) {
  ModelBytes net;
  net.input("x", 1, {"batch", "256"}).output("y").node("MatMul", {"x", "w"}, {"a"});
  net.floats("w", {256, 256}, std::vector<float>(256 * 256, 0.01f)).node("Relu", {"a"}, {"y"});
  write("net.onnx", net.bytes());
  const std::string machine = " --model net.onnx --batch 4 --device sim --strategy direct --json";
  const auto measured = [&](const std::string& options) {
    const nlohmann::json run = json_of("run --steps 3" + machine + options);
    EXPECT_EQ(json_of("predict" + machine + options)["total_bytes"], run["peak_process_bytes"]) << options;
    return run["peak_allocated_bytes"].get<int64_t>();
  };
  constexpr int64_t kWeights = 256 * 256 * 4;
  const int64_t training = measured(""), inference = measured(" --inference");
  EXPECT_GE(training, 4 * kWeights);  // gradients and Adam's moments
  EXPECT_LT(inference, 2 * kWeights);
  for (const std::string precision : {"bf16", "f16"})
    EXPECT_LE(measured(" --inference --precision " + precision), inference - kWeights / 2) << precision;
  EXPECT_EQ(headroom("solve --model net.onnx --inference --memory 1GiB --device sim").code, 0);
  EXPECT_EQ(headroom("fit --model net.onnx --inference --device sim --most 8").code, 0);
}

TEST_F(ModelCommands, SixteenBitsTakeLessMemoryAndLearn) {
  ModelBytes net;
  std::vector<float> w(64 * 64), v(64 * 4);
  for (size_t i = 0; i < w.size(); ++i) w[i] = 0.2f * std::sin(static_cast<float>(i));
  for (size_t i = 0; i < v.size(); ++i) v[i] = 0.2f * std::cos(static_cast<float>(i));
  net.input("x", 1, {"batch", "64"}).output("y").floats("w", {64, 64}, w).floats("v", {64, 4}, v);
  net.node("MatMul", {"x", "w"}, {"a"}).node("Tanh", {"a"}, {"b"}).node("MatMul", {"b", "v"}, {"y"});
  write("net.onnx", net.bytes());
  const std::string train =
      "train --model net.onnx --batch 256 --steps 20 --optimizer sgd --learning-rate 0.5 --json ";
  const nlohmann::json whole = json_of(train);
  for (const std::string precision : {"bf16", "f16"}) {
    const std::string options = train + "--precision " + precision;
    const nlohmann::json half = json_of(options);
    EXPECT_LT(half["peak_allocated_bytes"], whole["peak_allocated_bytes"]) << precision;
    EXPECT_NEAR(half["losses"][0], whole["losses"][0], 0.02) << precision;
    EXPECT_NEAR(half["losses"][19], whole["losses"][19], 0.02) << precision;
    EXPECT_NE(half["losses"][19], whole["losses"][19]) << precision;
    EXPECT_EQ(half["losses"], json_of(options + " --device sim")["losses"]) << precision;
    const std::string machine =
        " --model net.onnx --batch 256 --device sim --strategy direct --json --precision ";
    const nlohmann::json predicted = json_of("predict" + machine + precision);
    const nlohmann::json run = json_of("run --steps 2" + machine + precision);
    EXPECT_EQ(predicted["total_bytes"], run["peak_process_bytes"]) << precision;
  }
}

}  // namespace
}  // namespace headroom::test
