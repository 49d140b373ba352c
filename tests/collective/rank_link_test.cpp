// The links between ranks, and strangers that find the port of rank 0.
#include "collective/ranks/rank_link.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong = std::chrono::minutes(1);
const std::string kToken = "the token of the job";

// A connection of a peer that need not follow the protocol.
class RawConnection {
 public:
  explicit RawConnection(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~RawConnection() { close(socket_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // False once the other end has closed.
  bool send(const std::string& bytes) const {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Waits until the other end has closed.
  bool is_closed_by_other() const {
    char byte = 0;
    return recv(socket_, &byte, 1, 0) <= 0;
  }

 private:
  int socket_;
};

std::string message(int32_t kind, int32_t value, int32_t text_bytes, const std::string& text) {
  const int32_t head[] = {kind, value, text_bytes};
  std::string bytes(sizeof head, '\0');
  std::memcpy(bytes.data(), head, sizeof head);
  return bytes + text;
}

std::string hello(int rank, const std::string& token) {
  return message(static_cast<int32_t>(RankMessageKind::kHello), rank, static_cast<int32_t>(token.size()),
                 token);
}

TEST(RankLinks, OnlyWhoKnowsTheTokenIsLinked) {
  RankListener listener(true);
  const std::vector<std::string> strangers = {
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
      hello(1, "another token"),
      hello(1, kToken.substr(1)),
      hello(0, kToken),                              // rank 0 is the listener itself
      hello(3, kToken),                              // there are three ranks
      hello(-1, kToken),                             //
      message(0, 1, -1, ""),                         // sizes that no rank sends
      message(0, 1, 0x7fffffff, kToken),             //
      message(2, 1, 20, kToken) + hello(1, kToken),  // a heartbeat first
      std::string(1 << 16, 'x'),
  };
  RankLink first, second;
  std::thread others([&] {
    for (const std::string& bytes : strangers) {
      const RawConnection stranger(listener.port());
      stranger.send(bytes);
      EXPECT_TRUE(stranger.is_closed_by_other()) << bytes.substr(0, 40);
    }
    second = RankLink::connect("127.0.0.1", listener.port(), kLong);
    second.send({RankMessageKind::kHello, 2, kToken});
    const RawConnection again(listener.port());  // rank 2 is there already
    again.send(hello(2, kToken));
    EXPECT_TRUE(again.is_closed_by_other());
    first = RankLink::connect("127.0.0.1", listener.port(), kLong);
    first.send({RankMessageKind::kHello, 1, kToken});
  });
  const std::vector<RankLink> links = accept_ranks(listener, kToken, 3, kLong);
  others.join();
  ASSERT_EQ(links.size(), 3U);
  EXPECT_FALSE(links[0].is_open());
  EXPECT_TRUE(links[1].is_open() && links[2].is_open());
}

TEST(RankLinks, SilentAndEndlessStrangersHoldUpNoRank) {
  RankListener listener(true);
  std::vector<std::thread> endless;
  // A connection that is never accepted would stay open as long as the listener.
  std::latch connected(4);
  for (int i = 0; i < 4; ++i) {
    endless.emplace_back([&] {
      const RawConnection stranger(listener.port());
      connected.count_down();
      // A hello with the wrong token, but never the end of it.
      while (stranger.send(message(0, 1, 4000, std::string(3000, 'x')))) {
      }
    });
  }
  connected.wait();
  RankLink link;
  std::thread rank([&] {
    std::vector<std::unique_ptr<RawConnection>> silent;
    for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<RawConnection>(listener.port()));
    link = RankLink::connect("127.0.0.1", listener.port(), kLong);
    link.send({RankMessageKind::kHello, 1, kToken});
    EXPECT_TRUE(silent.front()->is_closed_by_other()) << "only some may wait at a time";
  });
  EXPECT_TRUE(accept_ranks(listener, kToken, 2, kLong)[1].is_open());
  rank.join();
  for (std::thread& thread : endless) thread.join();
}

TEST(RankLinks, WithoutARankTheTimeoutIsAnError) {
  RankListener listener(true);
  EXPECT_THROW(accept_ranks(listener, kToken, 2, milliseconds(20)), InvalidArgument);
}

TEST(RankLinks, ALinkReadsABoundedPieceAtATimeAndLosesNothing) {
  RankListener listener(true);
  const RawConnection sender(listener.port());
  std::optional<RankLink> link = listener.accept(kLong);
  ASSERT_TRUE(link);
  constexpr int kMessages = 3000;
  std::thread writer([&] {
    for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(sender.send(message(1, i, 100, std::string(100, 'n'))));
  });
  int next = 0;
  while (next < kMessages) {
    const std::vector<RankMessage> messages = link->receive();
    EXPECT_LE(messages.size(), (size_t{1} << 16) / 112 + 40);
    for (const RankMessage& received : messages) EXPECT_EQ(received.value, next++);
  }
  writer.join();
  EXPECT_TRUE(link->is_open());
}

}  // namespace
}  // namespace headroom
