// train_mnist as a user runs it: bad input is one line on stderr with the right exit code, and leaves no
// files.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/files.h"
#include "tests/run_shell.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

// Runs train_mnist without environment variables. `arguments` may contain redirections.
Outcome run(const ScratchFolder& folder, const std::string& arguments, const std::string& before = {}) {
  return run_shell(folder, before + "env -i " HEADROOM_TRAIN_MNIST " " + arguments);
}

constexpr const char* kShort = "--epochs 1 --steps 3 ";

struct BadInput {
  const char* name;
  std::string arguments;
  int code;
  std::string part;  // part of the message
};

TEST(TrainMnistProgram, BadInputIsOneLineWithItsExitCodeAndLeavesNoFiles) {
  const ScratchFolder folder;
  const ScratchFolder data;
  data.write("train-images-idx3-ubyte", "not an IDX file");
  const std::string old = data.write("old", "weights of before");
  const std::string junk = data.write("junk.toml", "strategy = \"allow-growth\"\nstrat = 3\n");
  const BadInput rows[] = {
      {"unknown option", "--foo", 2, "unknown argument '--foo'"},
      {"unknown strategy", "--strategy growth", 2, "did you mean 'allow-growth'?"},
      {"unknown device", "--device gpu", 2, "known: cpu, sim"},
      {"unknown optimizer", "--optimizer adamm", 2, "did you mean 'adam'?"},
      {"unknown math", "--math f8", 2, "f16"},
      {"data nowhere", "--data-on disk", 2, "host"},
      {"target above all", "--target-accuracy 1.01", 2, "target-accuracy"},
      {"loss scale of nothing", "--loss-scale 0", 2, "loss-scale"},
      {"batch of nothing", "--batch 0", 2, "--batch"},
      {"more replicas than GPUs", "--device sim --replicas 2", 2, "device sim has 1"},
      {"a batch that cannot be shared", "--device sim:four-2080ti --replicas 3", 2, "try 63"},
      {"replicas that share the CPU", "--device sim:four-2080ti --replicas 2 --place dense=/CPU:0", 2,
       "one CPU for all"},
      {"replicas on more GPUs than there are",
       "--device sim:four-2080ti --replicas 2 --place dense=/GPU:2 --device-policy silent", 2,
       "3 devices each need 6"},
      {"bucket of nothing", "--bucket 0", 2, "bucket"},
      {"no time to wait", "--collective-timeout 0", 2, "collective-timeout"},
      {"batch above the data", "--batch 100000", 2, "12000"},
      {"no number", "--epochs x", 2, "whole number"},
      {"negative size", "--limit -1", 2, "negative"},
      {"unknown unit", "--limit 12QB", 2, "QB"},
      {"limit above the device", "--device sim --strategy hard-limit --limit 3GiB", 2,
       "above the device's total"},
      {"limit of nothing", "--device sim --strategy hard-limit --limit 0", 2, "0 bytes"},
      {"no limit", "--strategy hard-limit", 2, "needs a limit"},
      {"process limit below its overhead", "--device sim --limit 100MiB --limit-scope process", 2, "431"},
      {"fraction", "--memory-fraction 2", 2, "memory-fraction"},
      {"no such data", "--data /nowhere", 2, "/nowhere"},
      {"broken data", "--data " + data.path(), 2, "train-labels"},
      {"no such weights", "--load /nowhere", 2, "/nowhere"},
      {"broken weights", "--load " + junk, 2, "safetensors"},
      {"weights without an end", "--load /dev/zero", 2, "/dev/zero: the header"},
      {"unwritable weights", "--save /nowhere/w", 2, "/nowhere/w"},
      {"no such training", "--resume /nowhere", 2, "/nowhere"},
      {"new and old at once", "--load " + junk + " --resume " + junk, 2, "exclude each other"},
      {"checkpoints nowhere", "--checkpoint-every 1", 2, "--save"},
      {"unwritable log", "--log /nowhere/l", 2, "/nowhere/l"},
      {"log beside bad weights", "--load " + junk + " --log " + (folder / "l"), 2, "safetensors"},
      {"log beside a bad batch", "--batch 100000 --log " + (folder / "l"), 2, "12000"},
      {"log over the weights", "--load " + old + " --log " + (data / "./old"), 2,
       "both the log and the weights"},
      {"log over new weights", "--log " + (folder / "f") + " --save " + (folder / "f"), 2,
       "both the log and the weights"},
      {"process without a limit", "--device sim --limit-scope process", 2, "there is no limit"},
      {"more than one line", "--strategy 'a\nb'", 2, "'a b'"},
      {"terminal command in a name", "--data '/nowhere\033[2J'", 2, "/nowhere\\x1b[2J"},
      {"number above 64 bits", "--batch 99999999999999999999", 2, "is not in [1,"},
      {"no such config", "--config /nowhere", 2, "/nowhere"},
      {"unknown key in a config", "--config " + junk, 2, "strat"},
      {"a device without room for a context", "--device sim --device-memory 24", 2,
       "device-memory of 24 B: the context alone takes 100.00 MiB"},
      {"missed target", std::string(kShort) + "--target-accuracy 1", 5, ""},
      {"a pool of all by the strategy's text",
       std::string(kShort) + "--device sim --strategy grab-all+reserve=1MiB", 4,
       "next: the pool leaves the library too little"},
      {"a change that is proven", std::string(kShort) + "--device sim --strategy grab-all", 4,
       "library_failure: preallocation: "},
      {"no room", std::string(kShort) + "--device sim --limit 3MiB", 3, "out of memory"},
      {"no room for a handle", std::string(kShort) + "--device sim --strategy grab-all", 4, "Blas xGEMM"},
  };
  for (const BadInput& row : rows) {
    const Outcome outcome = run(folder, row.arguments);
    EXPECT_EQ(outcome.code, row.code) << row.name << ": " << outcome.errors;
    EXPECT_NE(outcome.errors.find(row.part), std::string::npos) << row.name << ": " << outcome.errors;
    if (row.code == 2) {
      EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
      EXPECT_EQ(outcome.errors.rfind("train_mnist: ", 0), 0u) << outcome.errors;
      EXPECT_EQ(outcome.out, "") << row.name;
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << row.name;
  }
}

TEST(TrainMnistProgram, ARefusedSettingLeavesAnOldLogAlone) {
  const ScratchFolder folder;
  const std::string log = folder.write("log.csv", "of before\n");
  EXPECT_EQ(run(folder, "--batch 100000 --log " + log).code, 2);
  EXPECT_EQ(read_file(log, 100), "of before\n");
  EXPECT_EQ(run(folder, "--epochs 1 --steps 1 --log " + log).code, 0);
  EXPECT_EQ(read_file(log, 1000).rfind("epoch,", 0), 0u);
}

TEST(TrainMnistProgram, TwoProcessesWithOneLogMixLinesButBreakNone) {
  const ScratchFolder folder;
  const std::string log = folder / "log.csv";
  const std::string one =
      "env -i " HEADROOM_TRAIN_MNIST " --epochs 1 --steps 40 --batch 4 --evaluate-every 4 --log " + log;
  EXPECT_EQ(run_shell(folder, one + " & " + one + "; code=$?; wait; exit $code").code, 0);
  std::istringstream lines(read_file(log, 1 << 20));
  int64_t rows = 0;
  for (std::string line; std::getline(lines, line); ++rows)
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 6) << line;
  EXPECT_GT(rows, 40);
}

// Starts a training without end, sends it the signal once it logs, and returns how it ended.
Outcome signaled(const ScratchFolder& folder, const std::string& signal, const std::string& more) {
  const std::string log = folder / "log.csv";
  // Shells start jobs in the background with SIGINT ignored, which the program respects.
  return run_shell(folder, "env -i --default-signal=INT " HEADROOM_TRAIN_MNIST
                           " --epochs 1000000 --steps 300 --batch 4 --schedule constant --log " +
                               log + " " + more + " >/dev/null & pid=$!; while ! grep -qs '^1,' " + log +
                               " && kill -0 $pid; do sleep 0.01; done; kill -" + signal + " $pid; wait $pid");
}

TEST(TrainMnistProgram, ASignalSavesTheTrainingAndResumingGivesTheBitsOfAnUninterruptedOne) {
  const ScratchFolder folder;
  const std::string file = folder / "run.st";
  const Outcome ended = signaled(folder, "TERM", "--save " + file);
  EXPECT_EQ(ended.code, 143) << ended.errors;
  const std::string line = "train_mnist: ended by SIGTERM after step ";
  ASSERT_EQ(ended.errors.rfind(line, 0), 0u) << ended.errors;
  EXPECT_EQ(std::count(ended.errors.begin(), ended.errors.end(), '\n'), 1) << ended.errors;
  EXPECT_NE(ended.errors.find("--resume " + file), std::string::npos) << ended.errors;
  const int64_t epochs = std::stoll(ended.errors.substr(line.size())) / 300 + 1;
  const std::string whole =
      "--steps 300 --batch 4 --schedule constant --json --epochs " + std::to_string(epochs);
  const Outcome never_ended = run(folder, whole), resumed = run(folder, whole + " --resume " + file);
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  const auto bits = [](const Outcome& outcome) {
    return nlohmann::json::parse(outcome.out)["weights_checksum"].get<std::string>();
  };
  EXPECT_EQ(bits(resumed), bits(never_ended));
}

TEST(TrainMnistProgram, ASignalSaysSoWhereNothingIsSaved) {
  const ScratchFolder folder;
  const Outcome ended = signaled(folder, "INT", "");
  EXPECT_EQ(ended.code, 130);
  EXPECT_NE(ended.errors.find("ended by SIGINT after step "), std::string::npos) << ended.errors;
  EXPECT_NE(ended.errors.find("nothing is saved (--save FILE)"), std::string::npos) << ended.errors;
}

TEST(TrainMnistProgram, AnUnwritableOutputIsAFailure) {
  const ScratchFolder folder;
  for (const char* arguments : {"--help", "--print-config", "--epochs 1 --steps 1 --json"}) {
    const Outcome outcome = run(folder, std::string(arguments) + " >/dev/full");
    EXPECT_EQ(outcome.code, 1) << arguments;
    EXPECT_NE(outcome.errors.find("train_mnist: the output could not be written"), std::string::npos);
  }
}

TEST(TrainMnistProgram, AFullDiskLeavesNoWeights) {
  const ScratchFolder folder, weights;
  // The shell limits the size of files in blocks of 512 bytes.
  const Outcome outcome = run(folder, std::string(kShort) + "--save " + (weights / "w"), "ulimit -f 8; ");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.errors.find("cannot write it"), std::string::npos) << outcome.errors;
  EXPECT_TRUE(std::filesystem::is_empty(weights.path()));
}

TEST(TrainMnistProgram, AFullDiskEndsTheTrainingAndLeavesTheLastCheckpoint) {
  const ScratchFolder folder, weights;
  const std::string file = weights / "w";
  const std::string training = "--steps 3 --schedule constant --save " + file;
  ASSERT_EQ(run(folder, training + " --epochs 1").code, 0);
  const std::string before = read_file(file, 1 << 24);
  for (const char* replicas : {"", " --device sim:four-2080ti --replicas 2 --shard-optimizer"}) {
    const Outcome outcome = run(
        folder, training + replicas + " --epochs 9 --checkpoint-every 2 --resume " + file, "ulimit -f 8; ");
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.errors, "train_mnist: " + file + ": cannot write it: File too large\n");
    EXPECT_TRUE(read_file(file, 1 << 24) == before);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(weights.path()), {}), 1);
  }
}

TEST(TrainMnistProgram, ClosedStreamsChangeNoFileAndAClosedOutputIsAFailure) {
  const ScratchFolder folder;
  const std::string log = folder / "log.csv";
  EXPECT_EQ(run(folder, std::string(kShort) + "--log " + log + " >&-").code, 1);
  const std::string text = read_file(log, 1 << 20);
  EXPECT_EQ(text.rfind("epoch,step,", 0), 0u) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_EQ(run(folder, std::string(kShort) + "--json <&- >&- 2>&-").code, 1);
  EXPECT_EQ(run(folder, std::string(kShort) + "<&-").code, 0);
  EXPECT_EQ(run(folder, "--foo 2>/dev/full").code, 2);
}

TEST(TrainMnistProgram, JsonIsOneObjectForEveryOutcome) {
  const ScratchFolder folder;
  const std::array<std::array<const char*, 2>, 5> rows = {{
      {"--device cpu --plan packed", "ok"},
      {"--device sim --limit 3MiB", "out_of_memory"},
      {"--device sim --strategy hard-limit --limit 1700MiB", "library_failure"},  // no memory for kernels
      {"--device sim --others 2000MiB", "library_failure"},                       // no memory for a context
      {"--device sim --strategy grab-all", "library_failure"},
  }};
  for (const auto& [arguments, expected] : rows) {
    const Outcome outcome = run(folder, std::string(kShort) + "--json " + arguments);
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
    const nlohmann::json json = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(json["outcome"], expected);
    EXPECT_TRUE(json.contains("out_of_memory"));
    if (json["outcome"] == "out_of_memory") {
      EXPECT_EQ(json["out_of_memory"]["cause"], "limit");
    }
    for (const char* field : {"error",
                              "device",
                              "strategy",
                              "epochs",
                              "batch",
                              "test_accuracy",
                              "final_loss",
                              "data_on",
                              "kernels",
                              "math",
                              "steps",
                              "training_seconds",
                              "seconds_to_target",
                              "seconds_per_step",
                              "images_per_second",
                              "peak_device_bytes",
                              "peak_process_bytes",
                              "peak_reserved_bytes",
                              "peak_allocated_bytes",
                              "predicted_peak_bytes",
                              "weights_checksum"}) {
      EXPECT_TRUE(json.contains(field)) << field;
    }
  }
}

TEST(TrainMnistProgram, ABudgetThatIsRefusedIsAnObjectToo) {
  const ScratchFolder folder;
  const Outcome outcome = run(folder, std::string(kShort) + "--json --device sim --memory 10MiB");
  EXPECT_EQ(outcome.code, 3) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["outcome"], "out_of_memory");
  EXPECT_NE(std::string(json["error"]).find("the minimum"), std::string::npos);
}

TEST(TrainMnistProgram, JsonHasThePeaksOfEachDevice) {
  const ScratchFolder folder;
  const std::string four = std::string(kShort) + "--json --device sim:four-2080ti ";
  for (const char* several : {"--replicas 2", "--place dense_1=/GPU:1 --device-policy silent"}) {
    const Outcome outcome = run(folder, four + several);
    ASSERT_EQ(outcome.code, 0) << outcome.errors;
    const nlohmann::json json = nlohmann::json::parse(outcome.out);
    ASSERT_EQ(json["devices"].size(), 2u) << several;
    for (size_t i = 0; i < 2; ++i) {
      const nlohmann::json& device = json["devices"][i];
      EXPECT_EQ(device["device"], "/GPU:" + std::to_string(i));
      EXPECT_GT(device["peak_allocated_bytes"], 0);
      EXPECT_EQ(device["peak_allocated_bytes"], device["predicted_peak_bytes"]);
      EXPECT_LE(device["peak_process_bytes"], json["peak_process_bytes"]);
    }
  }
}

TEST(TrainMnistProgram, TheNextCommandAfterAFailureSucceeds) {
  const ScratchFolder folder;
  for (const char* arguments : {"--device sim --limit 10MiB", "--device sim --strategy grab-all"}) {
    const Outcome outcome = run(folder, std::string(kShort) + arguments);
    const std::string lead = "\nnext: train_mnist ";
    const size_t next = outcome.errors.find(lead);
    ASSERT_NE(next, std::string::npos) << outcome.errors;
    const std::string changed = outcome.errors.substr(next + lead.size());
    EXPECT_EQ(run(folder, changed.substr(0, changed.find('\n'))).code, 0) << changed;
  }
}

TEST(TrainMnistProgram, DoesNotAdviseToSaveASavedTraining) {
  const ScratchFolder folder;
  const std::string file = folder / "weights";
  const Outcome outcome = run(folder, std::string(kShort) + "--plan packed --save " + file);
  EXPECT_TRUE(outcome.out.ends_with("\nnext: train_mnist --load " + file + "  # start from these weights\n"))
      << outcome.out << outcome.errors;
}

TEST(TrainMnistProgram, LoadedWeightsAreTheSavedOnes) {
  const ScratchFolder folder;
  const std::string weights = folder / "weights.safetensors", log = folder / "log.csv";
  const Outcome saved = run(folder, std::string(kShort) + "--json --save " + weights + " --log " + log);
  ASSERT_EQ(saved.code, 0) << saved.errors;
  // The learning rate is too small to change a weight.
  const Outcome loaded =
      run(folder, std::string(kShort) + "--json --optimizer sgd --learning-rate 1e-12 --load " + weights);
  ASSERT_EQ(loaded.code, 0) << loaded.errors;
  EXPECT_EQ(nlohmann::json::parse(saved.out)["test_accuracy"],
            nlohmann::json::parse(loaded.out)["test_accuracy"]);
  const std::string text = read_file(log, 1 << 20);
  EXPECT_EQ(text.rfind("epoch,step,loss,accuracy,learning_rate,seconds,test_accuracy\n1,1,", 0), 0u) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST(TrainMnistProgram, AResumedTrainingEndsWithTheSameBitsAndAppendsToItsLog) {
  const ScratchFolder folder;
  const std::string file = folder / "training", log = folder / "log.csv";
  const std::string constant = "--steps 2 --schedule constant --json ";
  const Outcome whole = run(folder, constant + "--epochs 2");
  ASSERT_EQ(whole.code, 0) << whole.errors;
  const std::string kept = " --save " + file + " --log " + log;
  ASSERT_EQ(run(folder, constant + "--epochs 1" + kept).code, 0);
  const Outcome rest = run(folder, constant + "--epochs 2 --resume " + file + kept);
  ASSERT_EQ(rest.code, 0) << rest.errors;
  const nlohmann::json expected = nlohmann::json::parse(whole.out), json = nlohmann::json::parse(rest.out);
  EXPECT_EQ(json["weights_checksum"], expected["weights_checksum"]);
  EXPECT_EQ(json["steps"], 2);
  const std::string text = read_file(log, 1 << 20);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
  EXPECT_NE(text.find("\n2,2,"), std::string::npos) << text;
}

}  // namespace
}  // namespace headroom
