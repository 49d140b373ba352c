// Measures the memory of an account's processes with the driver's management library, since contexts and code
// grow without a call that could be counted. Runs in `headroom run`, outside the programs. Knows no option.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "guard/account.h"
#include "guard/driver.h"

namespace headroom::guard {

class Watcher {
 public:
  explicit Watcher(Account& account);
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // Opens the management library; false when there is none.
  bool open();
  // All cards in the library's order; a uuid is "GPU-...".
  struct Found {
    std::string uuid, name;
    int64_t total_bytes;
  };
  std::vector<Found> cards();
  // Measures once.
  void measure();
  // Measures until `stop`, ten times a second and whenever a process asks.
  void watch(const std::atomic<bool>& stop);

 private:
  void begin_minute();
  void measure_card(int card);
  void find_escaped();

  Account& account_;
  bool is_open_ = false;
  const int64_t began_ns_;
  int64_t searched_ns_ = 0;
  nvmlDevice_t devices_[kMaxCards] = {};
  // A process that seems to need less beside its blocks: what it held, and how many measurements in a row
  // said so.
  struct Quiet {
    int64_t held = -1;
    int times = 0;
  };
  Quiet quiet_[kMaxSlots][kMaxCards] = {};
};

// "GPU-6b3a...", or a part of it, as bytes; false when it is none.
bool parse_uuid(const std::string& text, unsigned char (&uuid)[16]);

}  // namespace headroom::guard
