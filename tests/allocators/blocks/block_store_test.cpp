// The accounts that strategies share, against a plain model.
#include "allocators/blocks/block_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "allocators/blocks/address_tree.h"
#include "allocators/blocks/first_with.h"
#include "allocators/blocks/free_list.h"
#include "tests/allocators/helpers.h"

namespace headroom {
namespace {

// Addresses are never read or written here.
std::byte* address(int64_t offset) {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>((int64_t{1} << 40) + offset));
}

// Sorted.
std::vector<int32_t> users_of(const BlockStore& store, BlockStore::Index block) {
  std::vector<int32_t> users;
  store.users().for_each(store.at(block).user, [&](int32_t user) { users.push_back(user); });
  std::sort(users.begin(), users.end());
  return users;
}

TEST(FreeList, FindsWhatASortedSetFindsAtEverySize) {
  for (const int64_t unit : {int64_t{1}, int64_t{256}, int64_t{100'000}, int64_t{1} << 45}) {
    Random random(1);
    FreeList list;
    std::vector<BlockRecord> records(8'000);
    std::map<std::pair<int64_t, uint64_t>, int32_t> numbers;
    BlockRecord* const blocks = records.data();
    std::set<std::pair<int64_t, uint64_t>> model;
    for (int step = 0; step < 8'000; ++step) {
      const bool grows = step % 4000 < 2500;  // to hundreds of entries and back to few
      if (model.empty() || random.below(100) < (grows ? 70 : 20)) {
        const std::pair<int64_t, uint64_t> key = {unit * random.below(40),
                                                  static_cast<uint64_t>(random.below(1 << 30))};
        if (model.insert(key).second) {
          blocks[step].bytes = key.first;
          blocks[step].place = key.second;
          numbers[key] = step;
          list.insert(blocks, step);
        }
      } else {
        const int64_t least = unit * random.below(40);
        auto gone = model.lower_bound({least, 0});
        if (gone == model.end()) gone = model.begin();
        if (gone->first >= least && random.below(2) == 0) {
          list.erase(blocks, list.best_fit(blocks, least));
        } else {
          list.erase(blocks, numbers[*gone]);
        }
        model.erase(gone);
      }
      const int64_t wanted = unit * random.below(42);
      const auto expected = model.lower_bound({wanted, 0});
      const FreeList::Place found = list.best_fit(blocks, wanted);
      ASSERT_EQ(found.link == nullptr, expected == model.end());
      if (found.link != nullptr) {
        ASSERT_EQ(*found.link, numbers[*expected]);
      }
      ASSERT_EQ(list.largest(blocks), model.empty() ? FreeList::kNone : numbers[*model.rbegin()]);
    }
    std::vector<std::pair<int64_t, uint64_t>> visited;
    list.for_each(blocks,
                  [&](int32_t block) { visited.emplace_back(blocks[block].bytes, blocks[block].place); });
    EXPECT_EQ(visited, std::vector(model.begin(), model.end()));
  }
}

TEST(AddressTree, FindsWhatAMapByAddressFindsAndLooksAtFewNodes) {
  for (const int blocks_at_most : {8, 300, 4'000}) {
    Random random(1);
    AddressTree tree;
    tree.prepare(static_cast<size_t>(blocks_at_most));
    std::vector<BlockRecord> records(20'000);
    BlockRecord* const blocks = records.data();
    std::map<uint64_t, int32_t> plain;
    int64_t calls = 0;
    for (int step = 0; step < 20'000; ++step) {
      if (plain.empty() || (random.below(2) == 0 && std::ssize(plain) < blocks_at_most)) {
        const auto place = static_cast<uint64_t>(random.below(1 << 30));
        if (plain.contains(place)) continue;
        blocks[step].bytes = 256 * (1 + random.below(1000));
        blocks[step].place = place;
        plain[place] = step;
        tree.insert(blocks, step);
      } else {
        auto gone = plain.lower_bound(static_cast<uint64_t>(random.below(1 << 30)));
        if (gone == plain.end()) gone = plain.begin();
        tree.erase(blocks, gone->second);
        plain.erase(gone);
      }
      const int64_t wanted = 256 * (1 + random.below(1100));
      const auto found = std::find_if(plain.begin(), plain.end(),
                                      [&](const auto& each) { return blocks[each.second].bytes >= wanted; });
      ASSERT_EQ(tree.first_fit(wanted), found == plain.end() ? AddressTree::kNone : found->second);
      int64_t largest = 0;
      for (const auto& [place, block] : plain) largest = std::max(largest, blocks[block].bytes);
      ASSERT_EQ(tree.largest_bytes(), largest);
      calls += 3;
    }
    EXPECT_LE(tree.visits(), 3 * calls);  // one of each level: log16(n) at most
  }
}

TEST(BlockStore, WhatIsGivenBackJoinsUntilTheSegmentIsOneBlock) {
  BlockStore store;
  const int32_t list = store.add_list();
  store.add_segment(address(0), 4096, list);
  std::vector<std::byte*> pointers;
  for (int i = 0; i < 4; ++i) {
    const auto block = store.best_fit(list, 1024);
    if (store.at(block).bytes > 1024) {
      store.take_head(block, 1024, 1000);
    } else {
      store.take(block, 1000);
    }
    pointers.push_back(store.at(block).pointer);
  }
  EXPECT_EQ(pointers[3], address(3072));
  EXPECT_EQ(store.best_fit(list, 1), BlockStore::kNone);
  for (const size_t i : {0u, 2u, 3u})
    EXPECT_EQ(store.give_back(pointers[i], 1000, BlockStore::kNobody).bytes, 1024);
  EXPECT_EQ(store.largest_free_bytes(), 2048);
  const auto last = store.give_back(pointers[1], 1000, BlockStore::kNobody);
  EXPECT_EQ(last.bytes, 1024);
  EXPECT_TRUE(store.covers_segment(last.block));
  EXPECT_EQ(store.at(last.block).bytes, 4096);
}

TEST(BlockStore, BlocksOfDifferentListsOrSegmentsDoNotJoin) {
  BlockStore store;
  const int32_t one = store.add_list();
  const int32_t other = store.add_list();
  const auto first = store.add_segment(address(0), 1024, one);
  store.add_segment(address(1024), 1024, one);
  store.take_head(first, 512, 512);
  const auto rest = store.best_fit(one, 512);
  store.move_all(one, other);
  store.give_back(address(0), 512, BlockStore::kNobody);
  EXPECT_EQ(store.largest_free_bytes(), 1024);
  EXPECT_EQ(store.best_fit(other, 1), rest);
  store.move_all(other, one);
  EXPECT_TRUE(store.covers_segment(store.best_fit(one, 1024)));
}

TEST(BlockStore, PartsKnowWhoUsedThemLast) {
  BlockStore store;
  const int32_t list = store.add_list();
  const auto whole = store.add_segment(address(0), 1024, list);
  EXPECT_EQ(store.at(whole).user, BlockStore::kNobody);
  store.take(whole, 1024);
  store.give_back(address(0), 1024, 3);
  const auto head = store.take_head(store.best_fit(list, 512), 512, 512);
  EXPECT_EQ(store.at(head).user, 3);
  EXPECT_EQ(store.at(store.best_fit(list, 512)).user, 3);
  EXPECT_EQ(store.at(store.give_back(address(0), 512, 3).block).user, 3);
  const auto tail = store.take_tail(store.best_fit(list, 512), 512, 512);
  EXPECT_EQ(store.at(tail).pointer, address(512));
  const auto merged = store.give_back(address(512), 512, 4).block;
  EXPECT_EQ(users_of(store, merged), (std::vector<int32_t>{3, 4}));
  store.replace_user(merged, 5);
  EXPECT_EQ(store.at(merged).user, 5);
}

TEST(BlockStore, AMergedBlockHasTheUsersOfItsPartsAndNoOthers) {
  constexpr int kParts = 1000;
  Random random(7);
  BlockStore store;
  const int32_t list = store.add_list();
  store.add_segment(address(0), kParts * 256, list);
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 0; i < kParts; ++i) {
      const auto free = store.best_fit(list, 256);
      if (store.at(free).bytes > 256) {
        store.take_head(free, 256, 256);
      } else {
        store.take(free, 256);
      }
    }
    std::set<int32_t> used;
    std::vector<int> order(kParts);
    for (int i = 0; i < kParts; ++i) order[static_cast<size_t>(i)] = i;
    for (int i = kParts - 1; i > 0; --i) {
      std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random.below(i + 1))]);
    }
    for (const int part : order) {
      const auto user = static_cast<int32_t>(random.below(40));
      used.insert(user);
      store.give_back(address(part * 256), 256, user);
    }
    const auto whole = store.best_fit(list, kParts * 256);
    ASSERT_TRUE(store.covers_segment(whole));
    const std::vector<int32_t> users = users_of(store, whole);
    EXPECT_EQ(std::set<int32_t>(users.begin(), users.end()), used);
    EXPECT_LE(users.size(), static_cast<size_t>(kParts));
    store.replace_user(whole, turn);
  }
}

TEST(FirstWith, FindsWhatASearchOfAllFinds) {
  Random random(3);
  FirstWith tree;
  std::vector<int64_t> model;
  EXPECT_EQ(tree.find(0, 1), FirstWith::kNone);
  for (int step = 0; step < 20'000; ++step) {
    const auto number = static_cast<int32_t>(random.below(step < 2000 ? 3 : 70));
    if (static_cast<size_t>(number) >= model.size()) model.resize(static_cast<size_t>(number) + 1);
    model[static_cast<size_t>(number)] = random.below(4) == 0 ? 0 : random.below(1000);
    tree.set(number, model[static_cast<size_t>(number)]);
    const auto from = static_cast<int32_t>(random.below(80));
    const int64_t bytes = 1 + random.below(1100);
    int32_t expected = from;
    while (static_cast<size_t>(expected) < model.size() && model[static_cast<size_t>(expected)] < bytes)
      ++expected;
    if (static_cast<size_t>(expected) >= model.size()) expected = FirstWith::kNone;
    ASSERT_EQ(tree.find(from, bytes), expected);
  }
}

TEST(BlockStore, OnlyWhatWasHandedOutIsTakenBackAndOnlyOnce) {
  BlockStore store;
  const int32_t list = store.add_list();
  EXPECT_EQ(store.give_back(address(0), 256, BlockStore::kNobody).block, BlockStore::kNone);
  store.take(store.add_segment(address(0), 1024, list), 1000);
  EXPECT_EQ(store.give_back(address(256), 1000, BlockStore::kNobody).block, BlockStore::kNone);
  EXPECT_EQ(store.give_back(address(0), 999, BlockStore::kNobody).block, BlockStore::kNone);
  EXPECT_NE(store.give_back(address(0), 1000, BlockStore::kNobody).block, BlockStore::kNone);
  EXPECT_EQ(store.give_back(address(0), 1000, BlockStore::kNobody).block, BlockStore::kNone);
}

TEST(BlockStore, KeepsApartThousandsOfBlocksOfManySegments) {
  Random random(2);
  BlockStore store;
  const int32_t list = store.add_list();
  std::map<std::byte*, int64_t> live;
  int64_t end = 0, held = 0;
  for (int step = 0; step < 30'000; ++step) {
    const bool grows = step < 15'000;
    if (live.empty() || random.below(100) < (grows ? 75 : 30)) {
      const int64_t bytes = 256 * (1 + random.below(60));
      auto block = store.best_fit(list, bytes);
      if (block == BlockStore::kNone) {
        const int64_t segment = 256 * (60 + random.below(200));
        block = store.add_segment(address(end), segment, list);
        end += segment + 256 * random.below(3);  // some segments touch: blocks must not join across
        held += segment;
      }
      if (store.at(block).bytes > bytes) {
        store.take_head(block, bytes, bytes);
      } else {
        store.take(block, bytes);
      }
      const auto [at, fresh] = live.emplace(store.at(block).pointer, bytes);
      ASSERT_TRUE(fresh);
      if (at != live.begin()) {
        ASSERT_LE(std::prev(at)->first + std::prev(at)->second, at->first);
      }
      if (std::next(at) != live.end()) {
        ASSERT_LE(at->first + bytes, std::next(at)->first);
      }
    } else {
      auto gone = live.lower_bound(address(random.below(end)));
      if (gone == live.end()) gone = live.begin();
      ASSERT_EQ(store.give_back(gone->first, gone->second, BlockStore::kNobody).bytes, gone->second);
      live.erase(gone);
    }
  }
  for (const auto& [pointer, bytes] : live) store.give_back(pointer, bytes, BlockStore::kNobody);
  int64_t free = 0;
  store.for_each_segment([&](BlockStore::Index block) {
    EXPECT_TRUE(store.covers_segment(block));
    free += store.at(block).bytes;
    store.remove_segment(block);
  });
  EXPECT_EQ(free, held);
  EXPECT_EQ(store.largest_free_bytes(), 0);
}

}  // namespace
}  // namespace headroom
