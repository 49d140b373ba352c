#include "base/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/terminal.h"

namespace headroom {
namespace {

constexpr auto kDelay = std::chrono::seconds(1);
constexpr auto kEvery = std::chrono::milliseconds(200);
constexpr size_t kBar = 20;
constexpr const char* kClearLine = "\r\033[K";

// "12", "3.4 M".
std::string short_count(double count) {
  if (count >= 1e9) return fmt::format("{:.1f} G", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f} M", count / 1e6);
  if (count >= 1e4) return fmt::format("{:.1f} k", count / 1e3);
  return count == std::floor(count) || count >= 100 ? fmt::format("{:.0f}", count)
                                                    : fmt::format("{:.2g}", count);
}

// "2 h 5 min", "3 min 20 s", "4 s".
std::string short_time(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(std::min(seconds, 1e9)));
  if (whole >= 3600) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

}  // namespace

std::string progress_line(const ProgressState& state, size_t width) {
  std::string line;
  const double rate = state.seconds > 0 ? state.done / state.seconds : 0;
  if (state.total > 0) {
    const double share = std::clamp(state.done / state.total, 0.0, 1.0);
    const auto filled = static_cast<size_t>(share * kBar);
    line = fmt::format("[{}{}] ", std::string(filled, '#'), std::string(kBar - filled, '.'));
    line += state.unit == "%"
                ? fmt::format("{:.0f} %", 100 * share)
                : fmt::format("{}/{} {}", short_count(state.done), short_count(state.total), state.unit);
    if (rate > 0) {
      line += fmt::format(", {} {}/s, {} left", short_count(rate), state.unit,
                          short_time(std::max(0.0, state.total - state.done) / rate));
    }
  } else if (state.unit.empty()) {
    line = short_time(state.seconds);
  } else {
    line = fmt::format("{} {} in {}", short_count(state.done), state.unit, short_time(state.seconds));
  }
  if (!state.doing.empty()) line += ": " + state.doing;
  return width > 0 ? Terminal(width, false).cut(line, 0, width) : line;
}

Progress::Progress(double total, std::string unit)
    : state_{.done = 0, .total = total, .seconds = 0, .unit = std::move(unit), .doing = {}} {
  if (Terminal(stderr).is_live()) thread_ = std::thread([this] { repeat(); });
}

Progress::~Progress() {
  finish();
}

void Progress::start(std::string doing) {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_.doing = std::move(doing);
}

void Progress::advance(double amount) {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_.done += amount;
}

void Progress::begin(double total, std::string unit, std::string doing) {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_ = {.done = 0, .total = total, .seconds = 0, .unit = std::move(unit), .doing = std::move(doing)};
  start_ = std::chrono::steady_clock::now();
}

void Progress::reach(double share) {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_.unit = "%";
  state_.total = 100;
  state_.done = 100 * share;
}

void Progress::say(const std::string& line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::fputs(((thread_.joinable() ? kClearLine : "") + line + '\n').c_str(), stderr);
  std::fflush(stderr);
}

void Progress::finish() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_finished_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Progress::repeat() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto finished = [this] { return is_finished_; };
  if (changed_.wait_for(lock, kDelay, finished)) return;
  do {
    state_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    // One character less: a full line makes some terminals go to the next.
    const size_t width = Terminal(stderr).width();
    std::fputs((kClearLine + progress_line(state_, width > 1 ? width - 1 : 0)).c_str(), stderr);
    std::fflush(stderr);
  } while (!changed_.wait_for(lock, kEvery, finished));
  std::fputs(kClearLine, stderr);
  std::fflush(stderr);
}

}  // namespace headroom
