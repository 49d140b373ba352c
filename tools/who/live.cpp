#include "tools/who/live.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/text.h"

namespace headroom::who {
namespace {

constexpr size_t kKept = 240;   // samples of each device
constexpr char kInterrupt = 3;  // Ctrl-C without a signal

bool is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string text = lowered(value);
    return text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

// "[######....]", the share in color.
std::string bar(double share, size_t width, const Terminal& terminal) {
  const auto filled =
      static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(width)));
  return "[" + terminal.painted(std::string(filled, '#'), color_of_share(share)) +
         std::string(width - filled, '.') + "]";
}

// One character for each of the last `width` samples.
std::string sparkline(const std::deque<double>& shares, size_t width, const Terminal& terminal) {
  static const bool utf8 = is_utf8();
  constexpr std::string_view kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::string_view kPlain = "_.,-=+*#";
  std::string text;
  const size_t shown = std::min(width, shares.size());
  for (size_t i = shares.size() - shown; i < shares.size(); ++i) {
    const auto level = std::min<size_t>(7, static_cast<size_t>(std::clamp(shares[i], 0.0, 1.0) * 8));
    const std::string_view mark = utf8 ? kBlocks[level] : kPlain.substr(level, 1);
    text += terminal.painted(mark, color_of_share(shares[i]));
  }
  return text;
}

std::string_view name_of(LiveScreen::Order order) {
  constexpr std::string_view kNames[] = {"device", "most used", "most free"};
  return kNames[static_cast<size_t>(order)];
}

// "1.5 of 2.0 GiB".
std::string used_of_total(const Account& account) {
  const auto in_gib = [](int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kGiB); };
  return fmt::format("{:.1f} of {:.1f} GiB", in_gib(account.total_bytes - account.free_bytes),
                     in_gib(account.total_bytes));
}

}  // namespace

void LiveScreen::add(View view) {
  for (const Account& account : view.accounts) {
    std::deque<double>& shares = shares_[account.device + account.uuid];
    shares.push_back(used_share(account));
    if (shares.size() > kKept) shares.pop_front();
  }
  view_ = std::move(view);
}

bool LiveScreen::press(char key) {
  if (key == 'q' || key == 'Q' || key == kInterrupt) return false;
  if (key == 's' || key == 'S') order_ = static_cast<Order>((static_cast<int>(order_) + 1) % 3);
  return true;
}

std::string LiveScreen::frame(const Terminal& terminal, size_t height, const std::string& title) const {
  const size_t width = terminal.width() == 0 ? 80 : terminal.width();
  const Terminal plain(width, false);
  std::vector<std::string> lines = {terminal.painted(
      plain.cut(title + fmt::format("  q quit  s sort: {}", name_of(order_)), 0, width), Color::kBold)};
  if (!view_.failure.empty())
    lines.push_back(terminal.painted(plain.cut(view_.failure, 0, width), Color::kRed));
  std::vector<const Account*> accounts;
  size_t name_width = 6, used_width = 0;
  for (const Account& account : view_.accounts) {
    accounts.push_back(&account);
    name_width = std::max(name_width, characters(account.device));
    used_width = std::max(used_width, used_of_total(account).size());
  }
  if (order_ != Order::kDevice) {
    std::ranges::stable_sort(accounts, [&](const Account* a, const Account* b) {
      return order_ == Order::kUsed ? used_share(*a) > used_share(*b) : a->free_bytes > b->free_bytes;
    });
  }
  // Beside the name, the sizes and the share: half for the bar, half for the sparkline, at most a minute or
  // so.
  const size_t fixed = name_width + used_width + 14;
  const size_t left = width > fixed ? width - fixed : 0;
  const size_t bar_width = std::clamp<size_t>(left / 2, 4, 40);
  const size_t spark_width = left > bar_width ? std::min<size_t>(left - bar_width, 80) : 0;
  for (const Account* account : accounts) {
    const double share = used_share(*account);
    const auto shares = shares_.find(account->device + account->uuid);
    lines.push_back(
        fmt::format("{:<{}}  {} {:>{}} {:>4.0f} %  {}", account->device, name_width,
                    bar(share, bar_width, terminal), used_of_total(*account), used_width, 100 * share,
                    shares == shares_.end() ? "" : sparkline(shares->second, spark_width, terminal)));
  }
  lines.emplace_back();
  const size_t heads = lines.size();
  for (const Account* account : accounts) {
    if (account->ours.total_bytes() > 0) {
      lines.push_back(plain.cut(fmt::format("{:<{}}  {:>10}  this process", account->device, name_width,
                                            format_bytes(account->ours.total_bytes())),
                                0, width));
    }
    for (const Holder& holder : account->others) {
      lines.push_back(
          plain.cut(fmt::format("{:<{}}  {:>10}  {}", account->device, name_width,
                                holder.bytes ? format_bytes(*holder.bytes) : "?", describe(holder)),
                    0, width));
    }
  }
  if (lines.size() == heads) lines.emplace_back("no process holds memory");
  if (height > 0 && lines.size() > height) lines.resize(height);
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

namespace {

volatile std::sig_atomic_t signal_came = 0;

// A screen of its own, with keys that come one by one. Brings the terminal back to what it was.
class OwnScreen {
 public:
  OwnScreen() {
    has_keys_ = isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
      tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    struct sigaction action {};
    action.sa_handler = [](int) { signal_came = 1; };
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
    fmt::print("\033[?1049h\033[?25l");
  }
  ~OwnScreen() {
    std::fputs("\033[?25h\033[?1049l", stdout);
    std::fflush(stdout);
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  OwnScreen(const OwnScreen&) = delete;
  OwnScreen& operator=(const OwnScreen&) = delete;

  void draw(const std::string& frame) {
    std::string text = "\033[H";
    for (const char c : frame) text += c == '\n' ? std::string("\033[K\n") : std::string(1, c);
    fmt::print("{}\033[J", text);
    std::fflush(stdout);
  }
  // Waits for a key, at most that long; 0 when none came.
  char wait_for_key(double seconds) const {
    pollfd input{.fd = has_keys_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    char key = 0;
    if (poll(&input, 1, static_cast<int>(std::min(1e3 * seconds, 1e9))) <= 0) return 0;
    return read(STDIN_FILENO, &key, 1) == 1 ? key : 'q';  // the other end is gone
  }

 private:
  termios before_{};
  bool has_keys_ = false;
};

}  // namespace

void show_live(const LiveView& live, const Terminal& terminal) {
  LiveScreen screen;
  View last;
  {
    OwnScreen own;
    using Clock = std::chrono::steady_clock;
    for (int64_t i = 1; signal_came == 0; ++i) {
      last = live.look();
      screen.add(last);
      const auto next = Clock::now() + std::chrono::duration<double>(live.every_seconds);
      double left = live.every_seconds;
      bool goes_on = true;
      do {
        winsize size{};
        const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
        const Terminal now(is_known ? size.ws_col : terminal.width(), terminal.colors());
        const std::string title = fmt::format("headroom who {:%H:%M:%S}", fmt::localtime(std::time(nullptr)));
        own.draw(screen.frame(now, is_known ? size.ws_row - 1u : 0, title));
        if (i == live.times) break;
        goes_on = screen.press(own.wait_for_key(left)) && signal_came == 0;
        left = std::chrono::duration<double>(next - Clock::now()).count();
      } while (goes_on && left > 0);
      if (!goes_on || i == live.times) break;
    }
  }
  fmt::print("{}", to_lines(last));
}

}  // namespace headroom::who
