#include "tools/run/launch.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

constexpr size_t kTailBytes = size_t{64} << 10;

volatile pid_t running = 0;
volatile int terminal_end = -1;

// Passes on what was sent to this process alone; what a terminal sends goes to the child by itself.
void pass_on(int signal, siginfo_t* facts, void*) {
  if (running > 0 && facts->si_code <= 0) kill(running, signal);
}

void follow_size(int) {
  winsize size{};
  if (terminal_end >= 0 && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0)
    ioctl(terminal_end, TIOCSWINSZ, &size);
}

constexpr int kPassedOn[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

class PassedOnSignals {
 public:
  PassedOnSignals() {
    struct sigaction action {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (size_t i = 0; i < before_.size(); ++i) {
      sigaction(kPassedOn[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(kPassedOn[i], &action, nullptr);
    }
    struct sigaction size {};
    size.sa_handler = follow_size;
    size.sa_flags = SA_RESTART;
    sigaction(SIGWINCH, &size, nullptr);
  }
  // In the child: as this process was started.
  void restore() const {
    for (size_t i = 0; i < before_.size(); ++i) {
      if (before_[i].sa_handler != SIG_IGN) signal(kPassedOn[i], SIG_DFL);
    }
    for (const int other : {SIGWINCH, SIGXFSZ, SIGPIPE}) signal(other, SIG_DFL);
  }

 private:
  std::array<struct sigaction, 6> before_{};
};

// The end that the child writes and the end that we read: a terminal if stderr is one, else a pipe.
struct Channel {
  int read = -1, write = -1;
};
Channel open_channel() {
  Channel channel;
  if (isatty(STDERR_FILENO) != 0) {
    const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0) {
      std::array<char, 128> name{};
      if (ptsname_r(master, name.data(), name.size()) == 0) {
        channel = {master, open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC)};
      }
    }
    if (channel.write >= 0) {
      termios settings{};
      tcgetattr(channel.write, &settings);
      cfmakeraw(&settings);  // the real terminal does all of it
      tcsetattr(channel.write, TCSANOW, &settings);
      terminal_end = channel.read;
      follow_size(0);
      return channel;
    }
  }
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw Error(fmt::format("cannot make a pipe: {}", strerror(errno)));
  return {ends[0], ends[1]};
}

bool write_all(const char* at, size_t bytes) {
  while (bytes > 0) {
    const ssize_t done = write(STDERR_FILENO, at, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    bytes -= static_cast<size_t>(done);
  }
  return true;
}

// Copies to stderr until nothing comes for `wait` ms. False at the end of the file.
bool copy_errors(int from, std::string& tail, int wait) {
  std::array<char, 65536> chunk;
  for (;;) {
    pollfd ready{from, POLLIN, 0};
    const int found = poll(&ready, 1, wait);
    if (found == 0) return true;
    if (found < 0 && errno == EINTR) continue;
    const ssize_t got = read(from, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    write_all(chunk.data(), static_cast<size_t>(got));
    tail.append(chunk.data(), static_cast<size_t>(got));
    if (tail.size() > 2 * kTailBytes) tail.erase(0, tail.size() - kTailBytes);
  }
}

bool writes_same_file(int a, int b) {
  struct stat first {
  }, second{};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

Ended launch(const std::vector<std::string>& words,
             const std::vector<std::pair<std::string, std::string>>& variables,
             const std::string& processes_file) {
  std::vector<std::string> texts;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    bool is_replaced = false;
    for (const auto& [name, value] : variables) is_replaced |= entry.starts_with(name + "=");
    if (!is_replaced) texts.emplace_back(entry);
  }
  for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
  std::vector<char*> environment, arguments;
  for (std::string& text : texts) environment.push_back(text.data());
  environment.push_back(nullptr);
  std::vector<std::string> own = words;
  for (std::string& word : own) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  const Channel channel = open_channel();
  const bool both = terminal_end < 0 && writes_same_file(STDOUT_FILENO, STDERR_FILENO);  // keeps their order
  const PassedOnSignals signals;
  volatile int why = 0;  // the child writes it
  const auto begin = [&, output = both ? channel.write : STDOUT_FILENO] {
    signals.restore();
    if (!processes_file.empty()) {
      const int file = open(processes_file.c_str(), O_WRONLY | O_CLOEXEC);
      [[maybe_unused]] const ssize_t joined = write(file, "0", 1);
    }
    dup2(channel.write, STDERR_FILENO);
    dup2(output, STDOUT_FILENO);
    execvpe(arguments[0], arguments.data(), environment.data());
    why = errno;
  };
  // Until `begin` has begun the program it shares our memory, and we wait: fork would copy the page tables, a
  // millisecond of every start.
  const pid_t process = vfork();
  if (process == 0) {
    begin();
    _exit(127);
  }
  close(channel.write);
  if (process < 0) throw Error(fmt::format("cannot start a process: {}", strerror(errno)));
  running = process;
  if (why != 0) {
    waitpid(process, nullptr, 0);
    throw InvalidArgument(fmt::format("cannot run {}: {}", printable(words[0], 200), strerror(why)));
  }

  // Reading stops when the child has ended: a process that outlives it may keep the other end open.
  Ended ended;
  const int ends = static_cast<int>(syscall(SYS_pidfd_open, process, 0));  // -1 before Linux 5.3
  bool is_open = true;
  for (pid_t ended_process = 0; ended_process != process;) {
    std::array<pollfd, 2> ready{{{channel.read, POLLIN, 0}, {ends, POLLIN, 0}}};
    if (is_open) poll(ready.data(), ready.size(), ends < 0 ? 20 : -1);
    if (is_open) is_open = copy_errors(channel.read, ended.errors, 0);
    ended_process = waitpid(process, &ended.status, is_open ? WNOHANG : 0);
  }
  close(ends);
  running = 0;
  if (is_open) is_open = copy_errors(channel.read, ended.errors, 0);
  if (is_open && fork() == 0) {  // goes on for those that outlive it
    setsid();
    std::string tail;
    while (copy_errors(channel.read, tail, -1)) {
    }
    _exit(0);
  }
  close(channel.read);
  return ended;
}

void end_like(int status) {
  if (WIFSIGNALED(status)) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);  // the core is the child's
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

std::string why_not_preloaded(const std::string& file) {
  struct stat facts {};
  if (stat(file.c_str(), &facts) != 0) return {};
  if ((facts.st_mode & S_ISUID) != 0 && facts.st_uid != geteuid())
    return "it runs with the rights of another user";
  std::ifstream input(file, std::ios::binary);
  Elf64_Ehdr header{};
  if (!input.read(reinterpret_cast<char*>(&header), sizeof header)) return {};
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return {};
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    input.seekg(static_cast<std::streamoff>(header.e_phoff + static_cast<Elf64_Off>(i) * header.e_phentsize));
    if (!input.read(reinterpret_cast<char*>(&part), sizeof part)) return {};
    if (part.p_type == PT_INTERP) return {};
  }
  return "it is linked statically";
}

}  // namespace headroom
