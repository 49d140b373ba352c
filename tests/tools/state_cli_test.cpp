// States of a model in `headroom run` and `predict`: outputs that are the next step's inputs.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/safetensors.h"
#include "tests/run_shell.h"
#include "tests/runtime/onnx/model_bytes.h"

namespace headroom::test {
namespace {

// sum + x -> next.sum, in each step; y = 2 x
std::string summing_net() {
  ModelBytes net;
  net.input("x", 1, {"2", "3"})
      .input("sum", 1, {"2", "3"})
      .output("y")
      .output("next.sum")
      .floats("two", {}, {2});
  net.node("Add", {"sum", "x"}, {"next.sum"}).node("Mul", {"x", "two"}, {"y"});
  return net.bytes();
}

class StateCommands : public testing::Test {
 protected:
  StateCommands() {
    std::ofstream(folder_ / "net.onnx", std::ios::binary) << summing_net();
    write("x.safetensors", {{"x", {1, 2, 3, 4, 5, 6}}});
  }
  void write(const std::string& name,
             const std::vector<std::pair<std::string, std::vector<float>>>& tensors) const {
    std::vector<NamedTensor> all;
    for (const auto& [tensor, numbers] : tensors) {
      const auto bytes = std::as_bytes(std::span(numbers));
      all.push_back({tensor, {DType::kF32, {2, 3}}, {bytes.begin(), bytes.end()}});
    }
    save_safetensors(folder_ / name, all);
  }
  Outcome headroom(const std::string& arguments) const {
    return run_shell(folder_, "cd " + (folder_ / "") +
                                  " && env -u TF_FORCE_GPU_ALLOW_GROWTH " HEADROOM_COMMAND " " + arguments);
  }
  nlohmann::json json_of(const std::string& arguments) const {
    const Outcome outcome = headroom(arguments + " --json");
    EXPECT_EQ(outcome.code, 0) << arguments << "\n" << outcome.errors;
    return outcome.code == 0 ? nlohmann::json::parse(outcome.out) : nlohmann::json();
  }

  const ScratchFolder folder_;
};

TEST_F(StateCommands, ARunBeginsWithTheStatesOfAnother) {
  const std::string run = "run --model net.onnx --state sum=next.sum --device cpu --plan packed ";
  const nlohmann::json first = json_of(run + "--data x.safetensors --steps 3 --outputs y.safetensors");
  EXPECT_EQ(first["outputs"]["sum"]["values"], nlohmann::json({3, 6, 9, 12, 15, 18}));
  EXPECT_EQ(first["outputs"]["y"]["values"], nlohmann::json({2, 4, 6, 8, 10, 12}));
  write("both.safetensors", {{"x", {1, 1, 1, 1, 1, 1}}, {"sum", {3, 6, 9, 12, 15, 18}}});
  const nlohmann::json second = json_of(run + "--data both.safetensors --steps 12");
  EXPECT_EQ(second["outputs"]["sum"]["values"], nlohmann::json({15, 18, 21, 24, 27, 30}));
}

TEST_F(StateCommands, APredictionIsTheRunsToTheByte) {
  const std::string options = " --model net.onnx --batch 2 --state sum=next.sum --device sim --plan packed";
  const nlohmann::json predicted = json_of("predict --inference" + options),
                       run = json_of("run --steps 3" + options);
  EXPECT_EQ(predicted["total_bytes"], run["peak_process_bytes"]);
  EXPECT_EQ(predicted["peak_allocated_bytes"], run["peak_allocated_bytes"]);
}

TEST_F(StateCommands, WrongPairsAreRefusedInOneLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"run --model net.onnx --batch 2 --state sum", "--state sum: is not INPUT=OUTPUT"},
      {"run --model net.onnx --batch 2 --state cache=next.sum", "net.onnx: has no input 'cache'"},
      {"run --model net.onnx --batch 2 --state sum=present",
       "net.onnx: has no output 'present' for its state 'sum'"},
      {"run --net unet --state sum=next.sum", "--state needs --model"},
      {"predict --model net.onnx --batch 2 --state sum=next.sum", "--state needs --inference"},
  };
  for (const auto& [command, message] : cases) {
    const Outcome outcome = headroom(command);
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << outcome.errors;
  }
}

}  // namespace
}  // namespace headroom::test
