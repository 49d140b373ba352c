// Commands that trace a program of PyTorch, which is not there in tests: a shell script stands for Python.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <sstream>
#include <string>

#include "base/files.h"
#include "tests/run_shell.h"

namespace headroom {

// Returns what the script asked the package for: the lines of its words, which it wrote to the file `words`,
// without what names the package, `-m headroom` or the path of its file.
inline std::string asked_of_package(const ScratchFolder& folder) {
  std::istringstream lines(read_file(folder / "words", 10'000));
  std::string asked;
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("trace ");
    asked += line.substr(at == std::string::npos ? 0 : at) + "\n";
  }
  return asked;
}

// Runs the command with its arguments in the folder; `script` replaces Python.
inline Outcome run_with_python(const ScratchFolder& folder, const std::string& script,
                               const std::string& arguments) {
  const std::string python = folder.write("python", "#!/bin/sh\n" + script);
  chmod(python.c_str(), 0700);
  return run_shell(
      folder, "cd " + folder.path() + " && HEADROOM_PYTHON=" + python + " " HEADROOM_COMMAND " " + arguments);
}

}  // namespace headroom
