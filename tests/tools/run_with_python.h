// Commands that trace a program of PyTorch, which is not there in tests: a shell script stands for Python.
#pragma once

#include <sys/stat.h>

#include <string>

#include "tests/run_shell.h"

namespace headroom {

// Runs the command with its arguments in the folder; `script` replaces Python.
inline Outcome run_with_python(const ScratchFolder& folder, const std::string& script,
                               const std::string& arguments) {
  const std::string python = folder.write("python", "#!/bin/sh\n" + script);
  chmod(python.c_str(), 0700);
  return run_shell(
      folder, "cd " + folder.path() + " && HEADROOM_PYTHON=" + python + " " HEADROOM_COMMAND " " + arguments);
}

}  // namespace headroom
