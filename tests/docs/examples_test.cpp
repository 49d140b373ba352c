// Runs the examples of the documentation and compares their output. Numbers are ignored: they are times, or
// depend on the machine.

#include <gtest/gtest.h>
#include <regex.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/run_shell.h"

namespace headroom {
namespace {

using Lines = std::vector<std::string>;

struct Example {
  size_t line = 0;  // line of the page
  std::string command;
  Lines output;
};

constexpr std::string_view kIndent = "    ", kPrompt = "    $ ", kElision = "...";

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Returns the code blocks that begin with "$ " and a command, which continues in the next line after a '\'.
std::vector<Example> read_examples(const std::string& page) {
  std::vector<Example> examples;
  bool inside = false;
  const Lines lines = lines_of(read_file(page, 1 << 20));
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with(kPrompt)) {
      examples.push_back({i + 1, lines[i].substr(kPrompt.size()), {}});
      std::string& command = examples.back().command;
      while (command.ends_with('\\') && i + 1 < lines.size()) {
        command.back() = ' ';
        command += lines[++i];
      }
      inside = true;
    } else if (inside && (lines[i].empty() || lines[i].starts_with(kIndent))) {
      examples.back().output.push_back(lines[i].substr(std::min(lines[i].size(), kIndent.size())));
    } else {
      inside = false;
    }
  }
  return examples;
}

// An extended expression of POSIX; <regex> takes seconds to compile.
class Pattern {
 public:
  explicit Pattern(const char* expression) { EXPECT_EQ(regcomp(&compiled_, expression, REG_EXTENDED), 0); }

  std::string replace_in(const std::string& text, const std::string& by) const {
    std::string result;
    size_t from = 0;
    regmatch_t match;
    while (from < text.size() &&
           regexec(&compiled_, text.c_str() + from, 1, &match, from == 0 ? 0 : REG_NOTBOL) == 0) {
      result += text.substr(from, static_cast<size_t>(match.rm_so)) + by;
      from += static_cast<size_t>(match.rm_eo);
    }
    return result + text.substr(from);
  }

 private:
  regex_t compiled_;
};

// An empty cell has a dot or a dash.
std::string without_empty_cells(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = i == 0 || text[i - 1] == ' ', ends = i + 1 == text.size() || text[i + 1] == ' ';
    result += begins && ends && (text[i] == '.' || text[i] == '-') ? " #" : std::string(1, text[i]);
  }
  return result;
}

// Returns a line without the parts that change between runs and machines: numbers, units, charts, the mark of
// Pareto-optimal rows.
std::string shape_of(const std::string& line) {
  static const Pattern best("fastest: [^,]*,"), mark("^[*]"), number("-?[0-9]+([.,][0-9]+)*"),
      hexadecimal("[0-9a-f]{16}"), unit("[KMG]iB"), blanks(" +");
  std::string text = line.find('|') == std::string::npos ? line : "|";
  text = best.replace_in(text, "fastest: #,");
  text = mark.replace_in(text, "");
  text = hexadecimal.replace_in(text, "#");
  text = number.replace_in(without_empty_cells(text), " #");
  text = unit.replace_in(text, " B");
  text = blanks.replace_in(text, " ");
  text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

// The shapes of the lines that are not empty.
Lines shapes_of(const Lines& lines) {
  Lines shapes;
  for (const std::string& line : lines) {
    if (std::string shape = shape_of(line); !shape.empty()) shapes.push_back(std::move(shape));
  }
  return shapes;
}

// Returns the number of written lines, starting at `from`, that make up the printed line, which may be
// wrapped in the page or end in "..."; 0 if they differ from it.
size_t count_written(const Lines& written, size_t from, const std::string& printed) {
  std::string text;
  for (size_t i = from; i < written.size() && text.size() <= printed.size(); ++i) {
    text += (text.empty() ? "" : " ") + written[i];
    if (text == printed) return i - from + 1;
    if (text.ends_with(kElision) && printed.starts_with(text.substr(0, text.size() - kElision.size()))) {
      return i - from + 1;
    }
  }
  return 0;
}

// The first difference, or an empty text. A written line that begins with "..." matches any lines.
std::string first_difference(const Lines& written, const Lines& printed) {
  bool skips = false;
  size_t next = 0;
  for (size_t i = 0; i < written.size();) {
    if (written[i].starts_with(kElision)) {
      skips = true;
      ++i;
      continue;
    }
    size_t count = 0;
    while (next < printed.size() && (count = count_written(written, i, printed[next++])) == 0 && skips) {
    }
    if (count == 0) {
      return "written: " + written[i] + "\nprinted: " + (next == 0 ? "" : printed[next - 1]);
    }
    i += count;
    skips = false;
  }
  return skips || next == printed.size() ? "" : "not written: " + printed[next];
}

// Not commands that need a GPU, several processes, Python, or a file outside the repository.
bool can_run(const std::string& command) {
  const auto names = [&](const char* word) { return command.find(word) != std::string::npos; };
  const bool is_of_python = names("python") || names(".py:") || names(" snapshot.pickle");
  return !is_of_python && !names("cuda") && !names("mpirun") && !names(".csv.gz") && !names("doctor");
}

Outcome run_as_user(const ScratchFolder& folder, const std::string& command) {
  return run_shell(folder, "cd " + folder.path() +
                               " && export PATH=" HEADROOM_FOLDERS
                               ":$PATH && unset TF_FORCE_GPU_ALLOW_GROWTH CUDA_VISIBLE_DEVICES && { " +
                               command + "; } 2>&1");
}

// The commands of ours that the output proposes, without their comments.
Lines next_commands(const std::string& printed) {
  constexpr std::string_view kNext = "next: ";
  Lines commands;
  for (const std::string& line : lines_of(printed)) {
    if (!line.starts_with(kNext)) continue;
    std::string command = line.substr(kNext.size(), line.find("  # ") - kNext.size());
    const bool is_ours = command.starts_with("train_mnist ") || command.starts_with("headroom ");
    const bool is_a_form = command.find("FILE") != std::string::npos;
    if (is_ours && !is_a_form) commands.push_back(std::move(command));
  }
  return commands;
}

bool has_failed(const std::string& printed) {
  const Lines lines = lines_of(printed);
  return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("out_of_memory") || line.starts_with("library_failure") ||
           line.starts_with("does not fit") || line.starts_with("nothing fits") || line.starts_with("no GPU");
  });
}

class Documentation : public testing::TestWithParam<std::string> {};

// Runs commands proposed after a failure, which must succeed, including those that `explain` proposes for a
// log of ours; other proposed commands must be valid.
void follow_next_commands(const ScratchFolder& folder, const std::string& example, const std::string& printed,
                          std::set<std::string>& followed) {
  const bool is_explained = example.starts_with("headroom explain");
  for (const std::string& command : next_commands(printed)) {
    if (!can_run(command) || !followed.insert(command).second) continue;
    const bool is_cure = is_explained ? command.starts_with("train_mnist ") : has_failed(printed);
    const Outcome next = run_as_user(folder, is_cure ? command : command + " --print-config");
    EXPECT_EQ(next.code, 0) << example << "\nnext: " << command << "\n" << next.out;
  }
}

TEST(Tutorial, ShowsTheProgramThatIsCompiled) {
  std::string program;
  for (const std::string& line :
       lines_of(read_file(HEADROOM_SOURCE_DIR "/examples/06_own_net.cpp", 1 << 20))) {
    if (program.empty() && !line.starts_with("#include \"")) continue;
    program += (line.empty() ? "" : std::string(kIndent) + line) + "\n";
  }
  const std::string page = read_file(HEADROOM_SOURCE_DIR "/docs/tutorial.md", 1 << 20);
  EXPECT_NE(page.find(program), std::string::npos);
}

TEST_P(Documentation, ExamplesPrintWhatThePageShowsAndTheirNextCommandsCureFailures) {
  const ScratchFolder folder;
  std::filesystem::create_directory_symlink(HEADROOM_SOURCE_DIR "/tests", folder / "tests");
  std::set<std::string> followed;
  for (const Example& example : read_examples(HEADROOM_SOURCE_DIR "/" + GetParam())) {
    if (!can_run(example.command)) continue;
    const Outcome outcome = run_as_user(folder, example.command);
    EXPECT_EQ(first_difference(shapes_of(example.output), shapes_of(lines_of(outcome.out))), "")
        << GetParam() << ":" << example.line << ": " << example.command << "\n"
        << outcome.errors;
    follow_next_commands(folder, example.command, outcome.out, followed);
  }
}

// The pages that have examples to run.
std::vector<std::string> pages() {
  std::vector<std::string> names{"README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(HEADROOM_SOURCE_DIR "/docs")) {
    if (entry.path().extension() != ".md") continue;
    const std::vector<Example> examples = read_examples(entry.path());
    if (std::any_of(examples.begin(), examples.end(), [](const Example& e) { return can_run(e.command); })) {
      names.push_back("docs/" + entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Pages, Documentation, testing::ValuesIn(pages()), [](const auto& test) {
  std::string name = std::filesystem::path(test.param).stem();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace headroom
