#include "tools/report/address_map.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace headroom::report {
namespace {

constexpr size_t kMaxGapsTried = 256;

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
  // Without addresses blocks are placed by first fit, so that the map shows sizes. Its gaps mean nothing.
  struct Gap {
    uint64_t begin, end;
  };
  std::vector<Gap> gaps = {{0, std::numeric_limits<uint64_t>::max()}};
  offsets_.resize(history.lifetimes.size());
  for (const TraceEvent& event : history.trace.events) {
    const auto bytes = static_cast<uint64_t>(event.bytes);
    uint64_t& offset = offsets_[static_cast<size_t>(event.block)];
    if (event.allocates) {
      // A limited number, so that a million events stay quick. The last gap has no end.
      const auto stop = gaps.begin() + static_cast<long>(std::min(gaps.size(), kMaxGapsTried));
      auto gap = std::find_if(gaps.begin(), stop, [&](const Gap& g) { return g.end - g.begin >= bytes; });
      if (gap == stop) gap = gaps.end() - 1;
      offset = gap->begin;
      gap->begin += std::min(bytes, gap->end - gap->begin);
      if (gap->begin == gap->end && gaps.size() > 1) gaps.erase(gap);
      bytes_ = std::max(bytes_, offset + bytes);
    } else {
      const auto after = std::upper_bound(gaps.begin(), gaps.end(), offset,
                                          [](uint64_t at, const Gap& g) { return at < g.begin; });
      const auto put = gaps.insert(after, {offset, offset + bytes});
      const auto next = put + 1;
      if (next != gaps.end() && next->begin == put->end) {
        put->end = next->end;
        gaps.erase(next);
      }
      if (put != gaps.begin() && (put - 1)->end == put->begin) {
        (put - 1)->end = put->end;
        gaps.erase(put);
      }
    }
  }
}

void AddressMap::join() {
  std::sort(stretches_.begin(), stretches_.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
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
