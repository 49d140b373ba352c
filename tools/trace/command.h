// Commands as inputs, "-- python train.py --lr 1e-4": the words that a person types after `--`, and the
// Python that traces what they run. Knows no trace.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// Returns true for the text of a command, as OptionSet::take_command makes it.
bool is_command(std::string_view input);

// Returns an input as messages name it: a command without the dashes before it.
std::string input_title(const std::string& input);

// The line that runs `command`, "headroom predict", on an input with these options.
std::string command_on(std::string_view command, const std::string& input,
                       std::span<const std::string> options);

// A process of Python: the file to start, and the words before those of the tracer.
struct Python {
  std::string file;
  std::vector<std::string> words = {};
  std::vector<std::string> traced = {};  // the words of the program; empty for a function
  std::string title = {};                // as one starts it: "env NAME=VALUE python"
};

// The Python that traces an input: that of HEADROOM_PYTHON; that of a command, through its "uv run" or "env";
// or the one in this command's folder or in PATH. Throws InvalidArgument for a command that Python does not
// run, and Error where there is no Python.
Python python_of(const std::string& input);

}  // namespace headroom
