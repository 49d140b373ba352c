#!/bin/sh
# The recipe "A memory strategy" of CONTRIBUTING.md, followed for a strategy `exact`, which reuses freed blocks
# for requests of exactly their size.
here=$(dirname "$0")
. "$here/../recipe.sh"

# 1. The two files.
create allocators/strategies/exact_allocator.h << 'END'
// Keeps freed blocks and reuses them for requests of exactly their size.
#pragma once

#include <cstdint>
#include <vector>

#include "allocators/allocator.h"

namespace headroom {

class ExactAllocator final : public Allocator {
 public:
  using Allocator::Allocator;
  ~ExactAllocator() override;

 private:
  struct Piece {
    void* pointer;
    int64_t bytes;
    Stream stream;
    bool is_free;
  };

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override;
  void do_snapshot(std::vector<SnapshotSegment>& segments) const override;

  std::vector<Piece> pieces_;
};

}  // namespace headroom
END
create allocators/strategies/exact_allocator.cpp << 'END'
#include "allocators/strategies/exact_allocator.h"

#include <algorithm>

namespace headroom {

ExactAllocator::~ExactAllocator() {
  for (const Piece& piece : pieces_) unreserve(piece.pointer, piece.bytes);
}

Allocator::Block ExactAllocator::do_allocate(int64_t bytes, Stream stream) {
  for (Piece& piece : pieces_) {
    if (!piece.is_free || piece.bytes != bytes) continue;
    follow(stream, piece.stream);
    piece.stream = stream;
    piece.is_free = false;
    return {piece.pointer, bytes};
  }
  void* pointer = reserve(bytes);
  if (pointer == nullptr) return {};
  pieces_.push_back({pointer, bytes, stream, false});
  return {pointer, bytes};
}

int64_t ExactAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  for (Piece& piece : pieces_) {
    if (piece.is_free || piece.pointer != pointer || piece.bytes != bytes) continue;
    piece.stream = stream;
    piece.is_free = true;
    return bytes;
  }
  return 0;
}

int64_t ExactAllocator::do_trim() noexcept {
  int64_t released = 0;
  std::erase_if(pieces_, [&](const Piece& piece) {
    if (!piece.is_free) return false;
    unreserve(piece.pointer, piece.bytes);
    released += piece.bytes;
    return true;
  });
  return released;
}

int64_t ExactAllocator::largest_free_block() const {
  int64_t largest = 0;
  for (const Piece& piece : pieces_) largest = std::max(largest, piece.is_free ? piece.bytes : 0);
  return largest;
}

void ExactAllocator::do_snapshot(std::vector<SnapshotSegment>& segments) const {
  for (const auto& [pointer, bytes, stream, is_free] : pieces_) {
    const auto state = is_free ? SnapshotBlock::State::kFree : SnapshotBlock::State::kActive;
    segments.push_back({pointer, bytes, {{pointer, bytes, is_free ? 0 : bytes, state, stream}}});
  }
}

}  // namespace headroom
END

# 2. The row, and the function that makes it.
change after allocators/strategies/strategy.cpp '#include "allocators/strategies/direct_allocator.h"' << 'END'
#include "allocators/strategies/exact_allocator.h"
END
change before allocators/strategies/strategy.cpp 'std::unique_ptr<Allocator> make_direct(' << 'END'
std::unique_ptr<Allocator> make_exact(const StrategySettings& settings, Device& device) {
  return std::make_unique<ExactAllocator>(device, settings.name, asked_limit(settings, device));
}

END
change after allocators/strategies/strategy.cpp 'constexpr Strategy kStrategies[]' << 'END'
    {.name = "exact", .summary = "reuses freed blocks for requests of exactly their size", .make = make_exact},
END

# 3. The section of the docs. The contract tests read the row from the table and find missing parts.
CXXFLAGS="$CXXFLAGS -DHEADROOM_SOURCE_DIR=\"$copy\""
compile all.o allocators/strategies/strategy.cpp allocators/strategies/exact_allocator.cpp \
  tests/allocators/strategies/contract_test.cpp tests/allocators/devices.cpp
# shellcheck disable=SC2086 # the libraries are words
$CXX $CXXFLAGS ./*.o $LIBRARIES -o tests_of_strategy
mkdir -p docs
cp "$tree/docs/strategies.md" docs/
must_fail exact ./tests_of_strategy --gtest_filter='StrategyTable.*'
change before docs/strategies.md '## direct' << 'END'
## exact

Keeps freed blocks and reuses them for requests of exactly their size.

**When it loses:** on sizes that vary.

END
./tests_of_strategy --gtest_filter='StrategyTable.*:*/exact_*-*cuda*'
