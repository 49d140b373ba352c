#include "base/process/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/errors.h"
#include "base/process/idle_watch.h"

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
  // `await` is called before each read with the end that is read.
  std::string read_all(const OnLine& on_line = {}, const std::function<void(int)>& await = {}) const {
    std::string text;
    size_t told = 0;  // lines up to here
    std::array<char, 4096> chunk;
    for (;;) {
      if (await) await(ends_[0]);
      const ssize_t got = read(ends_[0], chunk.data(), chunk.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return text;
      text.append(chunk.data(), static_cast<size_t>(got));
      if (!on_line) continue;
      for (size_t end = 0; (end = text.find('\n', told)) != std::string::npos; told = end + 1)
        on_line(std::string_view(text).substr(told, end - told));
    }
  }

 private:
  std::array<int, 2> ends_{};
};

}  // namespace

int start_child(const std::string& program, const std::vector<std::string>& words,
                const std::array<int, 3>& files) {
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  Pipe start;  // closed by a program that starts
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw Error(fmt::format("{}: {}", program, std::strerror(errno)));
  if (child == 0) {
    // If this process is killed, the child must not continue a long run without a reader.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && dup2(files[0], STDIN_FILENO) >= 0 && dup2(files[1], STDOUT_FILENO) >= 0 &&
        dup2(files[2], STDERR_FILENO) >= 0) {
      execvp(program.c_str(), arguments.data());
    }
    const int failure = errno;
    [[maybe_unused]] const ssize_t told = write(start.write_end(), &failure, sizeof failure);
    _exit(kExitOther);
  }
  start.close_write_end();
  if (const std::string failure = start.read_all(); !failure.empty()) {
    waitpid(child, nullptr, 0);
    int number = 0;
    std::memcpy(&number, failure.data(), std::min(sizeof number, failure.size()));
    throw Error(fmt::format("{}: {}", program, std::strerror(number)));
  }
  return child;
}

std::string idle_text(const std::string& program, std::chrono::milliseconds patience) {
  return fmt::format("{} has computed nothing for {} s: it waits for a network, a lock or another process",
                     program, std::chrono::duration<double>(patience).count());
}

ChildResult run_child(const std::string& program, const std::vector<std::string>& words,
                      const OnLine& on_error_line, std::optional<std::chrono::milliseconds> patience) {
  Pipe out, errors;
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  int child = -1;
  try {
    child = start_child(program, words, {nothing, out.write_end(), errors.write_end()});
  } catch (const Error&) {
    close(nothing);
    throw;
  }
  close(nothing);
  out.close_write_end();
  errors.close_write_end();
  ChildResult ended{};
  std::thread reader(
      [&] { ended.errors = errors.read_all(on_error_line); });  // a full pipe would stop the child
  bool hangs = false;
  const auto await = [&](int file) {
    if (!patience || hangs) return;
    hangs = !can_read(file, child, *patience);
    if (hangs) kill(child, SIGKILL);
  };
  ended.out = out.read_all({}, await);
  reader.join();
  while (waitpid(child, &ended.status, 0) < 0 && errno == EINTR) {
  }
  if (hangs) throw Error(idle_text(program, *patience));
  return ended;
}

std::string error_of(const ChildResult& child) {
  std::string_view text = child.errors;
  while (text.ends_with('\n')) text.remove_suffix(1);
  text.remove_prefix(text.rfind('\n') + 1);
  constexpr std::string_view kName = "headroom: ";
  if (text.starts_with(kName)) text.remove_prefix(kName.size());
  return std::string(text);
}

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::string path_of_sibling(std::string_view program) {
  return (std::filesystem::path(own_path()).parent_path() / program).string();
}

std::string find_program(const std::string& word) {
  if (word.find('/') != std::string::npos) return access(word.c_str(), F_OK) == 0 ? word : "";
  const char* path = std::getenv("PATH");
  std::string_view left = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  for (;;) {
    const size_t end = left.find(':');
    const std::string folder(left.substr(0, end));
    std::string file = (folder.empty() ? "." : folder) + "/" + word;
    if (access(file.c_str(), X_OK) == 0) return file;
    if (end == std::string_view::npos) return {};
    left.remove_prefix(end + 1);
  }
}

void become(const std::string& program, char** argv) {
  execv(program.c_str(), argv);
  throw Error(fmt::format("{}: {}", program, std::strerror(errno)));
}

}  // namespace headroom
