// The command as a user runs it, on machines with and without GPUs.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "device/gpus.h"
#include "device/host/profiles.h"
#include "runtime/app/settings.h"
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

TEST(HeadroomCommand, EveryProgramPrintsItsVersion) {
  const std::string version = run("--version").out;
  EXPECT_EQ(run("fit --version").out, version);
  EXPECT_EQ(run_shell(ScratchFolder(), HEADROOM_TRAIN_MNIST " --version").out,
            "train_mnist" + version.substr(8));
}

TEST(HeadroomCommand, HelpOfASubcommandIsItsWholeHelp) {
  EXPECT_EQ(run("help fit").out, run("fit --help").out);
  EXPECT_EQ(run("help fti").code, 2);
  EXPECT_NE(run("help fti").errors.find("did you mean 'fit'?"), std::string::npos);
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

TEST(HeadroomCommand, DocsListEverySubcommandInTheOrderOfTheHelp) {
  const std::vector<std::string> helped = names_after(run("--help").out, "  ");
  std::vector<std::string> listed =
      names_after(read_file(HEADROOM_SOURCE_DIR "/docs/commands.md", int64_t{1} << 20), "| `");
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

// The names of the options in a help.
std::set<std::string> options_in(const std::string& help) {
  std::set<std::string> names;
  for (const std::string& name : names_after(help, "  --")) names.insert(name);
  return names;
}

// The help of every subcommand, by its name.
std::map<std::string, std::string> helps() {
  std::map<std::string, std::string> texts;
  for (const std::string& name : names_after(run("--help").out, "  ")) texts[name] = run("help " + name).out;
  texts["train_mnist"] = run_shell(ScratchFolder(), HEADROOM_TRAIN_MNIST " --help").out;
  return texts;
}

TEST(HeadroomCommand, SettingsFilesKnowTheOptionsOfAllPrograms) {
  std::set<std::string> known(settings().begin(), settings().end()), helped;
  for (const auto& [name, text] : helps()) {
    const std::set<std::string> names = options_in(text);
    helped.insert(names.begin(), names.end());
  }
  for (const char* no_setting : {"config", "help", "print-config", "version"}) helped.erase(no_setting);
  EXPECT_EQ(known, helped);
}

TEST(HeadroomCommand, ASettingsFileOfAllProgramsServesEachOfThem) {
  const ScratchFolder folder;
  const std::string file = folder.write(
      "all.toml", "epochs = 2\nmax-peak = \"2GiB\"\nbatch = 32\nwatch = false\nmargin = \"1GiB\"\n");
  for (const auto& [name, text] : helps()) {
    const std::string command = name == "train_mnist" ? HEADROOM_TRAIN_MNIST : HEADROOM_COMMAND " " + name;
    const std::string arguments = text.find("\nArguments:") == std::string::npos ? "" : " x y";
    const Outcome outcome = run_shell(folder, command + arguments + " --config " + file + " --print-config");
    EXPECT_EQ(outcome.code, 0) << name << ": " << outcome.errors;
    const bool has_batch = options_in(text).count("batch") > 0;
    EXPECT_EQ(outcome.out.find("# " + file + ":3") != std::string::npos, has_batch) << name << outcome.out;
  }
}

TEST(HeadroomCommand, TheHelpFitsEightyColumnsInAPipe) {
  for (const auto& [name, text] : helps()) {
    std::istringstream lines(text.substr(0, text.find("\nExamples:\n")));
    for (std::string line; std::getline(lines, line);) {
      // A name or a value that has no blank stays whole.
      const bool can_wrap = line.find_last_of(' ') > line.find_first_not_of(' ') + 30;
      if (can_wrap) {
        EXPECT_LE(line.size(), 80u) << name << ": " << line;
      }
    }
  }
}

TEST(HeadroomCommand, TheShortHelpIsShorterAndNamesEveryOption) {
  for (const auto& [name, text] : helps()) {
    if (name == "train_mnist") continue;
    const std::string brief = run(name + " -h").out;
    EXPECT_LT(brief.size(), text.size()) << name;
    for (const std::string& option : options_in(text)) {
      const bool is_common = option == "help" || option == "config" || option == "print-config" ||
                             option == "version" || option == "color";
      if (!is_common) {
        EXPECT_NE(brief.find("--" + option), std::string::npos) << name << " --" << option;
      }
    }
  }
}

// The words of code blocks that are options of a subcommand.
TEST(HeadroomCommand, TheDocsNameNoOptionThatACommandLacks) {
  const std::map<std::string, std::string> texts = helps();
  std::vector<std::string> pages = {HEADROOM_SOURCE_DIR "/README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(HEADROOM_SOURCE_DIR "/docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  size_t checked = 0;
  for (const std::string& page : pages) {
    std::istringstream lines(read_file(page, int64_t{1} << 20));
    for (std::string line; std::getline(lines, line);) {
      const std::string_view begin = line.starts_with("    $ ") ? "    $ " : "    ";
      if (!line.starts_with(begin)) continue;
      std::istringstream words(line.substr(begin.size(), line.find(" #") - begin.size()));
      std::string program, word;
      words >> program;
      if (program == "headroom") words >> program;
      const auto found = texts.find(program);
      if (found == texts.end()) continue;
      const std::set<std::string> known = options_in(found->second);
      // A command of one's own follows "--".
      while (words >> word && word != "|" && word != "&&" && word != ";" && word != "--") {
        if (word.front() == '[') word.erase(0, 1);
        if (!word.starts_with("--")) continue;
        const std::string name = word.substr(2, word.find_first_of("=]|.`") - 2);
        EXPECT_EQ(known.count(name), 1u) << page << ": " << line;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 100u);
}

TEST(HeadroomCommand, ManPagesHaveEveryOptionAndFitEightyColumns) {
  const ScratchFolder folder;
  const Outcome made = run_shell(folder, "sh " HEADROOM_SOURCE_DIR "/tools/man.sh " HEADROOM_COMMAND
                                         " " HEADROOM_TRAIN_MNIST " " +
                                             folder / "man");
  ASSERT_EQ(made.code, 0) << made.errors;
  const bool can_show = run_shell(folder, "command -v nroff").code == 0;
  for (const auto& [name, text] : helps()) {
    const std::string file = folder / ("man/" + (name == "train_mnist" ? name : "headroom-" + name) + ".1");
    std::string page = read_file(file, int64_t{1} << 20);
    for (size_t at = 0; (at = page.find("\\-", at)) != std::string::npos;) page.erase(at, 1);
    for (const std::string& option : options_in(text)) {
      EXPECT_NE(page.find("\n.B --" + option), std::string::npos) << name << " --" << option;
    }
    if (!can_show) continue;
    const std::string shown = run_shell(folder, "nroff -Tascii -man -rLL=80n " + file + " | col -bx").out;
    EXPECT_NE(shown.find("NAME"), std::string::npos) << name;
    std::istringstream lines(shown);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << name << ": " << line;
  }
  const std::string all = read_file(folder / "man/headroom.1", int64_t{1} << 20);
  for (const auto& [name, text] : helps()) {
    if (name != "train_mnist") {
      EXPECT_NE(all.find(".BR headroom\\-" + name), std::string::npos) << name;
    }
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
