// The physical pages of `mapped` and the addresses they are mapped at. A page that leaves its place stays
// mapped there, so that it can come back without a call of the driver. Knows no request and no lane.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "allocators/strategies/mapped_range.h"
#include "runtime/device/stream.h"
#include "runtime/device/virtual_memory.h"

namespace headroom {

// A range of addresses for the blocks of one stream, with pages of one size.
struct MappedSpace {
  // What is mapped at one page of addresses. In its place it has memory for blocks; otherwise it is somewhere
  // else by now.
  struct Address {
    int32_t page = -1;
    bool is_lent = false;    // in its place, and not at home
    bool is_abroad = false;  // belongs to another stream by now
    int64_t left_at = 0;     // when its place was last taken from it
  };

  // `bytes` is rounded up to whole pages, and halved while the process has no addresses for so many (a limit
  // on them, a sanitizer). Without a base, which the owner is to look at, there were none at all.
  MappedSpace(VirtualMemory& memory, Stream stream, int64_t bytes, int64_t page_bytes, MappedRange::Fit fit);
  ~MappedSpace();
  MappedSpace(const MappedSpace&) = delete;
  MappedSpace& operator=(const MappedSpace&) = delete;

  bool has(const void* pointer) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer), first = reinterpret_cast<uintptr_t>(base);
    return address >= first && address - first < static_cast<uintptr_t>(bytes);
  }
  // Those that so many bytes at `offset` touch.
  PageRow pages_under(int64_t offset, int64_t block_bytes) const {
    const int64_t first = offset / page_bytes;
    return {first, (offset + block_bytes - 1) / page_bytes + 1 - first};
  }

  VirtualMemory& memory;
  const Stream stream;
  const int64_t page_bytes, bytes;
  char* const base;
  uint32_t number = 0;  // among all of MappedPages
  MappedRange range;
  std::vector<Address> addresses;  // as far as any was ever used
  int64_t lent = 0;                // of these
  // Where pages were last brought under a block, by what was asked for and what was live.
  std::unordered_map<uint64_t, int64_t> places;

 private:
  struct Addresses {
    char* base = nullptr;
    int64_t bytes = 0;
  };
  static Addresses reserve(VirtualMemory& memory, int64_t bytes, int64_t page_bytes);
  MappedSpace(VirtualMemory& memory, Stream stream, int64_t page_bytes, MappedRange::Fit fit,
              const Addresses& reserved);
};

// What throws std::bad_alloc has then changed nothing.
class MappedPages {
 public:
  using Index = int32_t;
  static constexpr Index kNone = -1;

  // `count` is told of each call of the driver: the bytes that came or, as a negative number, went; zero when
  // one was mapped or unmapped.
  MappedPages(VirtualMemory& memory, std::function<void(int64_t bytes)> count);
  // All work on the pages is done.
  ~MappedPages();
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;

  // Knows a space from now on, which must outlive this. Throws std::bad_alloc.
  void add(MappedSpace& space);
  // A spare page, which lies nowhere; false when the device has no room. Throws std::bad_alloc, and what the
  // device throws.
  bool create(int64_t bytes);
  // Gives a spare page back to the device, and its addresses free. The work on it is done.
  void release(Index spare) noexcept;
  // Makes idle pages of a space spare ones. Throws std::bad_alloc.
  void lift(MappedSpace& space, int64_t first, int64_t count, int64_t now);
  // Puts spare pages in the order of their homes: side by side they move together.
  void sort_spare() noexcept;
  // Gives a spare page its place: maps it there unless it still is, in place of what else still is; the work
  // on that is done. It has its home there from now on if that is `for_good`, if it has none yet, or if that
  // is on another stream. False when the driver refuses. Throws std::bad_alloc.
  bool settle(Index spare, MappedSpace& space, int64_t at, bool for_good);
  // Ends all mappings of pages that are not in their place. The work on them is done.
  void forget_addresses() noexcept;

  // Sends those home of these idle pages that have their home elsewhere. This and the next three touch no
  // page of another stream, so that streams need not wait for each other. Throws std::bad_alloc.
  void send_home(MappedSpace& space, const PageRow& row, int64_t now);
  // Whether pages that are not in their place are idle elsewhere and still mapped here, each once as far as
  // is seen at a glance.
  bool can_come_back(const MappedSpace& space, const PageRow& row) const;
  // Brings such pages back to addresses that have been counted as having memory; false when one did not come.
  // Throws std::bad_alloc.
  bool bring_back(MappedSpace& space, const PageRow& row, int64_t now);
  bool is_in_place(const MappedSpace& space, int64_t at) const;
  const std::vector<Index>& spare() const { return spare_; }
  int64_t bytes_of(Index page) const { return memory_of(page).block.bytes; }
  // The space that a page is in its place in; null for a spare one.
  MappedSpace* space_of(Index page) const { return space_of(at(page).place); }
  int64_t place_of(Index page) const { return number_of(at(page).place); }
  // Of all numbers of pages: as many as there may be.
  size_t numbers() const { return pages_.size(); }
  int64_t held_bytes() const { return held_bytes_; }

 private:
  // A page of addresses: the number of its space in the upper half, which page of it in the lower one, so
  // that those that lie side by side are numbers in a row.
  using Where = uint64_t;
  static constexpr Where kNowhere = ~Where{0};
  static Where where(const MappedSpace& space, int64_t at) {
    return Where{space.number} << 32 | static_cast<Where>(at);
  }
  static int64_t number_of(Where where) { return static_cast<int64_t>(where & 0xFFFFFFFF); }
  MappedSpace* space_of(Where where) const { return where == kNowhere ? nullptr : spaces_[where >> 32]; }

  // What changes when pages move, hundreds at once.
  struct Page {
    Where place = kNowhere;  // nowhere: spare
    Where home = kNowhere;
  };
  struct Memory {
    PhysicalBlock block;  // of no bytes: the number is unused
    std::vector<Where> mappings;
  };
  // Pages that lie side by side.
  struct Run {
    MappedSpace* space = nullptr;
    PageRow row = {};
  };

  Page& at(Index page) { return pages_[static_cast<size_t>(page)]; }
  const Page& at(Index page) const { return pages_[static_cast<size_t>(page)]; }
  Memory& memory_of(Index page) { return memories_[static_cast<size_t>(page)]; }
  const Memory& memory_of(Index page) const { return memories_[static_cast<size_t>(page)]; }
  MappedSpace::Address& address_at(Where where) const {
    return space_of(where)->addresses[static_cast<size_t>(number_of(where))];
  }
  char* pointer_to(Where where) const {
    return space_of(where)->base + number_of(where) * space_of(where)->page_bytes;
  }
  Run idle_elsewhere(const MappedSpace& space, int64_t first, int64_t end) const;
  void move(MappedSpace& from, int64_t first, MappedSpace& to, const PageRow& row, int64_t now) noexcept;
  void take_place(MappedSpace& space, int64_t place, int64_t now) noexcept;
  void note_stream(Index page, Stream stream) noexcept;
  void unmap(Index page, Where mapping) noexcept;
  void end_mapping(Where mapping) noexcept;

  VirtualMemory& memory_;
  const std::function<void(int64_t)> count_;
  std::vector<MappedSpace*> spaces_;
  std::vector<Page> pages_;
  std::vector<Memory> memories_;  // of the same numbers
  std::vector<Index> spare_, unused_;
  int64_t held_bytes_ = 0;
};

}  // namespace headroom
