// The streams that last used the parts of a merged block. Knows streams only by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "allocators/blocks/free_list.h"

namespace headroom {

// A user is the number of a stream, kNobody, kSeveral (all streams), or a set, which owns its members until
// it is merged or released. Merging takes constant time: sets are circular lists, and a set names its last
// member. A stream may be in a set more than once.
class UserSets {
 public:
  static constexpr int32_t kNobody = BlockRecord::kNobody;
  static constexpr int32_t kSeveral = BlockRecord::kSeveral;
  static constexpr bool is_set(int32_t user) { return user < kSeveral; }

  // The users of both, which become part of the result. kSeveral when there is no memory for a set.
  int32_t merge(int32_t a, int32_t b) noexcept {
    if (a == b || b == kNobody) return a;
    if (a == kNobody) return b;
    if (!is_set(a)) std::swap(a, b);
    if (is_set(a) && member(a).user == b) return a;  // as often: one stream frees the parts in turn
    try {
      if (a != kSeveral && b != kSeveral) {
        a = as_set(a);
        b = as_set(b);
        std::swap(member(a).next, member(b).next);
        return b;
      }
    } catch (const std::bad_alloc&) {
    }
    release(a);
    release(b);
    return kSeveral;
  }

  // Calls visit(number) for each member of a set.
  template <class Visit>
  void for_each(int32_t set, const Visit& visit) const {
    const int32_t last = index_of(set);
    for (int32_t each = at(last).next;; each = at(each).next) {
      visit(at(each).user);
      if (each == last) return;
    }
  }

  // Ends a set. Does nothing for other users.
  void release(int32_t user) noexcept {
    if (is_set(user)) unused_ = std::exchange(member(user).next, unused_);
  }

 private:
  static constexpr int32_t kEnd = -1;
  struct Member {
    int32_t user = kNobody;
    int32_t next = kEnd;
  };

  static constexpr int32_t index_of(int32_t set) { return kSeveral - 1 - set; }
  static constexpr int32_t set_of(int32_t index) { return kSeveral - 1 - index; }
  Member& at(int32_t index) { return members_[static_cast<size_t>(index)]; }
  const Member& at(int32_t index) const { return members_[static_cast<size_t>(index)]; }
  Member& member(int32_t set) { return at(index_of(set)); }

  int32_t as_set(int32_t user) {
    if (is_set(user)) return user;
    int32_t index = unused_;
    if (index == kEnd) {
      index = static_cast<int32_t>(members_.size());
      members_.emplace_back();
    } else {
      unused_ = at(index).next;
    }
    at(index) = {user, index};
    return set_of(index);
  }

  std::vector<Member> members_;
  int32_t unused_ = kEnd;
};

}  // namespace headroom
