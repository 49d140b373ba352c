// Setups with all options drawn: what predict says is what a run takes, to the byte, and the most that it
// takes where replicas share a GPU; the batch that fit finds fits and the next does not; a budget is kept. By
// hand: DRAWN_CASES=2000 DRAWN_SEED=1000.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/drawn_cases.h"
#include "tests/run_shell.h"
#include "tests/runtime/onnx/model_bytes.h"

namespace headroom {
namespace {

using Json = nlohmann::json;

// A net or a model, small enough to be run in a test, on a machine. Without its batch. Not mnist, of which
// predict counts whole epochs with their tests, and run the steps given.
struct DrawnSetup {
  std::string options;
  int64_t batch = 1, replicas = 1;
  int64_t memory_mib = 0;  // the budget; 0: none
};

// x (batch,12) -> dense, relu, dense -> y (batch,6)
const std::string& model_file() {
  static const ScratchFolder folder;
  static const std::string path = [] {
    const auto weights = [](int64_t count) { return std::vector<float>(static_cast<size_t>(count), 0.1f); };
    test::ModelBytes net;
    net.input("x", 1, {"batch", "12"}).output("y");
    net.floats("w", {12, 40}, weights(480)).floats("b", {40}, weights(40)).floats("v", {40, 6}, weights(240));
    net.node("Gemm", {"x", "w", "b"}, {"h"}).node("Relu", {"h"}, {"r"}).node("MatMul", {"r", "v"}, {"y"});
    std::ofstream(folder / "net.onnx", std::ios::binary) << net.bytes();
    return folder / "net.onnx";
  }();
  return path;
}

std::string drawn_model(Draw& draw) {
  std::string options = "--model " + model_file();
  if (draw.chance(30)) options += " --precision " + draw.of({"bf16", "f16"});
  if (draw.chance(40)) return options + " --inference";
  if (draw.chance(30)) options += fmt::format(" --lora {} --lora-alpha 8", 1 + draw.below(4));
  if (draw.chance(30)) options += " --loss mse";
  return options;
}

std::string drawn_gpus(Draw& draw, DrawnSetup& setup) {
  std::string options = " --device " + draw.of({"sim:four-2080ti", "sim:rtx-3090 --gpus 4"});
  const int64_t part_mib = 300 + draw.below(600);
  if (draw.chance(50)) setup.replicas = 2;
  if (setup.replicas == 2 && draw.chance(40)) options += " --shard-optimizer";
  if (setup.replicas == 2 && draw.chance(30)) options += " --bucket " + draw.of({"64KiB", "1MiB"});
  if (setup.replicas == 2) options += " --replicas 2";
  if (draw.chance(30))
    options += " --visible-devices " + draw.of({"1,2", "3,0", "0,1,2"});
  else if (draw.chance(60))
    options += fmt::format(" --virtual-devices 0:{}MiB,{}MiB", part_mib, 700);
  else
    options += fmt::format(" --others-by-gpu 0:{}MiB/1:{}MiB", 10 * part_mib, part_mib);
  return options;
}

std::string drawn_device(Draw& draw, DrawnSetup& setup) {
  if (draw.chance(20)) {
    setup.replicas = draw.chance(50) ? 2 : 4;
    std::string options = fmt::format(" --device sim:four-2080ti --replicas {}", setup.replicas);
    if (draw.chance(40)) options += " --shard-optimizer";
    if (draw.chance(30)) options += " --bucket " + draw.of({"64KiB", "1MiB"});
    return options;
  }
  if (draw.chance(15)) return drawn_gpus(draw, setup);
  std::string options =
      " --device " + draw.of({"sim", "sim:laptop-2gb", "sim:card-6gb", "sim:rtx-3090", "sim:h200", "sim:t4"});
  if (draw.chance(40)) options += fmt::format(" --device-memory {}MiB", 500 + draw.below(600));
  if (draw.chance(20)) options += fmt::format(" --others {}MiB", draw.below(300));
  if (draw.chance(20)) options += fmt::format(" --context {}MiB", 50 + draw.below(200));
  if (draw.chance(10)) options += " --check-streams";
  return options;
}

std::string drawn_strategy(Draw& draw) {
  std::string options = " --strategy " + draw.of({"grab-all",
                                                  "allow-growth",
                                                  "two-ended",
                                                  "two-ended,large=1MiB",
                                                  "caching",
                                                  "caching,gc=0.7",
                                                  "caching,roundup_power2=4",
                                                  "caching,max_split=20MiB",
                                                  "caching,expandable_segments=true",
                                                  "pool",
                                                  "pool,initial=8MiB",
                                                  "arena",
                                                  "mapped",
                                                  "mapped,page=4MiB",
                                                  "stream-ordered",
                                                  "packed",
                                                  "direct",
                                                  "pytorch",
                                                  "caching+thread-cache=1MiB",
                                                  "hard-limit=200MiB"});
  const bool has_limit = options.find("hard-limit") != std::string::npos;
  if (!has_limit && draw.chance(20)) {
    options += fmt::format(" --limit {}MiB", 20 + draw.below(500));
    if (draw.chance(40)) options += " --limit-scope process";
  } else if (!has_limit && draw.chance(10)) {
    options += fmt::format(" --memory-fraction 0.{}", 1 + draw.below(9));
  }
  if (draw.chance(10)) options += " --allow-growth";
  return options;
}

std::string drawn_memory(Draw& draw, DrawnSetup& setup) {
  setup.memory_mib = 300 + draw.below(300);
  std::string options = fmt::format(" --memory {}MiB", setup.memory_mib);
  if (draw.chance(50)) options += " --split-batch " + draw.of({"never", "needed", "cheaper"});
  if (draw.chance(20)) options += " --compress-norms";
  if (draw.chance(30)) options += fmt::format(" --host-memory {}MiB", 1 + draw.below(64));
  return options;
}

DrawnSetup drawn_setup(Draw& draw) {
  DrawnSetup setup;
  const bool has_budget = draw.chance(20);
  // A budget for more layers is a search of many seconds.
  std::vector<std::string> nets = {"mlp", "lenet", "attention"};
  if (!has_budget) nets.emplace_back("residual");
  const std::string net = draw.chance(15) ? "" : draw.of(nets);
  setup.options = net.empty() ? drawn_model(draw) : "--net " + net;
  setup.options += drawn_device(draw, setup);
  if (setup.replicas == 1 && setup.options.find("four-2080ti") != std::string::npos && net == "attention") {
    setup.options += " --place attention/key=/GPU:1 --device-policy " + draw.of({"explicit", "silent"});
  }
  setup.options += has_budget ? drawn_memory(draw, setup) : drawn_strategy(draw);
  setup.batch = (1 + draw.below(net == "residual" ? 4 : 24)) * setup.replicas;
  if (!net.empty() && draw.chance(20)) setup.options += " --width 2";
  if (!has_budget && draw.chance(40)) setup.options += " --plan " + draw.of({"packed", "parallel"});
  if (draw.chance(50)) setup.options += " --optimizer " + draw.of({"sgd", "momentum", "rmsprop", "adamw"});
  if (draw.chance(30)) setup.options += " --kernels library";
  if (draw.chance(20)) setup.options += " --math " + draw.of({"f32", "bf16", "f16"});
  if (draw.chance(25)) setup.options += " --data-on host";
  if (draw.chance(15)) setup.options += " --loader-depth " + draw.of({"0", "2", "3"});
  if (draw.chance(15)) setup.options += " --libraries-first";
  if (draw.chance(15)) setup.options += " --inter-op-threads 2";
  if (draw.chance(10)) setup.options += " --intra-op-threads 2";
  if (draw.chance(15)) setup.options += " --seed 7";
  return setup;
}

// Calls of one setup, and what is wrong with their answers.
class Checked {
 public:
  explicit Checked(const DrawnSetup& setup) : setup_(setup) {}

  Outcome call(const std::string& command, int64_t batch) {
    return run_shell(
        folder_,
        fmt::format("env -u TF_FORCE_GPU_ALLOW_GROWTH timeout 1200 " HEADROOM_COMMAND " {} {}{} --json",
                    command, setup_.options, batch > 0 ? fmt::format(" --batch {}", batch) : ""));
  }
  void wrong(const std::string& what) { wrong_ += "\n  " + what; }
  std::string result() const {
    return wrong_.empty() ? wrong_ : fmt::format("{} --batch {}{}", setup_.options, setup_.batch, wrong_);
  }

  // Returns whether the setup is one that runs, in some memory.
  bool predict_and_run() {
    const Outcome predicted = call("predict", setup_.batch), measured = call("run --steps 2", setup_.batch);
    if (predicted.code == 2 || measured.code == 2) {
      if (predicted.code != measured.code) {
        wrong(fmt::format("predict refuses, or run does: {} {}", predicted.errors, measured.errors));
      }
      return false;
    }
    const Json said = Json::parse(predicted.out, nullptr, false);
    const Json took = Json::parse(measured.out, nullptr, false);
    if (said.is_discarded() || took.is_discarded()) {
      wrong(fmt::format("no answer: {} {}", predicted.errors, measured.errors));
      return false;
    }
    const bool fits = said.value("fits", false), ran = took.value("outcome", "") == "ok";
    const bool is_most = said.value("total_is_upper_bound", false);
    if (fits != ran && (fits || !is_most))
      wrong(fmt::format("predict says fits={}, run {}", fits, took["outcome"].dump()));
    if (!fits || !ran) return true;
    if (!is_most || took.value("peak_process_bytes", INT64_MAX) > said.value("total_bytes", int64_t{0}))
      compare(said, "total_bytes", took, "peak_process_bytes");
    compare(said, "peak_reserved_bytes", took, "peak_reserved_bytes");
    compare(said, "peak_allocated_bytes", took, "peak_allocated_bytes");
    const int64_t budget = setup_.memory_mib << 20;
    if (budget > 0 && took.value("peak_process_bytes", INT64_MAX) > budget)
      wrong("run takes more than its budget");
    return true;
  }
  // The most that fit tries is small, so that its answer is run too.
  void find_batch() {
    const Outcome found = call("fit --verify=false --most 256", 0);
    const Json json = Json::parse(found.out, nullptr, false);
    if (json.is_discarded()) return wrong("fit: no answer: " + found.errors);
    const int64_t batch = json.value("batch", int64_t{-1}), next = batch + setup_.replicas;
    if (batch > 0 && call("predict", batch).code != 0) wrong(fmt::format("fit: {} does not fit", batch));
    if (next > 256) return;
    const int code = call("predict", next).code;
    if (code != 3 && code != 2) wrong(fmt::format("fit: {} is the most, and {} fits", batch, next));
  }

 private:
  void compare(const Json& said, const char* key, const Json& took, const char* key_of_run) {
    if (said.value(key, Json()) == took.value(key_of_run, Json())) return;
    wrong(fmt::format("{}: predicted {}, run {}", key_of_run, said.value(key, Json()).dump(),
                      took.value(key_of_run, Json()).dump()));
  }

  const ScratchFolder folder_;
  const DrawnSetup& setup_;
  std::string wrong_;
};

TEST(RandomSetups, ArePredictedToTheByteAndFitHolds) {
  std::atomic<int> runs = 0;
  const std::string wrong = wrong_cases(300, [&](Draw& draw) {
    const DrawnSetup setup = drawn_setup(draw);
    Checked checked(setup);
    const bool runs_somewhere = checked.predict_and_run();
    if (runs_somewhere) ++runs;
    // Under a budget each batch is a search for its plan.
    if (runs_somewhere && setup.memory_mib == 0 && draw.chance(40)) checked.find_batch();
    return checked.result();
  });
  EXPECT_EQ(wrong, "");
  std::printf("%d of them are not refused\n", runs.load());
}

}  // namespace
}  // namespace headroom
