#include "tools/trace/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/errors.h"
#include "base/process/process.h"
#include "base/text.h"

namespace headroom {
namespace {

constexpr std::string_view kDashes = "-- ";

bool can_run(const std::string& path) {
  return access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path);
}

// The Python that has the package where the input names none: that of the environment in which this command
// was installed, or the first in PATH.
std::string usual_python() {
  if (const std::string sibling = path_of_sibling("python3"); can_run(sibling)) return sibling;
  if (const std::string found = find_program("python3"); !found.empty()) return found;
  throw Error("no python3 in PATH: a program is traced by the Python that has PyTorch; set HEADROOM_PYTHON");
}

bool is_python(std::string_view word) {
  const std::string_view name = word.substr(word.rfind('/') + 1);
  constexpr std::string_view kPython = "python";
  return name.starts_with(kPython) && std::all_of(name.begin() + kPython.size(), name.end(), [](char c) {
           return c == '.' || std::isdigit(static_cast<unsigned char>(c)) != 0;
         });
}

bool is_file_of_python(std::string_view word) {
  return word.ends_with(".py") || word.ends_with(".ipynb");
}

bool is_launcher(std::string_view word) {
  constexpr std::array<std::string_view, 3> kLaunchers = {"torchrun", "accelerate", "deepspeed"};
  const std::string_view name = word.substr(word.rfind('/') + 1);
  return std::ranges::find(kLaunchers, name) != kLaunchers.end();
}

// The Python that a script begins with, "#!/usr/bin/python3" or "#!/usr/bin/env python3"; empty for others.
std::string python_of_script(const std::string& file) {
  std::ifstream input(file, std::ios::binary);
  std::string line, text;
  if (!std::getline(input, line) || !line.starts_with("#!")) return {};
  text = line.substr(2);
  // pip writes paths that are too long for the kernel into a second line, '''exec' /path/python "$0" "$@"
  if (line.starts_with("#!/bin/sh") && std::getline(input, line)) text = line;
  std::string word;
  for (const char c : text + ' ') {
    const bool ends = c == ' ' || c == '\'' || c == '"' || c == '\r';
    if (!ends) word += c;
    if (ends && is_python(word)) return find_program(word);
    if (ends) word.clear();
  }
  return {};
}

std::string known_program(const std::string& word) {
  const std::string file = find_program(word);
  if (file.empty())
    throw InvalidArgument(fmt::format("cannot run {}: no such command", printable(word, 200)));
  return file;
}

Python python_of_command(std::vector<std::string> words) {
  // The words before are run as they are: "uv run", "env NAME=VALUE", "nice".
  const auto program = std::ranges::find_if(words, [](const std::string& word) {
    return is_python(word) || is_launcher(word) || is_file_of_python(word);
  });
  if (program == words.end() || program == words.begin()) {
    const std::string& first = words.front();
    if (program != words.end() && is_file_of_python(first)) return {usual_python(), {}, std::move(words)};
    const std::string file = known_program(first);
    if (is_python(first)) return {file, {}, std::move(words)};
    const std::string python = python_of_script(file);
    if (python.empty()) {
      throw InvalidArgument(fmt::format(
          "{} is not a program of Python: give the command of Python that it runs, as -- python train.py",
          printable(first, 200)));
    }
    return {python, {}, std::move(words)};
  }
  Python python;
  const bool sets_variables = words.front().find('=') != std::string::npos;
  python.file = known_program(sets_variables ? "env" : words.front());
  python.words.assign(words.begin() + (sets_variables ? 0 : 1), program);
  python.words.push_back(is_python(*program) ? *program : "python");
  python.traced.assign(program, words.end());
  return python;
}

}  // namespace

bool is_command(std::string_view input) {
  return input.starts_with(kDashes);
}

std::string input_title(const std::string& input) {
  return is_command(input) ? input.substr(kDashes.size()) : input;
}

std::string command_on(std::string_view command, const std::string& input,
                       std::span<const std::string> options) {
  if (is_command(input)) return command_line(command, options) + " " + input;
  return command_line(fmt::format("{} {}", command, shell_word(input)), options);
}

Python python_of(const std::string& input) {
  std::vector<std::string> words =
      is_command(input) ? shell_words(input_title(input)) : std::vector<std::string>();
  if (is_command(input) && words.empty())
    throw InvalidArgument("no command after --; give one, as -- python train.py");
  if (const char* chosen = std::getenv("HEADROOM_PYTHON"); chosen != nullptr && *chosen != '\0') {
    return {chosen, {}, std::move(words)};
  }
  return words.empty() ? Python{usual_python()} : python_of_command(std::move(words));
}

}  // namespace headroom
