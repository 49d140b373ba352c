// A connection between two ranks for messages about their state, apart from the data they compute. Knows no
// MPI.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collective/collective.h"

namespace headroom {

enum class RankMessageKind : int32_t {
  kHello,        // value: the rank that connects; text: the token of the job
  kName,         // text: the rank's name for messages
  kHeartbeat,    // sent at intervals
  kDone,         // the rank has finished its work and may end
  kSignal,       // the rank got the signal `value`
  kClaimReport,  // the rank has failed and wants to report why
  kGrantReport,  // it may
  kEnd,          // all ranks must end with the exit code `value`
};

struct RankMessage {
  RankMessageKind kind = RankMessageKind::kHeartbeat;
  int32_t value = 0;
  std::string text = {};
};

// Closed when destroyed. Neither end ever waits for the other to read.
class RankLink {
 public:
  RankLink() = default;
  explicit RankLink(int socket);
  ~RankLink();
  RankLink(RankLink&& other) noexcept;
  RankLink& operator=(RankLink&& other) noexcept;

  // A link to a port of a host. Throws InvalidArgument when nothing answers there within `timeout`.
  static RankLink connect(const std::string& host, int port, std::chrono::milliseconds timeout);

  int socket() const { return socket_; }
  bool is_open() const { return socket_ >= 0; }
  // Does nothing when the other end is gone; is_open() is false after the next receive().
  void send(const RankMessage& message) noexcept;
  // The messages that have arrived. The link closes after the last one of an end that is gone.
  std::vector<RankMessage> receive();
  // Stops sending and returns once the other end is gone, or at `until`. Closing earlier, with unread
  // messages, would discard sent ones that have not arrived.
  void finish(std::chrono::steady_clock::time_point until) noexcept;

 private:
  void close_now() noexcept;

  int socket_ = -1;
  std::string received_;  // incomplete message
};

// Accepts links on any free port, for this host only or for others too.
class RankListener {
 public:
  // Throws InvalidArgument when no port can be opened.
  explicit RankListener(bool this_host_only);
  ~RankListener();
  RankListener(const RankListener&) = delete;
  RankListener& operator=(const RankListener&) = delete;

  int port() const { return port_; }
  // Returns the next link, or nullopt if no rank connects within `timeout`.
  std::optional<RankLink> accept(std::chrono::milliseconds timeout);

 private:
  int socket_ = -1;
  int port_ = 0;
};

// By rank from 1 to `ranks` - 1, the links of those that connect and know the token. Anyone else is closed:
// who sends anything but a hello, or nothing for some seconds. Throws InvalidArgument when not all have come
// within `timeout`.
std::vector<RankLink> accept_ranks(RankListener& listener, const std::string& token, int ranks,
                                   std::chrono::milliseconds timeout);

// The links of this rank, by rank: rank 0 has one to each other rank, the others have one to rank 0, and the
// rest are closed. All ranks of `group` must call it together; `host` is this rank's. Throws InvalidArgument
// when a link cannot be made within `timeout`, CollectiveError as `group` does.
std::vector<RankLink> link_ranks(Collective& group, const std::string& host,
                                 std::chrono::milliseconds timeout);

}  // namespace headroom
