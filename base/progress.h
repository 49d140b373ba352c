// A line on stderr with a bar, the rate and the remaining time, for work of more than a second. Shown on a
// terminal only. Knows nothing about the work.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

namespace headroom {

// Progress of some work. `total` is 0 if unknown.
struct ProgressState {
  double done = 0, total = 0;
  double seconds = 0;  // since it began
  std::string unit;    // unit of the amounts, such as "events"; empty: no rate is shown; "%": of 100
  std::string doing;   // current activity
};

// "[#####.....] 5/10 runs, 2.5 runs/s, 2 s left: unet under caching", at most `width` characters (0: any).
std::string progress_line(const ProgressState& state, size_t width);

class Progress {
 public:
  // Shows nothing before a second has passed, and nothing at all where stderr is no terminal.
  Progress(double total, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Sets the current activity.
  void start(std::string doing);
  // Adds to the amount done.
  void advance(double amount);
  // Another part of the work, with amounts and a clock of its own.
  void begin(double total, std::string unit, std::string doing);
  // So much of 1 of the part is done; nothing is shown of it before the first call.
  void reach(double share);
  // Prints a line of its own on stderr at once, terminal or not.
  void say(const std::string& line);
  // Removes the line; nothing more is shown.
  void finish();

 private:
  void repeat();

  std::mutex mutex_;
  std::condition_variable changed_;
  ProgressState state_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool is_finished_ = false;
  std::thread thread_;  // draws: the work may take long between two calls
};

}  // namespace headroom
