// A child process that answers each line that it is sent with a line. Knows no program.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/process.h"

namespace headroom {

class Dialogue {
 public:
  // Starts a program that dies with this process; its stderr goes to a file that `end` reads. Throws Error if
  // it cannot be started. `patience` is the time that it may compute nothing before an answer.
  Dialogue(const std::string& program, const std::vector<std::string>& words,
           std::chrono::milliseconds patience = kPatience);
  // Ends the child.
  ~Dialogue();
  Dialogue(const Dialogue&) = delete;
  Dialogue& operator=(const Dialogue&) = delete;

  // Sends a line and waits for its answer, whose line end is left out. False when the child has ended
  // instead. Throws Error when the child is out of patience.
  bool ask(std::string_view line, std::string& answer);
  // Waits for one more line of the answer; as `ask`.
  bool read_line(std::string& answer);
  // Waits for a child that has ended, or will since its stdin does.
  ChildResult end();

 private:
  void close_socket();

  // Waits until there is something to read. Throws as `ask` does.
  void await_answer() const;

  const std::string program_;
  const std::chrono::milliseconds patience_;
  int socket_ = -1;  // to the child's stdin and from its stdout
  int errors_ = -1;  // a file without a name
  int child_ = -1;
  std::string read_ahead_;
};

}  // namespace headroom
