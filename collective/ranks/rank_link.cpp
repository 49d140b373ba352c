#include "collective/ranks/rank_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/errors.h"

namespace headroom {
namespace {

struct Head {
  int32_t kind, value, text_bytes;
};
constexpr int32_t kMaxTextBytes = 4096;
// Maximum bytes read at once from one peer, so that a peer that sends endlessly does not block the others.
constexpr size_t kMaxReceivedBytes = 1 << 16;
constexpr size_t kMaxStrangers = 64;
constexpr std::chrono::seconds kHelloTimeout(5);

int poll_one(int socket, int16_t events, std::chrono::milliseconds timeout) {
  pollfd entry{socket, events, 0};
  return poll(&entry, 1, static_cast<int>(timeout.count()));
}

}  // namespace

RankLink::RankLink(int socket) : socket_(socket) {
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
}

RankLink::~RankLink() {
  close_now();
}

RankLink::RankLink(RankLink&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), received_(std::move(other.received_)) {}

RankLink& RankLink::operator=(RankLink&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(received_, other.received_);
  return *this;
}

void RankLink::close_now() noexcept {
  if (socket_ >= 0) close(std::exchange(socket_, -1));
}

RankLink RankLink::connect(const std::string& host, int port, std::chrono::milliseconds timeout) {
  const auto refuse = [&](const char* why) {
    return InvalidArgument(fmt::format("rank 0 cannot be reached at {}:{}: {}", host, port, why));
  };
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int answer = getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found);
  if (answer != 0) throw refuse(gai_strerror(answer));
  RankLink link(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int status = ::connect(link.socket_, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  if (status != 0 && errno == EINPROGRESS && poll_one(link.socket_, POLLOUT, timeout) == 1) {
    socklen_t length = sizeof status;
    getsockopt(link.socket_, SOL_SOCKET, SO_ERROR, &status, &length);
    errno = status;
  }
  if (status != 0) throw refuse(std::strerror(errno));
  return link;
}

void RankLink::send(const RankMessage& message) noexcept {
  if (!is_open()) return;
  const Head head{static_cast<int32_t>(message.kind), message.value,
                  std::min(static_cast<int32_t>(message.text.size()), kMaxTextBytes)};
  // One call, since two threads of a rank may send. A socket buffers some hundred KiB before it blocks: hours
  // of unread messages.
  std::array<char, sizeof head + kMaxTextBytes> bytes;
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, message.text.data(), static_cast<size_t>(head.text_bytes));
  const ssize_t sent =
      ::send(socket_, bytes.data(), sizeof head + static_cast<size_t>(head.text_bytes), MSG_NOSIGNAL);
  static_cast<void>(sent);
}

std::vector<RankMessage> RankLink::receive() {
  std::vector<RankMessage> messages;
  bool has_ended = false;
  std::array<char, 4096> chunk;
  while (is_open() && !has_ended && received_.size() < kMaxReceivedBytes) {
    const ssize_t got = recv(socket_, chunk.data(), chunk.size(), 0);
    if (got > 0) received_.append(chunk.data(), static_cast<size_t>(got));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    has_ended = got <= 0;
  }
  size_t at = 0;
  for (Head head{}; received_.size() - at >= sizeof head;) {
    std::memcpy(&head, received_.data() + at, sizeof head);
    const size_t bytes = sizeof head + static_cast<size_t>(head.text_bytes);
    has_ended = has_ended || head.text_bytes < 0 ||
                head.text_bytes > kMaxTextBytes;  // the latter: not sent by a rank
    if (head.text_bytes < 0 || received_.size() - at < bytes) break;
    messages.push_back({static_cast<RankMessageKind>(head.kind), head.value,
                        received_.substr(at + sizeof head, bytes - sizeof head)});
    at += bytes;
  }
  received_.erase(0, at);
  if (has_ended) close_now();
  return messages;
}

void RankLink::finish(std::chrono::steady_clock::time_point until) noexcept {
  if (!is_open()) return;
  shutdown(socket_, SHUT_WR);
  for (std::array<char, 4096> unread;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    const int ready = left.count() > 0 ? poll_one(socket_, POLLIN, left) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || recv(socket_, unread.data(), unread.size(), 0) <= 0) break;
  }
  close_now();
}

RankListener::RankListener(bool this_host_only) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(this_host_only ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t length = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (socket_ < 0 || bind(socket_, plain, length) != 0 || listen(socket_, SOMAXCONN) != 0 ||
      getsockname(socket_, plain, &length) != 0) {
    const int reason = errno;
    if (socket_ >= 0) close(socket_);
    throw InvalidArgument(fmt::format("no port can be opened for other ranks: {}", std::strerror(reason)));
  }
  port_ = ntohs(address.sin_port);
}

RankListener::~RankListener() {
  close(socket_);
}

std::optional<RankLink> RankListener::accept(std::chrono::milliseconds timeout) {
  if (poll_one(socket_, POLLIN, timeout) != 1) return {};
  const int socket = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket < 0) return {};
  return RankLink(socket);
}

namespace {

using Clock = std::chrono::steady_clock;

struct Meeting {
  char host[256] = "";
  char token[64] = "";  // keeps out others who find the port
  int32_t port = 0;
};

void copy_text(char* to, size_t capacity, const std::string& text) {
  std::strncpy(to, text.c_str(), capacity - 1);
}

// Returns true if all ranks are on one host, by name.
bool on_one_host(Collective& group, const std::string& host) {
  Meeting first;
  copy_text(first.host, sizeof first.host, host);
  broadcast_value(group, first, 0);
  float others = host == first.host ? 0.0f : 1.0f;
  group.all_reduce_sum({&others, 1});
  return others == 0;
}

// 128 bits, as hexadecimal digits.
std::string make_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// Compares all characters, so that the time says nothing of the first wrong one.
bool same_token(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  int differences = 0;
  for (size_t i = 0; i < a.size(); ++i) differences |= a[i] ^ b[i];
  return differences == 0;
}

}  // namespace

std::vector<RankLink> accept_ranks(RankListener& listener, const std::string& token, int ranks,
                                   std::chrono::milliseconds timeout) {
  struct Stranger {
    RankLink link;
    Clock::time_point since;
  };
  std::vector<RankLink> links(static_cast<size_t>(ranks));
  std::vector<Stranger> strangers;
  const auto end = Clock::now() + timeout;
  for (int linked = 1; linked < ranks;) {
    const auto now = Clock::now();
    if (now > end) throw InvalidArgument("not all ranks could link to rank 0");
    if (auto link = listener.accept(std::chrono::milliseconds(1))) {
      if (strangers.size() == kMaxStrangers + links.size()) strangers.erase(strangers.begin());
      strangers.push_back({std::move(*link), now});
    }
    for (Stranger& stranger : strangers) {
      const std::vector<RankMessage> messages = stranger.link.receive();
      if (messages.empty()) {
        if (now - stranger.since > kHelloTimeout) stranger.link = RankLink();
        continue;
      }
      const RankMessage& hello = messages.front();
      const bool is_rank = hello.kind == RankMessageKind::kHello && hello.value >= 1 && hello.value < ranks &&
                           stranger.link.is_open() && same_token(hello.text, token) &&
                           !links[static_cast<size_t>(hello.value)].is_open();
      if (is_rank) {
        links[static_cast<size_t>(hello.value)] = std::move(stranger.link);
        ++linked;
      }
      stranger.link = RankLink();
    }
    std::erase_if(strangers, [](const Stranger& stranger) { return !stranger.link.is_open(); });
  }
  return links;
}

std::vector<RankLink> link_ranks(Collective& group, const std::string& host,
                                 std::chrono::milliseconds timeout) {
  std::vector<RankLink> links(static_cast<size_t>(group.size()));
  const bool is_one_host = on_one_host(group, host);
  std::optional<RankListener> listener;
  Meeting meeting;
  if (group.rank() == 0) {
    listener.emplace(is_one_host);
    // A variable: g++ 12 at -O1 drops the text of a temporary, and copies an empty name.
    const std::string address = is_one_host ? "127.0.0.1" : host;
    copy_text(meeting.host, sizeof meeting.host, address);
    copy_text(meeting.token, sizeof meeting.token, make_token());
    meeting.port = listener->port();
  }
  broadcast_value(group, meeting, 0);
  if (group.rank() == 0) {
    links = accept_ranks(*listener, meeting.token, group.size(), timeout);
  } else {
    links[0] = RankLink::connect(meeting.host, meeting.port, timeout);
    links[0].send({RankMessageKind::kHello, group.rank(), meeting.token});
  }
  return links;
}

}  // namespace headroom
