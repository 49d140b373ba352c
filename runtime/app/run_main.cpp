#include "runtime/app/run_main.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "base/ended_by_signal.h"
#include "base/errors.h"
#include "base/lost_output.h"
#include "base/text.h"

namespace headroom {
namespace {

// A file opened later would get the number of a stream that the caller has closed, and with it the output.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open() takes the lowest free number, which is `stream`, as all lower ones are open by now.
    // What is written to the standard output then fails, as on a full disk.
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_RDWR);
  }
}

}  // namespace

void print_failure(const char* name, std::string_view text) {
  // Not by fmt::print, which throws when it cannot write.
  std::fputs(fmt::format("{}: {}\n", name, printable(text)).c_str(), stderr);
}

int run_main(const char* name, int (*run)(int, char**), int argc, char** argv) {
  open_standard_streams();
  // Makes a file that exceeds its size limit an error of the write, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  say_which_signal_ends(name);
  int code = kExitOther;
  try {
    code = run(argc, argv);
  } catch (const std::system_error& error) {
    // fmt's error of a failed write does not name the stream; the flush below reports it.
    if (std::ferror(stdout) == 0) {
      print_failure(name, error.what());
      return exit_code(error);
    }
  } catch (const HostOutOfMemory& error) {
    print_failure(name, error.what());
    return exit_code(error);
  } catch (const std::bad_alloc& error) {
    print_failure(name, "out of memory on the host: a request of this program itself found no room");
    return exit_code(error);
  } catch (const std::exception& error) {
    print_failure(name, error.what());
    return exit_code(error);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    print_failure(name, "the output could not be written to the end");
    if (code == kExitDone) code = kExitOther;
  }
  if (code == kExitDone && is_output_lost()) code = kExitOther;
  return code;
}

}  // namespace headroom
