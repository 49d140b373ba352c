#include "tools/report/address_map.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace headroom::report {
namespace {

uint64_t end_of_stretch(uint64_t address, int64_t bytes) {
  const uint64_t room = std::numeric_limits<uint64_t>::max() - address;
  return address + std::min(room, static_cast<uint64_t>(bytes));
}

}  // namespace

AddressMap::AddressMap(const History& history) : history_(history) {
  if (history.trace.has_addresses) {
    for (const Segment& segment : history.segments) {
      stretches_.push_back({segment.address, end_of_stretch(segment.address, segment.bytes)});
    }
    for (size_t block = 0; block < history.lifetimes.size(); ++block) {
      const uint64_t address = history.trace.block_facts[block].address;
      stretches_.push_back({address, end_of_stretch(address, history.block_bytes(block))});
    }
    join();
    return;
  }
  place_blocks();
}

// If there are no addresses, blocks are placed by best fit, so that the map shows sizes. Its gaps mean
// nothing.
void AddressMap::place_blocks() {
  constexpr uint64_t kNowhere = std::numeric_limits<uint64_t>::max();
  std::map<uint64_t, uint64_t> gaps;                 // begin -> end
  std::set<std::pair<uint64_t, uint64_t>> by_bytes;  // and begin
  const auto add = [&](uint64_t begin, uint64_t end) {
    if (begin == end) return;
    gaps[begin] = end;
    by_bytes.emplace(end - begin, begin);
  };
  const auto remove = [&](std::map<uint64_t, uint64_t>::iterator gap) {
    by_bytes.erase({gap->second - gap->first, gap->first});
    return gaps.erase(gap);
  };
  add(0, kNowhere);
  offsets_.resize(history_.lifetimes.size());
  for (const TraceEvent& event : history_.trace.events) {
    const auto bytes = static_cast<uint64_t>(event.bytes);
    uint64_t& offset = offsets_[static_cast<size_t>(event.block)];
    if (bytes == 0) continue;
    if (event.allocates) {
      const auto found = by_bytes.lower_bound({bytes, 0});
      offset = found == by_bytes.end() ? kNowhere : found->second;
      if (found == by_bytes.end()) continue;
      const uint64_t end = offset + found->first;
      remove(gaps.find(offset));
      add(offset + bytes, end);
      bytes_ = std::max(bytes_, offset + bytes);
    } else if (offset != kNowhere) {
      uint64_t begin = offset, end = offset + bytes;
      auto next = gaps.lower_bound(begin);
      if (next != gaps.end() && next->first == end) {
        end = next->second;
        next = remove(next);
      }
      if (next != gaps.begin() && std::prev(next)->second == begin) {
        begin = std::prev(next)->first;
        remove(std::prev(next));
      }
      add(begin, end);
    }
  }
  std::ranges::replace(offsets_, kNowhere, uint64_t{0});
}

void AddressMap::join() {
  std::ranges::sort(stretches_, [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  size_t last = 0;
  for (size_t i = 1; i < stretches_.size(); ++i) {
    if (stretches_[i].begin <= stretches_[last].end) {
      stretches_[last].end = std::max(stretches_[last].end, stretches_[i].end);
    } else {
      stretches_[++last] = stretches_[i];
    }
  }
  if (!stretches_.empty()) stretches_.resize(last + 1);
  for (Stretch& stretch : stretches_) {
    stretch.offset = bytes_;
    bytes_ += stretch.end - stretch.begin;
  }
}

uint64_t AddressMap::offset(size_t block) const {
  return history_.trace.has_addresses ? offset_of_address(history_.trace.block_facts[block].address)
                                      : offsets_[block];
}

uint64_t AddressMap::offset_of_address(uint64_t address) const {
  const auto after = std::upper_bound(stretches_.begin(), stretches_.end(), address,
                                      [](uint64_t at, const Stretch& stretch) { return at < stretch.begin; });
  if (after == stretches_.begin()) return 0;
  const Stretch& stretch = *(after - 1);
  return stretch.offset + (address - stretch.begin);
}

}  // namespace headroom::report
