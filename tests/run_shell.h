// Runs a program in a shell, as a user does: its exit code and its output.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "base/files.h"
#include "tests/scratch_folder.h"

namespace headroom {

struct Outcome {
  int code;  // -1: ended by a signal
  std::string out, errors;
};

// Runs `command`, which may redirect, with empty standard input; its files go to `folder`.
inline Outcome run_shell(const ScratchFolder& folder, const std::string& command) {
  const std::string errors = folder / "stderr";
  FILE* pipe = popen(("exec 2>" + errors + " </dev/null; " + command).c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::string out;
  std::array<char, 4096> chunk;
  for (size_t got; (got = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) out.append(chunk.data(), got);
  const int status = pclose(pipe);
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, out, read_file(errors, 1 << 20)};
  std::filesystem::remove(errors);
  return outcome;
}

}  // namespace headroom
