#include "runtime/collective/ranks/link_ranks.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "runtime/base/errors.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

struct Meeting {
  char host[256] = "";
  char token[32] = "";  // keeps out others who find the port
  int32_t port = 0;
};

template <typename T>
void broadcast(Collective& group, T& value, int root) {
  group.broadcast(std::as_writable_bytes(std::span(&value, 1)), root);
}

void copy_text(char* to, size_t capacity, const std::string& text) {
  std::strncpy(to, text.c_str(), capacity - 1);
}

// Whether all ranks are on one host, by name.
bool on_one_host(Collective& group, const std::string& host) {
  Meeting first;
  copy_text(first.host, sizeof first.host, host);
  broadcast(group, first, 0);
  float others = host == first.host ? 0.0f : 1.0f;
  group.all_reduce_sum({&others, 1});
  return others == 0;
}

// By rank, those that connect and know the token.
void accept_all(RankListener& listener, const std::string& token, std::vector<RankLink>& links,
                std::chrono::milliseconds timeout) {
  std::vector<RankLink> strangers;
  const auto end = Clock::now() + timeout;
  for (size_t linked = 1; linked < links.size();) {
    if (Clock::now() > end) throw InvalidArgument("not all ranks could link to rank 0");
    if (auto link = listener.accept(std::chrono::milliseconds(1))) strangers.push_back(std::move(*link));
    for (RankLink& stranger : strangers) {
      for (const RankMessage& message : stranger.receive()) {
        if (message.kind != RankMessageKind::kHello || message.text != token || message.value < 1 ||
            message.value >= std::ssize(links) || !stranger.is_open()) {
          continue;
        }
        links[static_cast<size_t>(message.value)] = std::move(stranger);
        ++linked;
        break;
      }
    }
  }
}

}  // namespace

std::vector<RankLink> link_ranks(Collective& group, const std::string& host,
                                 std::chrono::milliseconds timeout) {
  std::vector<RankLink> links(static_cast<size_t>(group.size()));
  const bool is_one_host = on_one_host(group, host);
  std::optional<RankListener> listener;
  Meeting meeting;
  if (group.rank() == 0) {
    listener.emplace(is_one_host);
    std::random_device random;
    copy_text(meeting.host, sizeof meeting.host, is_one_host ? "127.0.0.1" : host);
    copy_text(meeting.token, sizeof meeting.token, fmt::format("{:08x}{:08x}", random(), random()));
    meeting.port = listener->port();
  }
  broadcast(group, meeting, 0);
  if (group.rank() == 0) {
    accept_all(*listener, meeting.token, links, timeout);
  } else {
    links[0] = RankLink::connect(meeting.host, meeting.port, timeout);
    links[0].send({RankMessageKind::kHello, group.rank(), meeting.token});
  }
  return links;
}

}  // namespace headroom
