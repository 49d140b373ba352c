// The command as a user runs it, on machines with and without GPUs.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/device/gpus.h"
#include "runtime/device/host/profiles.h"
#include "tests/run_shell.h"

namespace headroom {
namespace {

Outcome run(const std::string& arguments, const std::string& environment = {}) {
  const ScratchFolder folder;
  return run_shell(folder, "env " + environment + " " HEADROOM_COMMAND " " + arguments);
}

TEST(HeadroomCommand, HelpListsTheSubcommands) {
  for (const char* arguments : {"--help", "help"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find("devices"), std::string::npos);
  }
  const Outcome nothing = run("");
  EXPECT_EQ(nothing.code, 2);
  EXPECT_EQ(nothing.out, "");
  EXPECT_NE(nothing.errors.find("usage: headroom"), std::string::npos);
}

TEST(HeadroomCommand, PrintsItsVersion) {
  const Outcome outcome = run("--version");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.starts_with("headroom ") && outcome.out.ends_with("\n")) << outcome.out;
}

TEST(HeadroomCommand, AFullDiskIsTheSameErrorInEverySubcommand) {
  for (const char* arguments : {"--help", "predict --net lenet --json", "repro --list"}) {
    const Outcome outcome = run(std::string(arguments) + " >/dev/full");
    EXPECT_EQ(outcome.code, 1) << arguments;
    EXPECT_EQ(outcome.errors, "headroom: the output could not be written to the end\n") << arguments;
  }
}

// The first word after `begin` of each line that starts with it.
std::vector<std::string> names_after(const std::string& text, const std::string& begin) {
  std::vector<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(begin) || line.size() == begin.size() || line[begin.size()] == ' ') continue;
    line.erase(0, begin.size());
    names.push_back(line.substr(0, line.find_first_of(" `")));
  }
  return names;
}

TEST(HeadroomCommand, ReadmeListsEverySubcommandInTheOrderOfTheHelp) {
  const std::vector<std::string> helped = names_after(run("--help").out, "  ");
  std::vector<std::string> listed =
      names_after(read_file(HEADROOM_SOURCE_DIR "/README.md", int64_t{1} << 20), "| `");
  std::erase_if(listed, [&](const std::string& name) {  // other tables
    return name == "headroom" || name.find('/') != name.npos;
  });
  EXPECT_EQ(listed, helped);
  for (const std::string& name : helped) {
    const Outcome outcome = run(name + " --help");
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find("\nExamples:\n"), std::string::npos) << name;
  }
}

// They would add 70 ms to every start, see tools/gpu_program.h.
TEST(HeadroomCommand, LoadsNoCudaLibraries) {
  const std::string libraries = run("", "LD_TRACE_LOADED_OBJECTS=1").out;
  EXPECT_NE(libraries.find("libc.so"), std::string::npos) << libraries;
  EXPECT_EQ(libraries.find("libcu"), std::string::npos) << libraries;
}

TEST(HeadroomCommand, UnknownWordsGetASuggestionInOneLine) {
  for (const char* arguments : {"devises", "devices --jsn"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.errors.find("did you mean"), std::string::npos) << outcome.errors;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
}

TEST(HeadroomDevices, ListsEveryGpuOfTheMachineAndEveryProfile) {
  const Outcome outcome = run("devices --json");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  const GpuList list = list_gpus();
  EXPECT_EQ(json["gpus"].size(), list.gpus.size());
  for (size_t i = 0; i < list.gpus.size(); ++i) {
    EXPECT_EQ(json["gpus"][i]["uuid"], list.gpus[i].uuid);
    EXPECT_GT(json["gpus"][i]["total_bytes"], 0);
  }
  ASSERT_EQ(json["simulated"].size(), device_profiles().size());
  for (size_t i = 0; i < device_profiles().size(); ++i) {
    EXPECT_EQ(json["simulated"][i]["device"], "sim:" + device_profiles()[i].name);
  }
}

TEST(HeadroomDevices, ListsHiddenGpusAndSaysWhyNoneIsVisible) {
  const Outcome outcome = run("devices --json", "CUDA_VISIBLE_DEVICES=");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["gpus"].size(), list_gpus().gpus.size());
  for (const nlohmann::json& gpu : json["gpus"]) EXPECT_FALSE(gpu["visible"]);
  EXPECT_NE(json["problem"], "");
}

TEST(HeadroomDevices, StartsWithASummaryAndEndsWithTheNextCommand) {
  const Outcome outcome = run("devices");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_NE(outcome.out.substr(0, outcome.out.find('\n')), "");
  EXPECT_NE(outcome.out.find("sim:laptop-2gb"), std::string::npos);
  EXPECT_NE(outcome.out.rfind("\nnext: train_mnist --device "), std::string::npos);
}

TEST(HeadroomDevices, CountsAndMapsTheGpusOfASimulatedMachine) {
  const Outcome split =
      run("devices --device sim:four-2080ti --virtual-devices 0:1024MiB,1024MiB", "CUDA_VISIBLE_DEVICES=0,1");
  ASSERT_EQ(split.code, 0) << split.errors;
  EXPECT_TRUE(split.out.starts_with("2 Physical GPU, 3 Logical GPUs: ")) << split.out;
  const Outcome visible = run("devices --device sim:four-2080ti --visible-devices 1,2 --json");
  ASSERT_EQ(visible.code, 0) << visible.errors;
  const nlohmann::json json = nlohmann::json::parse(visible.out);
  ASSERT_EQ(json["logical"].size(), 2u);
  EXPECT_EQ(json["logical"][1]["name"], "/job:localhost/replica:0/task:0/device:GPU:1");
  EXPECT_EQ(json["logical"][1]["mapping"],
            "/device:GPU:1 -> device: 2, name: GeForce RTX 2080 Ti, pci bus id: 0000:03:00.0, compute "
            "capability: 7.5");
  EXPECT_FALSE(json["gpus"][0]["visible"]);
}

TEST(HeadroomDevices, ListsFullGpus) {
  const Outcome outcome =
      run("devices --device sim:four-2080ti --others-by-gpu 2:11554717696/3:11554717696 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["gpus"][2]["free_bytes"], 0);
  EXPECT_EQ(json["logical"].size(), 4u);
}

TEST(HeadroomDevices, AnUnknownGpuIsOneLine) {
  EXPECT_EQ(run("devices --device sim:four-2080ti:4").code, 2);
  const Outcome outcome = run("devices --device sim:four-2080ti --visible-devices 1,4");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.errors,
            "headroom: 'visible_device_list' listed an invalid GPU id '4' but visible device count is 4\n");
}

}  // namespace
}  // namespace headroom
