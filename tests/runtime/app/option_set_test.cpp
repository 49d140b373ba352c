// Options that take several values, and arguments without a name.
#include "runtime/app/option_set.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "base/errors.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

using Words = std::vector<std::string>;

struct ParsedOptions {
  OptionSet set{"program", "A program."};
  Words files, tints;
  std::string name = "none";
  bool loud = false;

  ParsedOptions() {
    set.add_arguments("FILE", "What to read", &files);
    set.add_list("tints", "Tints", &tints);
    set.add_text("name", "A name", &name);
    set.add_switch("loud", "Be loud", &loud);
  }
  bool parse(std::vector<const char*> arguments, std::ostream& out) {
    arguments.insert(arguments.begin(), "program");
    return set.parse(static_cast<int>(arguments.size()), arguments.data(), out);
  }
  void parse(std::vector<const char*> arguments) {
    std::ostringstream out;
    EXPECT_TRUE(parse(std::move(arguments), out));
  }
};

TEST(OptionSet, HelpShowsHowToPassArguments) {
  ParsedOptions program;
  std::ostringstream out;
  EXPECT_FALSE(program.parse({"--help"}, out));
  EXPECT_NE(out.str().find(" FILE\n"), std::string::npos) << out.str();
  EXPECT_EQ(out.str().find("\n\n\n"), std::string::npos) << out.str();
}

// CLI11 2.4 and later refuse names with blanks.
TEST(OptionSet, ArgumentsMayHaveSeveralNames) {
  for (const bool required : {true, false}) {
    OptionSet set("program", "A program.");
    Words files;
    set.add_arguments("BEFORE AFTER", "Two files", &files, required);
    std::ostringstream out;
    const char* help[] = {"program", "--help"};
    EXPECT_FALSE(set.parse(2, help, out));
    EXPECT_TRUE(out.str().starts_with(
        fmt::format("A program.\n"
                    "Usage: program [OPTIONS] {}\n"
                    "\n"
                    "Arguments:\n"
                    "  BEFORE AFTER                Two files\n"
                    "\n"
                    "Common options:\n"
                    "  --color NAME=\"auto\"         When to print colors; auto: on a terminal, unless\n"
                    "                              NO_COLOR is set (auto, always, never)\n",
                    required ? "BEFORE AFTER" : "[BEFORE AFTER]")))
        << out.str();
    const char* both[] = {"program", "old", "new"};
    EXPECT_TRUE(set.parse(3, both, out));
    EXPECT_EQ(files, (Words{"old", "new"}));
  }
}

TEST(OptionSet, ArgumentsThatAreNeededAreNamedWhenTheyAreMissing) {
  ParsedOptions program;
  try {
    program.parse({"--loud"});
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "FILE is required");
  }
}

TEST(OptionSet, ArgumentsThatAListHasTakenAreNamed) {
  ParsedOptions program;
  try {
    program.parse({"--tints", "red", "a"});
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "FILE is required: --tints takes all words that follow it, 'a' too; give FILE first");
  }
}

TEST(OptionSet, ListsTakeAllFollowingWordsAndMayBeRepeated) {
  ParsedOptions program;
  program.parse({"a", "b", "--tints", "red", "green", "--loud", "--tints=blue", "--name", "x"});
  EXPECT_EQ(program.files, (Words{"a", "b"}));
  EXPECT_EQ(program.tints, (Words{"red", "green", "blue"}));
  EXPECT_EQ(program.name, "x");
  EXPECT_TRUE(program.loud);
}

TEST(OptionSet, TheWordsAfterDashesAreTheCommandOfAnotherProgram) {
  ParsedOptions program;
  program.set.take_command();
  program.parse({"--loud", "--", "python", "a b.py", "--name", "x"});
  EXPECT_TRUE(program.loud);
  EXPECT_EQ(program.name, "none");
  EXPECT_EQ(program.files, Words{"-- python 'a b.py' --name x"});
  EXPECT_EQ(program.set.command(), (Words{"python", "a b.py", "--name", "x"}));
  std::ostringstream out;
  EXPECT_FALSE(program.parse({"--help"}, out));
  EXPECT_NE(out.str().find(" FILE [-- COMMAND]\n"), std::string::npos) << out.str();
  EXPECT_THROW(program.parse({"--"}, out), InvalidArgument);
}

TEST(OptionSet, AProgramWithoutArgumentsTakesACommandToo) {
  std::string name = "none";
  OptionSet set("headroom-sample", "Paints.");
  set.add_text("name", "The name", &name);
  set.take_command();
  std::ostringstream out;
  const std::array<const char*, 6> words = {"sample", "--name", "x", "--", "python", "a.py"};
  EXPECT_TRUE(set.parse(words.size(), words.data(), out));
  EXPECT_EQ(name, "x");
  EXPECT_EQ(set.command(), (Words{"python", "a.py"}));
}

TEST(OptionSet, TheNameOfAnotherProgramsOptionMayBeginWithDashes) {
  ParsedOptions program;
  std::string option;
  program.set.add_option_name("their-option", "An option", &option);
  program.parse({"a", "--their-option", "--batch-size", "--loud"});
  EXPECT_EQ(option, "--batch-size");
  EXPECT_TRUE(program.loud);
  program.parse({"a", "--their-option", "batch="});
  EXPECT_EQ(option, "batch=");
}

TEST(OptionSet, ASwitchTakesNoArgument) {
  ParsedOptions program;
  program.parse({"--loud", "a"});
  EXPECT_TRUE(program.loud);
  EXPECT_EQ(program.files, Words{"a"});
  ParsedOptions other;
  other.parse({"--loud", "--loud=false", "a", "--name", "x", "b"});
  EXPECT_FALSE(other.loud);
  EXPECT_EQ(other.files, (Words{"a", "b"}));
}

TEST(OptionSet, AValueThatIsMissingBehindItsNameIsNotTheNextWord) {
  for (const char* empty : {"--name=", "--tints="}) {
    ParsedOptions program;
    EXPECT_THROW(program.parse({"in", empty, "--loud"}), InvalidArgument) << empty;
  }
}

TEST(OptionSet, WordsReproduceTheOptions) {
  ParsedOptions program;
  program.parse({"a", "--tints", "red", "green", "--name", "x \"y\" \\", "--loud"});
  EXPECT_EQ(program.set.words(OptionSet::Words::kChanged),
            (Words{"--tints", "red", "green", "--name", "x \"y\" \\", "--loud"}));
  ParsedOptions other;
  EXPECT_TRUE(other.set.words(OptionSet::Words::kChanged).empty());
  EXPECT_EQ(other.set.words(OptionSet::Words::kAll), (Words{"--name", "none", "--loud=false"}));
}

TEST(OptionSet, RequiresArguments) {
  ParsedOptions program;
  EXPECT_THROW(program.parse({"--loud"}), InvalidArgument);
}

TEST(OptionSet, ReadsListsFromFilesAndTheEnvironmentAsWords) {
  const ScratchFolder folder;
  const std::string config = folder.write("c.toml", "tints = \"red  green\"\n");
  ParsedOptions program;
  program.parse({"a", "--config", config.c_str()});
  EXPECT_EQ(program.tints, (Words{"red", "green"}));

  setenv("HEADROOM_TINTS", "blue", 1);
  ParsedOptions other;
  other.parse({"a", "--config", config.c_str()});
  EXPECT_EQ(other.tints, Words{"blue"});  // replaces the file's value
  ParsedOptions last;
  std::ostringstream out;
  EXPECT_FALSE(last.parse({"a", "--tints", "white", "black", "--print-config"}, out));
  unsetenv("HEADROOM_TINTS");
  EXPECT_EQ(last.tints, (Words{"white", "black"}));
  EXPECT_NE(out.str().find("tints = \"white black\""), std::string::npos) << out.str();
}

TEST(OptionSet, TheShortHelpExplainsArgumentsOwnAndChosenOptionsAndNamesTheOthers) {
  OptionSet set("program", "A program.");
  std::string own = "a", other = "b", device = "c";
  std::vector<std::string> files;
  set.add_arguments("FILE", "Files to read", &files, false);
  set.begin_group("Machine");
  set.add_text("other", "Of all programs", &other);
  set.add_text("device", "GPU to use", &device);
  set.begin_group();
  set.add_text("own", "Of this program", &own);
  set.explain_in_short({"device"});
  set.set_examples("  program a.txt   the first file\n");
  std::ostringstream brief, whole;
  const char* ask_brief[] = {"program", "-h"};
  const char* ask_whole[] = {"program", "--help"};
  EXPECT_FALSE(set.parse(2, ask_brief, brief));
  EXPECT_FALSE(set.parse(2, ask_whole, whole));
  EXPECT_NE(brief.str().find("Of this program"), std::string::npos);
  EXPECT_NE(brief.str().find("GPU to use"), std::string::npos);
  EXPECT_NE(brief.str().find("Files to read"), std::string::npos);
  EXPECT_NE(brief.str().find("\n  program a.txt   # the first file\n"), std::string::npos) << brief.str();
  EXPECT_EQ(brief.str().find("Of all programs"), std::string::npos);
  EXPECT_NE(brief.str().find("--other"), std::string::npos);
  EXPECT_LT(whole.str().find("\nOptions:\n  --own TEXT"), whole.str().find("\nMachine:\n  --other TEXT"));
}

TEST(OptionSet, TheShortHelpForAKindOfArgumentHasWhatDoesSomethingForIt) {
  const auto help_for = [](std::vector<const char*> words) {
    OptionSet set("program", "A program.");
    std::string own = "a", other = "b", device = "c";
    std::vector<std::string> files;
    set.add_arguments("FILE", "Files to read", &files, false);
    set.take_command();
    set.begin_group("Machine");
    set.add_text("other", "Of all programs", &other);
    set.add_text("device", "GPU to use", &device);
    set.begin_group();
    set.add_text("own", "Of this program", &own);
    set.explain_kind(
        {"a command", [](const std::string& text) { return text.starts_with("-- "); }, {{"device", ""}}});
    set.explain_kind({"a text",
                      [](const std::string& text) { return text.ends_with(".txt"); },
                      {{"device", "GPU of the text (default: none)"}}});
    words.insert(words.begin(), "program");
    std::ostringstream out;
    EXPECT_FALSE(set.parse(static_cast<int>(words.size()), words.data(), out));
    return out.str();
  };
  const std::string text = help_for({"-h", "a.txt"}), command = help_for({"-h", "--", "python", "a.txt"});
  EXPECT_NE(
      text.find("\nOptions for a text:\n  --device TEXT               GPU of the text (default: none)\n"),
      std::string::npos)
      << text;
  EXPECT_NE(command.find("\nOptions for a command:\n  --device TEXT=\"c\"           GPU to use\n"),
            std::string::npos)
      << command;
  for (const std::string& help : {text, command}) {
    EXPECT_NE(help.find("Of this program"), std::string::npos);
    EXPECT_EQ(help.find("--other"), std::string::npos);
  }
  EXPECT_EQ(help_for({"-h", "a.csv"}), help_for({"-h"}));
  EXPECT_NE(help_for({"-h"}).find("--other"), std::string::npos);
}

TEST(OptionSet, OneFileServesAllProgramsAndAMisspelledKeyNone) {
  const ScratchFolder folder;
  const std::string shared = folder.write("shared.toml", "name = \"x\"\nmax-peak = \"2GiB\"\n");
  ParsedOptions program;
  program.parse({"a", "--config", shared.c_str()});
  EXPECT_EQ(program.name, "x");
  const std::string wrong = folder.write("wrong.toml", "name = \"x\"\nmax-paek = \"2GiB\"\n");
  try {
    program.parse({"a", "--config", wrong.c_str()});
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.what(), wrong + ":2: unknown key 'max-paek'; did you mean 'max-peak'?");
  }
}

TEST(OptionSet, ColorsAreNoPartOfWhatAProgramDoes) {
  ParsedOptions program;
  program.parse({"a", "--color", "always"});
  EXPECT_TRUE(program.set.terminal().colors());
  EXPECT_TRUE(program.set.words(OptionSet::Words::kChanged).empty());
  program.parse({"a", "--color", "never"});
  EXPECT_FALSE(program.set.terminal().colors());
}

}  // namespace
}  // namespace headroom
