// The baseline: every allocation and deallocation is a driver call.
#pragma once

#include <unordered_map>

#include "allocators/allocator.h"

namespace headroom {

class DirectAllocator final : public Allocator {
 public:
  using Allocator::Allocator;
  ~DirectAllocator() override;

 private:
  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override { return 0; }
  int64_t largest_free_block() const override { return 0; }
  void do_snapshot(std::vector<SnapshotSegment>& segments) const override;

  struct Live {
    int64_t bytes;
    Stream stream;
  };
  std::unordered_map<void*, Live> live_;
};

}  // namespace headroom
