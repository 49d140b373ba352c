// A connection between two ranks for words about their lives, apart from what they compute. Knows no MPI.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headroom {

enum class RankWord : int32_t {
  kHello,       // value: the rank that connects; text: the token of the job
  kName,        // text: what a person calls the rank
  kAlive,       // from time to time
  kDone,        // the rank will end, all is well
  kAskedToEnd,  // the rank was asked to end by the signal `value`
  kAskToSpeak,  // the rank has failed and would say why
  kSpeak,       // it may
  kEnd,         // all ranks are to end with the exit code `value`
};

struct RankMessage {
  RankWord word = RankWord::kAlive;
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

  // To that port of a host by its name. Throws InvalidArgument when nobody answers there within `timeout`.
  static RankLink connect(const std::string& host, int port, std::chrono::milliseconds timeout);

  int socket() const { return socket_; }
  bool is_open() const { return socket_ >= 0; }
  // Nothing happens when the other end is gone: receive() tells.
  void send(const RankMessage& message) noexcept;
  // What has arrived. The link is closed once all that came before the other end went has been given.
  std::vector<RankMessage> receive();
  // Nothing is sent any more; returns once the other end has gone, or at `until`. An end that closes with
  // words unread takes back its own that are on the way.
  void finish(std::chrono::steady_clock::time_point until) noexcept;

 private:
  void close_now() noexcept;

  int socket_ = -1;
  std::string received_;  // of a message that is not there as a whole
};

// Where links are accepted: any free port, of this host alone or open to others.
class RankListener {
 public:
  // Throws InvalidArgument when no port can be opened.
  explicit RankListener(bool this_host_only);
  ~RankListener();
  RankListener(const RankListener&) = delete;
  RankListener& operator=(const RankListener&) = delete;

  int port() const { return port_; }
  // The next link; none when nobody connects within `timeout`.
  std::optional<RankLink> accept(std::chrono::milliseconds timeout);

 private:
  int socket_ = -1;
  int port_ = 0;
};

}  // namespace headroom
