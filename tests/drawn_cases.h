// Cases of a test that are drawn from a seed: as many as the suite has time for, or as many as a person asks
// for with DRAWN_CASES, from DRAWN_SEED. Both are printed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "base/side_by_side.h"

namespace headroom {

// The choices of one case; the same for the same seed on every machine.
class Draw {
 public:
  explicit Draw(uint32_t seed) : choose_(seed) {}

  uint32_t below(uint32_t count) { return static_cast<uint32_t>(choose_() % count); }
  bool chance(uint32_t percent) { return below(100) < percent; }
  const std::string& of(const std::vector<std::string>& list) {
    return list[below(static_cast<uint32_t>(list.size()))];
  }

 private:
  std::mt19937 choose_;
};

// Runs `test` on each case. It returns what is wrong, or nothing; all that is wrong is returned, each with
// its seed, with which DRAWN_CASES=1 repeats it.
inline std::string wrong_cases(size_t count, const std::function<std::string(Draw& draw)>& test) {
  const char* const cases = std::getenv("DRAWN_CASES");
  const char* const seed_text = std::getenv("DRAWN_SEED");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  count = (count + 9) / 10;  // each takes ten times as long there
#endif
  if (cases != nullptr) count = std::strtoul(cases, nullptr, 10);
  const auto seed = static_cast<uint32_t>(seed_text == nullptr ? 1 : std::strtoul(seed_text, nullptr, 10));
  std::printf("%zu cases from DRAWN_SEED=%u\n", count, seed);
  using Clock = std::chrono::steady_clock;
  std::mutex mutex;
  std::string wrong;
  Clock::duration longest = {};
  uint32_t longest_seed = seed;
  side_by_side(count, 4, [&](size_t i) {
    const uint32_t own_seed = seed + static_cast<uint32_t>(i);
    Draw draw(own_seed);
    const Clock::time_point begin = Clock::now();
    const std::string found = test(draw);
    const Clock::duration took = Clock::now() - begin;
    const std::lock_guard lock(mutex);
    if (took > longest) {
      longest = took;
      longest_seed = own_seed;
    }
    if (!found.empty()) wrong += "\n\nDRAWN_SEED=" + std::to_string(own_seed) + ": " + found;
  });
  std::printf("the longest case: DRAWN_SEED=%u, %.1f s\n", longest_seed,
              std::chrono::duration<double>(longest).count());
  return wrong;
}

}  // namespace headroom
