// Other programs as child processes, and the place of this one. Knows no option and no workload.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// The path of this program, and of another program in its folder.
std::string own_path();
std::string path_of_sibling(std::string_view program);

// The file that a command's first word means, by PATH; empty when there is none.
std::string find_program(const std::string& word);

// The status of a process that ended, and its output.
struct ChildResult {
  int status;  // from waitpid
  std::string out, errors;
};
// Starts a program that dies with this process, with these files as its stdin, stdout and stderr, and returns
// the child's id. Throws Error when it cannot be started.
int start_child(const std::string& program, const std::vector<std::string>& words,
                const std::array<int, 3>& files);
// Receives each line as soon as it is written, on another thread.
using OnLine = std::function<void(std::string_view line)>;
// Time without computation until a program is considered to hang.
inline constexpr std::chrono::milliseconds kPatience = std::chrono::minutes(2);
// Formats the message about an idle program, one line.
std::string idle_text(const std::string& program, std::chrono::milliseconds patience);
// Runs a program that dies with this process. Throws Error when it cannot be started, and with a patience
// when it hangs.
ChildResult run_child(const std::string& program, const std::vector<std::string>& words,
                      const OnLine& on_error_line = {},
                      std::optional<std::chrono::milliseconds> patience = {});
// The last line of its stderr, which is the command's error, without the command's name.
std::string error_of(const ChildResult& child);

// Replaces this process by that program. Throws Error when it cannot.
[[noreturn]] void become(const std::string& program, char** argv);

}  // namespace headroom
