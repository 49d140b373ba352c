#include "allocators/packing/pack.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "allocators/packing/part_packer.h"
#include "allocators/packing/problem.h"

namespace headroom {
namespace {

using packing::Item;
using packing::Problem;

// Items that can be packed apart from all others, above `base`.
struct Part {
  std::vector<size_t> items;  // by first column
  int64_t base = 0;
  int64_t lower_bound = 0;
};

class Packer {
 public:
  Packer(std::span<PlannedBlock> blocks, const PackOptions& options) : blocks_(blocks), options_(options) {}

  Packing pack() {
    read_blocks();
    divide();
    // The part that needs most comes first: the others only have to be no higher.
    std::ranges::stable_sort(
        parts_, [](const Part& a, const Part& b) { return a.base + a.lower_bound > b.base + b.lower_bound; });
    if (!parts_.empty()) bound_ = std::max(bound_, parts_[0].base + parts_[0].lower_bound);
    height_ = std::max(height_, bound_);
    for (const Part& part : parts_) pack_part(part);
    for (size_t i = 0; i < problem_.items.size(); ++i) {
      blocks_[block_of_[i]].offset_bytes = offsets_[i] * unit_bytes_;
    }
    result_.height_bytes = std::max(result_.height_bytes, height_ * unit_bytes_);
    result_.lower_bound_bytes = std::max(result_.lower_bound_bytes, bound_ * unit_bytes_);
    return result_;
  }

 private:
  void read_blocks() {
    for (const PlannedBlock& block : blocks_) unit_bytes_ = std::gcd(unit_bytes_, block.bytes);
    unit_bytes_ = std::max<int64_t>(1, unit_bytes_);
    for (const PlannedBlock& block : blocks_) {
      if (unit_bytes_ % block.alignment != 0) unit_bytes_ = std::gcd(unit_bytes_, block.alignment);
    }
    for (size_t i = 0; i < blocks_.size(); ++i) {
      PlannedBlock& block = blocks_[i];
      block.offset_bytes = 0;
      // A block with no lifetime or no bytes conflicts with no other block.
      if (block.bytes <= 0 || block.end <= block.first) {
        result_.height_bytes = std::max(result_.height_bytes, block.bytes);
        result_.lower_bound_bytes = result_.height_bytes;
        continue;
      }
      const int64_t alignment = std::max<int64_t>(1, block.alignment / unit_bytes_);
      is_aligned_ |= alignment > 1;
      const int64_t steps = int64_t{block.end} - block.first;
      problem_.items.push_back({block.bytes / unit_bytes_, block.first, block.end, alignment, steps});
      block_of_.push_back(i);
    }
    compress_columns(problem_);
    refuse_too_many_bytes();
    offsets_.resize(problem_.items.size());
  }

  void refuse_too_many_bytes() const {
    std::vector<double> changes(static_cast<size_t>(problem_.columns) + 1);  // double: no sum overflows
    for (const Item& item : problem_.items) {
      changes[static_cast<size_t>(item.first)] += static_cast<double>(item.size);
      changes[static_cast<size_t>(item.end)] -= static_cast<double>(item.size);
    }
    double live = 0;
    for (const double change : changes) {
      live += change;
      // Offsets in units, and in bytes, with room for what packing wastes.
      if (live > 0x1p50 || live * static_cast<double>(unit_bytes_) > 0x1p59) packing::refuse_to_pack();
    }
  }

  // Items that live from the first to the last column lie at the bottom, where they obstruct no others;
  // without them other items may no longer meet.
  void divide() {
    constexpr int kMostRounds = 64;  // each looks at all items
    Part all;
    all.items.resize(problem_.items.size());
    std::iota(all.items.begin(), all.items.end(), size_t{0});
    std::ranges::stable_sort(
        all.items, [&](size_t a, size_t b) { return problem_.items[a].first < problem_.items[b].first; });
    std::vector<Part> open;
    if (!all.items.empty()) open.push_back(std::move(all));
    for (int round = 0; !open.empty(); ++round) {
      std::vector<Part> next;
      for (const Part& part : open) divide(part, round < kMostRounds, next);
      open = std::move(next);
    }
  }

  void divide(const Part& part, bool go_on, std::vector<Part>& next) {
    for (size_t begin = 0; begin < part.items.size();) {
      const int first = problem_.items[part.items[begin]].first;
      int end = first;
      size_t after = begin;
      for (; after < part.items.size(); ++after) {
        const Item& item = problem_.items[part.items[after]];
        if (after > begin && item.first >= end) break;
        end = std::max(end, item.end);
      }
      result_.work += static_cast<int64_t>(after - begin);
      Part rest{{}, part.base, 0};
      for (size_t i = begin; i < after; ++i) {
        const Item& item = problem_.items[part.items[i]];
        if (!is_aligned_ && item.first == first && item.end == end) {
          offsets_[part.items[i]] = rest.base;
          rest.base += item.size;
        } else {
          rest.items.push_back(part.items[i]);
        }
      }
      const bool is_lowered = rest.items.size() < after - begin;
      bound_ = std::max(bound_, rest.base);
      if (is_lowered && go_on) {
        if (!rest.items.empty()) next.push_back(std::move(rest));
      } else if (!rest.items.empty()) {
        rest.lower_bound = problem_of(rest).lower_bound();
        parts_.push_back(std::move(rest));
      }
      begin = after;
    }
  }

  Problem problem_of(const Part& part) const {
    Problem problem;
    problem.items.reserve(part.items.size());
    for (const size_t index : part.items) problem.items.push_back(problem_.items[index]);
    compress_columns(problem);
    return problem;
  }

  void pack_part(const Part& part) {
    const Problem problem = problem_of(part);
    // Work is left for the parts that follow.
    const bool is_last = &part == &parts_.back();
    const int64_t left = std::max<int64_t>(0, options_.max_work - result_.work);
    packing::PartPacking packed = packing::pack_part(problem, height_ - part.base, is_last ? left : left / 2);
    result_.work += packed.work;
    bound_ = std::max(bound_, part.base + packed.lower_bound);
    height_ = std::max(height_, part.base + packed.placement.height);
    for (size_t i = 0; i < part.items.size(); ++i) {
      offsets_[part.items[i]] = part.base + packed.placement.offsets[i];
    }
  }

  const std::span<PlannedBlock> blocks_;
  const PackOptions options_;
  Problem problem_;
  std::vector<size_t> block_of_;  // by item
  std::vector<int64_t> offsets_;  // by item
  std::vector<Part> parts_;
  int64_t unit_bytes_ = 0;
  bool is_aligned_ = false;
  int64_t height_ = 0, bound_ = 0;  // in units
  Packing result_;
};

}  // namespace

Packing pack(std::span<PlannedBlock> blocks, const PackOptions& options) {
  return Packer(blocks, options).pack();
}

}  // namespace headroom
