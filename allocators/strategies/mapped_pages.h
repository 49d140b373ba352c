// The physical pages of `mapped` and the addresses they are mapped at. A page that leaves its place stays
// mapped there, so that it can return without a driver call. Knows no request and no lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "allocators/blocks/counted_bits.h"
#include "allocators/strategies/mapped_range.h"
#include "device/stream.h"
#include "device/virtual_memory.h"

namespace headroom {

// An address range for blocks of one stream, with pages of one size.
struct MappedSpace {
  // The page mapped at one page of addresses. It provides memory here only if this is its place.
  struct Address {
    int32_t page = -1;
    bool is_lent = false;    // in place, but its home is elsewhere
    bool is_abroad = false;  // belongs to another stream now
    int64_t left_at = 0;     // when it last lost its place here
  };

  // `bytes` is rounded up to whole pages, and halved while the process has too few addresses (because of a
  // limit or a sanitizer). `base` is null if there are none at all; the owner must check.
  MappedSpace(VirtualMemory& memory, Stream stream, int64_t bytes, int64_t page_bytes, MappedRange::Fit fit);
  ~MappedSpace();
  MappedSpace(const MappedSpace&) = delete;
  MappedSpace& operator=(const MappedSpace&) = delete;

  bool has(const void* pointer) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer), first = reinterpret_cast<uintptr_t>(base);
    return address >= first && address - first < static_cast<uintptr_t>(bytes);
  }
  // The pages that a block touches.
  PageRow pages_under(int64_t offset, int64_t block_bytes) const {
    const int64_t first = offset / page_bytes;
    return {first, (offset + block_bytes - 1) / page_bytes + 1 - first};
  }

  // Makes room in `addresses`. Throws std::bad_alloc.
  void use_up_to(int64_t end) {
    if (static_cast<size_t>(end) <= addresses.size()) return;
    has_page.grow(end);
    addresses.resize(static_cast<size_t>(end));
  }

  VirtualMemory& memory;
  const Stream stream;
  const int64_t page_bytes, bytes;
  char* const base;
  uint32_t number = 0;  // in MappedPages
  MappedRange range;
  std::vector<Address> addresses;  // up to the highest ever used
  CountedBits has_page;            // set for those that have a page mapped
  int64_t lent = 0;                // number of lent pages
  // Offsets where pages were last moved under a block, by requested and live bytes.
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

// Functions that throw std::bad_alloc change nothing then.
class MappedPages {
 public:
  using Index = int32_t;
  static constexpr Index kNone = -1;

  // `count` is called for each driver call with the bytes created, released (negative), or 0 for a mapping.
  MappedPages(VirtualMemory& memory, std::function<void(int64_t bytes)> count);
  // All work on the pages must be done.
  ~MappedPages();
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;

  // Adds a space, which must outlive this. Throws std::bad_alloc.
  void add(MappedSpace& space);
  // Creates a spare page, one without a place; returns false if the device has no room. Throws
  // std::bad_alloc, and the device's exceptions.
  bool create(int64_t bytes);
  // Releases a spare page and its mappings. The work on it must be done.
  void release(Index spare) noexcept;
  // Makes idle pages of a space spare. Throws std::bad_alloc.
  void lift(MappedSpace& space, int64_t first, int64_t count, int64_t now);
  // Sorts spare pages by home, so that neighbors move together.
  void sort_spare() noexcept;
  // Gives a spare page a place: maps it there unless it still is, instead of any other page, whose work must
  // be done. The place becomes its home if `for_good`, if it has none, or if its home is on another stream.
  // False when the driver refuses. Throws std::bad_alloc. Only while a Settling lives.
  bool settle(Index spare, MappedSpace& space, int64_t at, bool for_good);
  // Takes the pages that were settled while it lived from the spare ones, all at once.
  class Settling {
   public:
    explicit Settling(MappedPages& pages) : pages_(pages) {}
    ~Settling() {
      std::erase_if(pages_.spare_, [&](Index page) { return pages_.at(page).place != kNowhere; });
    }
    Settling(const Settling&) = delete;
    Settling& operator=(const Settling&) = delete;

   private:
    MappedPages& pages_;
  };
  // Maps pages[i] at places[i] unless it is mapped there, runs of places in one call, so that settle() need
  // not. The work on other pages there must be done. Does nothing if the driver refuses. Throws
  // std::bad_alloc.
  void map(MappedSpace& space, std::span<const int64_t> places, std::span<const Index> pages);
  // Unmaps pages everywhere but at their places and homes. The work on them must be done.
  void forget_addresses() noexcept;

  // Sends lent pages among these idle pages home. This and the next three touch no page of another stream, so
  // that streams need not wait for each other. Throws std::bad_alloc.
  void send_home(MappedSpace& space, const PageRow& row, int64_t now);
  // Returns true if these pages are idle elsewhere and still mapped here. Does not detect a page mapped here
  // twice.
  bool can_come_back(const MappedSpace& space, const PageRow& row) const;
  // Moves such pages back to addresses that already count as mapped; false when one could not move. Throws
  // std::bad_alloc.
  bool bring_back(MappedSpace& space, const PageRow& row, int64_t now);
  bool is_in_place(const MappedSpace& space, int64_t at) const;
  const std::vector<Index>& spare() const { return spare_; }
  // Calls visit(at) for each page of addresses in the space where the page is mapped.
  template <class Visit>
  void for_each_mapping(Index page, const MappedSpace& space, const Visit& visit) const {
    for (const Where mapping : memory_of(page).mappings) {
      if (mapping >> 32 == space.number) visit(number_of(mapping));
    }
  }
  int64_t bytes_of(Index page) const { return memory_of(page).block.bytes; }
  // The space of a page's place; null for a spare one.
  MappedSpace* space_of(Index page) const { return space_of(at(page).place); }
  int64_t place_of(Index page) const { return number_of(at(page).place); }
  // One more than the highest page index.
  size_t numbers() const { return pages_.size(); }
  int64_t held_bytes() const { return held_bytes_; }

 private:
  // A page of addresses: the number of its space in the upper half, the page in the lower half, so that
  // neighbors have consecutive numbers.
  using Where = uint64_t;
  static constexpr Where kNowhere = ~Where{0};
  static Where where(const MappedSpace& space, int64_t at) {
    return Where{space.number} << 32 | static_cast<Where>(at);
  }
  static int64_t number_of(Where where) { return static_cast<int64_t>(where & 0xFFFFFFFF); }
  MappedSpace* space_of(Where where) const { return where == kNowhere ? nullptr : spaces_[where >> 32]; }

  // The part that changes when pages move, hundreds at once.
  struct Page {
    Where place = kNowhere;  // kNowhere: spare
    Where home = kNowhere;
  };
  struct Memory {
    PhysicalBlock block;  // no bytes: the index is unused
    std::vector<Where> mappings;
  };
  // Neighboring pages.
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
  void note_mapped(Index page, MappedSpace& space, int64_t place) noexcept;
  void take_place(MappedSpace& space, int64_t place, int64_t now) noexcept;
  void note_stream(Index page, Stream stream) noexcept;
  void unmap(Index page, Where mapping) noexcept;
  void end_mapping(Where mapping) noexcept;

  VirtualMemory& memory_;
  const std::function<void(int64_t)> count_;
  std::vector<MappedSpace*> spaces_;
  std::vector<Page> pages_;
  std::vector<Memory> memories_;  // by the same index
  std::vector<Index> spare_, unused_;
  std::vector<PhysicalBlock> run_;  // pages that map() maps at once
  int64_t held_bytes_ = 0;
};

}  // namespace headroom
