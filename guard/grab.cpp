// The strategy grab-all: the process takes what it may have when it first asks for memory, in pieces, and
// gives a piece back to the driver whenever a request needs its room, so that no neighbor can take it
// meanwhile.

#include "guard/hooks.h"

namespace headroom::guard {

HR_DRIVER CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes);
HR_DRIVER CUresult cuMemFree_v2(CUdeviceptr pointer);

namespace {

constexpr int64_t kPiece = int64_t{64} << 20;
constexpr int kMostPieces = 4096;

struct Grabbed {
  CUcontext context = nullptr;  // of all pieces
  int count = 0;
  CUdeviceptr pieces[kMostPieces];
} grabbed[kMaxCards];

}  // namespace

int64_t grabbed_bytes(int card) {
  return grabbed[card].count * kPiece;
}

void grab(const Place& place) {
  Account& account = *state.account;
  if (account.grab_bytes == 0 || place.card < 0 || state.slot < 0) return;
  Grabbed& mine = grabbed[place.card];
  if (mine.context != nullptr && mine.context != place.context) return;
  Share& share = account.slots[state.slot].cards[place.card];
  mine.context = place.context;
  while (mine.count < kMostPieces && share.held + kPiece <= account.grab_bytes &&
         take(account, state.slot, place.card, kPiece)) {
    if (real<&cuMemAlloc_v2>(&mine.pieces[mine.count], static_cast<size_t>(kPiece)) != kSuccess) {
      returned(place.card, kPiece);
      break;
    }
    ++mine.count;
    share.cached += kPiece;
  }
}

bool give_up_piece(int card) {
  Grabbed& mine = grabbed[card];
  if (mine.count == 0 || real<&cuMemFree_v2>(mine.pieces[mine.count - 1]) != kSuccess) return false;
  --mine.count;
  state.account->slots[state.slot].cards[card].cached -= kPiece;
  returned(card, kPiece);
  return true;
}

void forget_all_grabbed() {
  for (Grabbed& mine : grabbed) mine.count = 0, mine.context = nullptr;
}

void forget_grabbed(CUcontext context) {
  for (int card = 0; card < kMaxCards; ++card) {
    Grabbed& mine = grabbed[card];
    if (mine.context != context) continue;
    if (state.slot >= 0) state.account->slots[state.slot].cards[card].cached -= grabbed_bytes(card);
    returned(card, grabbed_bytes(card));
    mine.count = 0;
    mine.context = nullptr;
  }
}

}  // namespace headroom::guard
