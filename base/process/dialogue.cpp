#include "base/process/dialogue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/errors.h"
#include "base/process/idle_watch.h"

namespace headroom {

Dialogue::Dialogue(const std::string& program, const std::vector<std::string>& words,
                   std::chrono::milliseconds patience)
    : program_(program), patience_(patience) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw Error(fmt::format("socketpair: {}", std::strerror(errno)));
  }
  socket_ = ends[0];
  errors_ = memfd_create("errors", MFD_CLOEXEC);
  if (errors_ < 0) {
    const int failure = errno;
    close(ends[0]);
    close(ends[1]);
    throw Error(fmt::format("memfd_create: {}", std::strerror(failure)));
  }
  try {
    child_ = start_child(program, words, {ends[1], ends[1], errors_});
  } catch (const Error&) {
    close(ends[0]);
    close(ends[1]);
    close(errors_);
    throw;
  }
  close(ends[1]);
}

Dialogue::~Dialogue() {
  close_socket();
  if (child_ > 0) {
    kill(child_, SIGKILL);
    while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  close(errors_);
}

void Dialogue::close_socket() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

void Dialogue::await_answer() const {
  if (!can_read(socket_, child_, patience_)) throw Error(idle_text(program_, patience_));
}

bool Dialogue::ask(std::string_view line, std::string& answer) {
  std::string text = std::string(line) + '\n';
  for (size_t sent = 0; sent < text.size();) {
    // If the child has ended, MSG_NOSIGNAL keeps this process alive.
    const ssize_t count = send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return read_line(answer);
}

bool Dialogue::read_line(std::string& answer) {
  std::array<char, 4096> chunk;
  for (;;) {
    if (const size_t end = read_ahead_.find('\n'); end != std::string::npos) {
      answer = read_ahead_.substr(0, end);
      read_ahead_.erase(0, end + 1);
      return true;
    }
    await_answer();
    const ssize_t got = read(socket_, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    read_ahead_.append(chunk.data(), static_cast<size_t>(got));
  }
}

ChildResult Dialogue::end() {
  close_socket();
  ChildResult ended{};
  while (waitpid(child_, &ended.status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  std::array<char, 4096> chunk;
  for (off_t at = 0;;) {
    const ssize_t got = pread(errors_, chunk.data(), chunk.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return ended;
    ended.errors.append(chunk.data(), static_cast<size_t>(got));
    at += got;
  }
}

}  // namespace headroom
