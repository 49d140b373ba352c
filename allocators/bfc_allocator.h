// Best fit with coalescing after TensorFlow's BFCAllocator: regions from the driver are cut into blocks,
// neighbours that are free become one again. Knows three strategies only by how their regions grow.
#pragma once

#include <memory_resource>
#include <set>
#include <unordered_map>
#include <vector>

#include "allocators/allocator.h"

namespace headroom {

class BfcAllocator final : public Allocator {
 public:
  enum class Growth : uint8_t {
    kAtOnce,   // one region of all that the limit allows, taken at construction; less if the device has less
    kDoubling  // regions of 2 MiB, 4 MiB, 8 MiB, ... as they are needed, up to the limit
  };

  // The bins of free blocks: bin b holds sizes from 256 B << b, the last one everything from 256 MiB.
  static constexpr int kBins = 21;
  static int bin_of(int64_t bytes);

  // kAtOnce throws OutOfMemory when the device gives nothing at all. Without a limit kAtOnce asks for all
  // that is free.
  BfcAllocator(Device& device, std::string name, std::optional<Limit> limit, Growth growth);
  ~BfcAllocator() override;

  // Sizes of the regions held, in the order of their making.
  std::vector<int64_t> region_bytes() const;

 private:
  using Index = int32_t;
  static constexpr Index kNone = -1;

  struct Region {
    void* base = nullptr;
    int64_t bytes = 0;
    int64_t number = 0;  // counts regions as they are made
    Index first = kNone;
  };
  // Whose queued work may still use a free piece: nobody's, one stream's, or that of any that blocks came
  // back on.
  struct Users {
    enum class Kind : uint8_t { kNone, kOne, kMany };
    Kind kind = Kind::kNone;
    Stream stream;
    void join(const Users& other);
  };
  // A piece of a region, free or handed out. Pieces of one region form a list in address order.
  struct Chunk {
    int64_t offset_bytes = 0;
    int64_t bytes = 0;
    int64_t requested_bytes = 0;  // 0: free
    Index region = kNone;
    Index previous = kNone;
    Index next = kNone;
    Users users;  // of a free one
  };
  // Free chunks are ordered by size, then by where they lie counted from the first region: addresses would
  // differ from run to run, and with them every choice after the first tie.
  struct FreeKey {
    int64_t bytes;
    int64_t region_number;
    int64_t offset_bytes;
    Index chunk;
    auto operator<=>(const FreeKey&) const = default;
  };
  using Bin = std::pmr::set<FreeKey>;

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override;

  bool extend(int64_t bytes);
  Block take_best_fit(int64_t bytes, Stream stream);
  void follow_users(const Users& users, Stream stream);
  void split(Index chunk, int64_t bytes);
  void absorb_next(Index chunk);
  void insert_free(Index chunk);
  void erase_free(Index chunk);
  Index new_chunk();
  void recycle_chunk(Index chunk);
  FreeKey key_of(Index chunk) const;
  void* pointer_of(const Chunk& chunk) const;
  Chunk& at(Index chunk) { return chunks_[static_cast<size_t>(chunk)]; }
  const Chunk& at(Index chunk) const { return chunks_[static_cast<size_t>(chunk)]; }

  // Keeps nodes of the containers below for reuse, so that a steady state takes nothing from the system heap.
  std::pmr::unsynchronized_pool_resource nodes_;
  std::pmr::vector<Bin> bins_;
  std::pmr::unordered_map<void*, Index> live_;
  std::vector<Chunk> chunks_;
  std::vector<Index> unused_chunks_;
  std::vector<Stream> streams_;  // that blocks came back on
  std::vector<Region> regions_;  // a base of null: given back, to be filled again
  int64_t regions_made_ = 0;
  int64_t next_region_bytes_ = 0;
};

}  // namespace headroom
