#include "tools/report/choose_blocks.h"

#include <algorithm>

namespace headroom::report {
namespace {

// With some 60 bytes for each block a page has about a megabyte of them.
constexpr size_t kMostBlocks = 20'000, kMostAtPeak = 12'000;

}  // namespace

std::vector<size_t> choose_blocks(const History& history) {
  std::vector<size_t> chosen = history.live_blocks(history.peak_event());
  chosen.resize(std::min(chosen.size(), kMostAtPeak));
  std::vector<bool> taken(history.lifetimes.size());
  for (size_t block : chosen) taken[block] = true;
  std::vector<size_t> rest;
  for (size_t block = 0; block < history.lifetimes.size(); ++block) {
    if (!taken[block] && history.bytes(block) > 0) rest.push_back(block);
  }
  const auto weight = [&](size_t block) {
    const Lifetime& life = history.lifetimes[block];
    return static_cast<double>(history.bytes(block)) * static_cast<double>(life.end - life.begin);
  };
  const size_t room = std::min(rest.size(), kMostBlocks - chosen.size());
  std::nth_element(rest.begin(), rest.begin() + static_cast<long>(room), rest.end(),
                   [&](size_t a, size_t b) { return weight(a) > weight(b); });
  chosen.insert(chosen.end(), rest.begin(), rest.begin() + static_cast<long>(room));
  std::sort(chosen.begin(), chosen.end());  // in the order in which they were allocated
  return chosen;
}

}  // namespace headroom::report
