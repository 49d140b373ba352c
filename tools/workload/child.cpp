#include "tools/workload/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

#include "runtime/core/errors.h"

namespace headroom {
namespace {

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) throw Error(fmt::format("pipe: {}", std::strerror(errno)));
  }
  ~Pipe() {
    close(ends_[0]);
    close_write_end();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int write_end() const { return ends_[1]; }
  void close_write_end() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  std::string read_all() const {
    std::string text;
    std::array<char, 4096> chunk;
    for (;;) {
      const ssize_t got = read(ends_[0], chunk.data(), chunk.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return text;
      text.append(chunk.data(), static_cast<size_t>(got));
    }
  }

 private:
  std::array<int, 2> ends_{};
};

}  // namespace

ChildResult run_child(const std::string& program, const std::vector<std::string>& words) {
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  Pipe out, errors;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.write_end(), STDERR_FILENO);
  pid_t child = 0;
  const int failure = posix_spawn(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) throw Error(fmt::format("{}: {}", program, std::strerror(failure)));
  out.close_write_end();
  errors.close_write_end();
  ChildResult ended{};
  std::thread reader([&] { ended.errors = errors.read_all(); });  // a full pipe would stop the child
  ended.out = out.read_all();
  reader.join();
  while (waitpid(child, &ended.status, 0) < 0 && errno == EINTR) {
  }
  return ended;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

std::string sibling_path(std::string_view program) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / program).string();
}

std::string runner_path() {
  return sibling_path("headroom_run");
}

void become(const std::string& program, char** argv) {
  execv(program.c_str(), argv);
  throw Error(fmt::format("{}: {}", program, std::strerror(errno)));
}

Measurement measure_in_child(const std::vector<std::string>& words) {
  std::vector<std::string> arguments = words;
  arguments.push_back("--json");
  const ChildResult ended = run_child(runner_path(), arguments);
  if (WIFSIGNALED(ended.status)) {
    return {.outcome = "killed",
            .error = fmt::format("ended by signal {} ({})", WTERMSIG(ended.status),
                                 strsignal(WTERMSIG(ended.status)))};
  }
  const int code = WEXITSTATUS(ended.status);
  if (code == kExitBadInput) throw InvalidArgument(last_line(ended.errors));
  if (code != kExitDone && code != kExitOutOfMemory && code != kExitLibraryFailure) {
    return {.outcome = "failed", .error = last_line(ended.errors)};
  }
  return parse_measurement(ended.out);
}

}  // namespace headroom
