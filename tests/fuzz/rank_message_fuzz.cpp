#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "collective/ranks/rank_link.h"
#include "tests/fuzz/fuzz_target.h"

// Messages that a stranger who found the port, or a broken rank, may send: in two pieces, so that messages
// are cut.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  RankLink link(ends[0]);
  const size_t whole = std::min<size_t>(size, 1 << 16), cut = size == 0 ? 0 : data[0] * whole / 256;
  std::vector<RankMessage> messages;
  const auto pass = [&](const uint8_t* bytes, size_t count) {
    if (send(ends[1], bytes, count, MSG_NOSIGNAL) != static_cast<ssize_t>(count)) return;
    for (RankMessage& message : link.receive()) messages.push_back(std::move(message));
  };
  if (cut > 0) pass(data, cut);
  if (whole > cut) pass(data + cut, whole - cut);
  for (const RankMessage& message : messages) {
    if (message.text.size() > 4096) std::abort();
  }
  // Names of ranks are printed, signals and exit codes are only compared: nothing of a message is an index.
  close(ends[1]);
  link.receive();
  if (link.is_open()) std::abort();
  return 0;
}
