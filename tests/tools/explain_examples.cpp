#include "tests/tools/explain_examples.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <sstream>

#include "base/files.h"
#include "tools/explain/log_reader.h"

namespace headroom::explain {
namespace {

const std::string kFolder = HEADROOM_SOURCE_DIR "/tests/tools/explain/";
const std::string kRules = HEADROOM_SOURCE_DIR "/tools/explain/rules/";
constexpr int64_t kMostBytes = 1 << 20;

void read_header(Example& example, const std::string& line) {
  const size_t colon = line.find(": ");
  const std::string key = line.substr(0, colon),
                    value = colon == std::string::npos ? "" : line.substr(colon + 2);
  if (key == "from")
    example.from = value;
  else if (key == "adapted")
    example.adapted = value;
  else if (key == "figures")
    example.figures = value;
  else if (key == "cause")
    example.cause = value;
  else if (key == "framework")
    example.framework = value;
  else if (key == "next")
    example.next = value;
  else if (key == "says")
    example.says.push_back(value);
  else if (key == "never")
    example.never.push_back(value);
  else if (key == "file")
    example.log = read_file(kFolder + value, kMostBytes);
  else
    ADD_FAILURE() << example.name << ": no such key: " << line;
}

std::vector<Example> read_examples() {
  std::vector<std::string> paths = {kFolder + "messy.txt"};
  for (const auto& entry : std::filesystem::directory_iterator(kRules))
    paths.push_back(entry.path().string());
  std::vector<Example> all;
  for (const std::string& path : paths) {
    std::istringstream lines(read_file(path, kMostBytes));
    bool in_header = true, in_rules = true;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("=== ")) {
        all.emplace_back().name = line.substr(4);
        in_header = true;
        in_rules = false;
      } else if (in_rules) {
        continue;
      } else if (in_header && line == "---") {
        in_header = false;
      } else if (in_header) {
        read_header(all.back(), line);
      } else {
        all.back().log += line + "\n";
      }
    }
  }
  return all;
}

}  // namespace

const std::vector<Example>& examples() {
  static const std::vector<Example> all = read_examples();
  return all;
}

std::string log_of(std::string_view name) {
  for (const Example& example : examples()) {
    if (example.name == name) return example.log;
  }
  ADD_FAILURE() << "no example " << name;
  return {};
}

Explanation explain_text(std::string_view text) {
  return explain(read_log(text));
}

std::string steps_of(const Explanation& explanation) {
  std::string text;
  for (const Advice& advice : explanation.next) text += advice.command + "\n" + advice.why + "\n";
  return text;
}

std::string words_of(const Explanation& explanation) {
  std::string text = explanation.judgment.reason + "\n";
  for (const auto* list : {&explanation.judgment.possible, &explanation.judgment.other_ways}) {
    for (const Possibility& other : *list) {
      text += std::string(name_of(other.cause)) + ": " + other.reason + "\n" + other.confirm + "\n";
    }
  }
  return text + steps_of(explanation);
}

}  // namespace headroom::explain
