// Sizes beyond every machine, on the command line: each command ends soon, with a sentence and an exit code
// that says which. By hand: DRAWN_CASES=2000 DRAWN_SEED=7.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/drawn_cases.h"
#include "tests/run_shell.h"
#include "tests/runtime/onnx/model_bytes.h"

namespace headroom {
namespace {

const std::vector<std::string> kNets = {"mlp", "lenet", "residual", "unet", "attention", "mnist"};
const std::vector<std::string> kStrategies = {"grab-all", "allow-growth", "hard-limit", "two-ended",
                                              "caching",  "pool",         "arena",      "mapped",
                                              "packed",   "direct",       "pytorch",    "stream-ordered"};
// What runs a program does so only if it fits, and here nothing does: a step takes a second or more.
const std::vector<std::string> kPredicting = {"predict", "fit --verify=false", "report", "replay",
                                              "fit --least-memory --verify=false"};
const std::vector<std::string> kRunning = {"run --steps 1", "compare --runs 1 --steps 1", "solve --points 0"};

// Near a power of two at which a size overflows, or passes what a machine can address.
int64_t huge(Draw& draw) {
  constexpr int kPowers[] = {31, 32, 40, 53, 56, 60, 63};
  const int power = kPowers[draw.below(std::size(kPowers))];
  if (power == 63) return INT64_MAX;
  return (int64_t{1} << power) - 1 + draw.below(3);
}

std::string one_line(const Outcome& outcome) {
  const std::string& text = outcome.out.empty() ? outcome.errors : outcome.out;
  return text.substr(0, text.find('\n'));
}

// Empty if the command ended as one does that has an answer, or that refuses what it was given.
std::string fault_of(const std::string& command, bool must_not_fit) {
  const ScratchFolder folder;
  const Outcome outcome =
      run_shell(folder, "env -u TF_FORCE_GPU_ALLOW_GROWTH timeout 1200 " HEADROOM_COMMAND " " + command);
  const auto wrong = [&](const char* what) {
    return fmt::format("{}: {}: exit code {}: {}", command, what, outcome.code, one_line(outcome));
  };
  if (outcome.code != 0 && outcome.code != 2 && outcome.code != 3) return wrong("no answer");
  if (must_not_fit && outcome.code != 3) return wrong("does not say that it does not fit");
  const std::string& errors = outcome.errors;
  const bool is_refusal = outcome.code == 2 || outcome.out.empty();
  if (is_refusal && errors.rfind("headroom") == std::string::npos) return wrong("no reason");
  return {};
}

std::string on_device(Draw& draw) {
  return " --device " + draw.of({"sim", "sim:h200", "sim:four-2080ti", "sim:card-6gb"});
}

TEST(HugeSizes, OfAProgramDoNotFitOrAreRefused) {
  const std::string wrong = wrong_cases(80, [](Draw& draw) {
    const bool predicts = draw.chance(70);
    std::string command = predicts ? draw.of(kPredicting) : draw.of(kRunning);
    const bool plans = command.find("solve") == 0;
    command += " --net " + draw.of(kNets);
    const int64_t batch = huge(draw);
    command += fmt::format(" --batch {}", batch);
    if (draw.chance(30))
      command += fmt::format(" --width {}", draw.chance(50) ? huge(draw) : 1 << draw.below(21));
    if (command.find("compare") != 0 && command.find("replay") != 0 && command.find("report") != 0)
      command += " --strategy " + draw.of(kStrategies);
    if (command.find("re") != 0 && draw.chance(30)) command += " --plan " + draw.of({"packed", "parallel"});
    if (plans) command += " --memory 480MiB";
    if (command.find("report") != 0) command += on_device(draw);
    // A batch of up to 2^32 of every net has sizes of 64 bits and is larger than every card.
    const bool is_asked = command.find("predict") == 0 || command.find("run") == 0;
    const bool has_sizes = batch < int64_t{1} << 33 && command.find("--width") == std::string::npos &&
                           command.find("hard-limit") == std::string::npos;  // which needs a limit
    return fault_of(command, is_asked && has_sizes);
  });
  EXPECT_EQ(wrong, "");
}

TEST(HugeSizes, OfDevicesAndLimitsHaveAnAnswer) {
  const std::string wrong = wrong_cases(80, [](Draw& draw) {
    std::string command = draw.of({"predict", "fit --verify=false --most 4096", "solve --points 0",
                                   "fit --least-memory --verify=false"});
    command += " --net " + draw.of({"mlp", "lenet", "attention"}) + " --strategy " + draw.of(kStrategies);
    const auto add = [&](const char* option) { command += fmt::format(" --{} {}", option, huge(draw)); };
    if (command.find("solve") == 0 || draw.chance(20)) add("memory");
    if (draw.chance(40)) add("device-memory");
    if (draw.chance(40)) add("limit");
    if (draw.chance(20)) add("others");
    if (draw.chance(20)) add("context");
    if (draw.chance(20)) add("host-memory");
    if (draw.chance(20)) add("bucket");
    if (draw.chance(20) && command.find("fit") == 0) add("margin");
    if (draw.chance(20)) command += " --replicas 2 --device sim:four-2080ti";
    return fault_of(command, false);
  });
  EXPECT_EQ(wrong, "");
}

// Blocks of a petabyte that come and go use up more addresses than there are.
TEST(HugeSizes, OfBlocksThatComeAndGoLeaveAddresses) {
  const ScratchFolder folder;
  std::string trace = "op,id,bytes\na,0,1000\n";
  for (int id = 1; id <= 20'000; ++id) trace += fmt::format("a,{},{}\nf,{},0\n", id, int64_t{1} << 49, id);
  std::ofstream(folder / "blocks.csv") << trace;
  for (const std::string& strategy : kStrategies) {
    if (strategy == "packed" || strategy == "pytorch") continue;  // no plan of so much; replay takes names
    const Outcome outcome = run_shell(
        folder, fmt::format(HEADROOM_COMMAND " replay {} --device sim --strategy {} --capacity 1024TiB",
                            folder / "blocks.csv", strategy));
    const int expected = strategy == "arena" || strategy == "mapped" ? outcome.code : 0;
    EXPECT_EQ(outcome.code, expected) << strategy << outcome.errors;
    EXPECT_TRUE(outcome.code == 0 || outcome.code == 3) << strategy << outcome.errors;
  }
}

// The file has holes: the table takes no room on the disk either.
TEST(HugeSizes, OfATableAreNotCopiedForItsRows) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes more data than the limit";
#endif
  constexpr int64_t kRows = int64_t{1} << 20, kColumns = 256, kBytes = kRows * kColumns * 4;
  const ScratchFolder folder;
  std::ofstream(folder / "table.bin").close();
  std::filesystem::resize_file(folder / "table.bin", kBytes);
  test::ModelBytes net;
  net.input("words", 7, {"batch", "4"}).output("y").node("Gather", {"table", "words"}, {"y"});
  net.external("table", {kRows, kColumns}, "table.bin", 0, kBytes);
  std::ofstream(folder / "table.onnx", std::ios::binary) << net.bytes();
  for (const char* command : {"run --device cpu --steps 1", "predict --device sim:h200"}) {
    const Outcome outcome =
        run_shell(folder, "cd " + (folder / "") + " && ulimit -d 262144 && " HEADROOM_COMMAND " " + command +
                              " --model table.onnx --inference --batch 2");
    EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.errors;
  }
}

}  // namespace
}  // namespace headroom
