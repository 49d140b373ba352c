// Asking the account for this process, and what the hooks know of devices and contexts.

#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "guard/hooks.h"

namespace headroom::guard {
namespace {

std::atomic<int> card_of_ordinal[kMaxOrdinals];  // card + 1; 0: not asked yet

int64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * int64_t{1000000000} + time.tv_nsec;
}

// Above the soft limit only while neighbors keep room.
bool leaves_room(const Card& card, int64_t sum, int64_t bytes) {
  if (sum + bytes <= card.soft_bytes || card.used_bytes < 0) return true;
  return card.total_bytes - card.used_bytes - bytes >= card.leave_bytes;
}

}  // namespace

int card_of_device(CUdevice device) {
  if (state.account == nullptr || device < 0 || device >= kMaxOrdinals) return -1;
  if (const int known = card_of_ordinal[device]) return known - 1;
  if (!open_driver()) return -1;
  CUuuid uuid;
  const auto get = driver.cuDeviceGetUuid_v2 != nullptr ? driver.cuDeviceGetUuid_v2 : driver.cuDeviceGetUuid;
  if (get == nullptr || get(&uuid, device) != kSuccess) return -1;
  // Cards have the numbers of nvidia-smi, so the parent adds them.
  if (state.account->knows_cards == 0) await_measurement(*state.account);
  const int card = card_of(*state.account, uuid.bytes);
  if (card >= 0 && card_of_ordinal[device].exchange(card + 1) == 0) state.devices++;
  return card;
}

Place here() {
  static thread_local Place last;
  static thread_local uint32_t epoch;
  if (state.account == nullptr || !open_driver() || driver.cuCtxGetCurrent == nullptr) return {};
  CUcontext context = nullptr;
  if (driver.cuCtxGetCurrent(&context) != kSuccess || context == nullptr) return {};
  if (context == last.context && epoch == state.epoch) return last;
  Place place{context, 0, -1};
  if (driver.cuCtxGetDevice(&place.device) != kSuccess) return {};
  place.card = card_of_device(place.device);
  epoch = state.epoch;
  return last = place;
}

bool ask(int card, int64_t bytes, Asked what) {
  if (bytes == 0) return true;
  Account& account = *state.account;
  if (state.slot < 0) state.slot = take_slot(account);
  if (state.slot < 0) return false;
  const auto try_once = [&] {
    return leaves_room(account.cards[card], sum_of(account, card).held, bytes) &&
           take(account, state.slot, card, bytes, what);
  };
  const bool is_soft = account.cards[card].soft_bytes != kNoLimit;
  if (is_soft ? try_once() : take(account, state.slot, card, bytes, what)) return true;
  reap(account);
  settle_pools(card, true);
  while (!try_once()) {
    if (!give_up_piece(card)) return false;
  }
  return true;
}

void returned(int card, int64_t bytes) {
  if (bytes != 0 && state.slot >= 0) give_back(*state.account, state.slot, card, bytes);
}

void Mutex::await() const {
  constexpr timespec kMoment{0, 50000};
  for (int looks = 0; word_.load(std::memory_order_relaxed) != 0; ++looks) {
    if (looks < 100)
      sched_yield();
    else
      syscall(SYS_nanosleep, &kMoment, nullptr);  // usleep would be a point where a thread may be cancelled
  }
}

CUresult refused(int card, int64_t bytes) {
  if (state.slot < 0) return kCudaOutOfMemory;
  Slot& slot = state.account->slots[state.slot];
  slot.refused_bytes = bytes;
  slot.refused_card = card;
  const Share& own = slot.cards[card];
  slot.refused_others = sum_of(*state.account, card).held - own.held - own.extra;
  slot.refused_ns = now_ns();
  slot.refusals++;
  record(Call::kRefused, Kind::kNone, card, 0, bytes);
  uint64_t none = 0;
  state.account->first_refusal_of.compare_exchange_strong(none, slot.owner);
  return kCudaOutOfMemory;
}

// The driver cuts requests below half a page from pages that they share.
int64_t pages_for(int card, int64_t bytes) {
  if (bytes > kPage / 2) return round_up(bytes, kPage);
  int64_t& small = state.small_bytes[card];
  const int64_t before = round_up(small, kPage);
  small += round_up(bytes, 512);
  return round_up(small, kPage) - before;
}

int64_t pages_without(int card, int64_t bytes) {
  if (bytes > kPage / 2) return round_up(bytes, kPage);
  int64_t& small = state.small_bytes[card];
  const int64_t before = round_up(small, kPage);
  small -= round_up(bytes, 512);
  return before - round_up(small, kPage);
}

void forget_context(CUcontext context) {
  state.epoch++;
  forget_grabbed(context);
  Share* shares = state.slot < 0 ? nullptr : state.account->slots[state.slot].cards;
  state.blocks.erase_if([&](const Block& block) {
    if (block.kind == Kind::kContext && block.key == reinterpret_cast<uint64_t>(context)) {
      shares[block.card].extra -= block.bytes;
      shares[block.card].floor -= block.bytes;
      record(Call::kFree, block.kind, block.card, block.key, block.bytes);
      return true;
    }
    if (block.owner != reinterpret_cast<uint64_t>(context)) return false;
    if (block.kind != Kind::kMemory && block.kind != Kind::kArray) return false;
    returned(block.card, pages_without(block.card, block.bytes));
    record(Call::kFree, block.kind, block.card, block.key, block.bytes);
    return true;
  });
}

}  // namespace headroom::guard
