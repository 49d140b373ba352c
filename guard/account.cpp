#include "guard/account.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace headroom::guard {
namespace {

constexpr uint32_t kMagic = 0x48524755, kVersion = 4;
// An owner is a process id (22 bits are Linux's most), its start time in ticks above it, and this mark while
// its slot is not filled in.
constexpr uint64_t kStarting = uint64_t{1} << 63;
constexpr int kPidBits = 22;

Account* map(int file) {
  void* at = mmap(nullptr, sizeof(Account), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return at == MAP_FAILED ? nullptr : static_cast<Account*>(at);
}

struct Stat {
  char state = 0;
  int parent = 0;
  uint64_t start = 0;  // in ticks
};

// From /proc/PID/stat after the name, which may hold anything; false when the process is gone.
bool read_stat(int process, Stat* stat) {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", process);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t got = read(file, text, sizeof text - 1);
  close(file);
  if (got <= 0) return false;
  text[got] = 0;
  const char* at = strrchr(text, ')');
  if (at == nullptr || at[1] == 0) return false;
  long threads = 0;
  // Fields 3 to 22. A leader that ended before its other threads is a zombie as well.
  const int fields =
      sscanf(at + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %lu",
             &stat->state, &stat->parent, &threads, &stat->start);
  if (fields != 4) return false;
  if ((stat->state == 'Z' || stat->state == 'X') && threads > 1) stat->state = 'S';
  return true;
}

// The watcher sets `recent` anew and then reads `held`; here `held` is written before `recent` is read.
void hold(Share& share, int64_t bytes) {
  const int64_t held = share.held.load(std::memory_order_relaxed) + bytes;
  share.held = held;
  if (held > share.recent.load(std::memory_order_relaxed))
    share.recent.store(held, std::memory_order_release);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Account* create_account(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  if (ftruncate(file, sizeof(Account)) != 0) {
    const int why = errno;
    close(file);
    unlink(path);
    errno = why;
    return nullptr;
  }
  Account* account = map(file);
  if (account == nullptr) return nullptr;
  account->parent = getpid();
  account->limit_bytes = account->soft_bytes = kNoLimit;
  account->version = kVersion;
  account->magic = kMagic;
  return account;
}

Account* open_account(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return nullptr;
  struct stat facts;
  if (fstat(file, &facts) != 0 || facts.st_size != sizeof(Account)) {
    close(file);
    return nullptr;
  }
  Account* account = map(file);
  if (account != nullptr && (account->magic != kMagic || account->version != kVersion)) {
    close_account(account);
    return nullptr;
  }
  return account;
}

void close_account(Account* account) {
  if (account != nullptr) munmap(account, sizeof(Account));
}

uint64_t owner_of(int process) {
  Stat stat;
  if (!read_stat(process, &stat) || stat.state == 'Z' || stat.state == 'X') return 0;
  return (stat.start << kPidBits | static_cast<uint64_t>(process)) & ~kStarting;
}

bool is_descendant(int process, int ancestor) {
  for (int depth = 0; depth < 64 && process > 1; ++depth) {
    Stat stat;
    if (!read_stat(process, &stat)) return false;
    if (stat.parent == ancestor) return true;
    process = stat.parent;
  }
  return false;
}

int process_of(uint64_t owner) {
  return static_cast<int>(owner & ((uint64_t{1} << kPidBits) - 1));
}

uint64_t own_space() {
  struct stat facts;
  return stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

bool is_counted(uint64_t owner) {
  return owner != 0 && (owner & kStarting) == 0;
}

int take_slot(Account& account) {
  const uint64_t me = owner_of(getpid()), space = own_space();
  const auto fill = [&](int number) {
    Slot& slot = account.slots[number];
    slot.space = space;
    slot.refusals = slot.refused_bytes = slot.refused_ns = slot.refused_others = 0;
    for (Share& share : slot.cards) {
      share.claim = share.held = share.extra = share.floor = share.recent = share.guess = share.growth =
          share.cached = share.before = share.driver = 0;
    }
    slot.owner = me;
    return number;
  };
  const int used = account.slots_used;
  for (int i = 0; i < used; ++i) {
    // A program that this process was before exec; its memory is gone.
    if ((account.slots[i].owner & ~kStarting) == me && account.slots[i].space == space) return fill(i);
  }
  reap(account);
  for (int i = 0; i < kMaxSlots; ++i) {
    uint64_t none = 0;
    if (!account.slots[i].owner.compare_exchange_strong(none, me | kStarting)) continue;
    account.slots[i].space = space;
    for (int32_t so_far = account.slots_used;
         so_far <= i && !account.slots_used.compare_exchange_weak(so_far, i + 1);) {
    }
    return fill(i);
  }
  return -1;
}

int reap(Account& account) {
  static const uint64_t space = own_space();
  int freed = 0;
  const int used = account.slots_used;
  for (int i = 0; i < used; ++i) {
    uint64_t owner = account.slots[i].owner;
    if (owner == 0 || account.slots[i].space != space) continue;
    const uint64_t process = owner & ~kStarting;
    if (owner_of(process_of(process)) == process) continue;
    if (account.slots[i].owner.compare_exchange_strong(owner, 0)) ++freed;
  }
  return freed;
}

int card_of(Account& account, const unsigned char (&uuid)[16]) {
  for (int i = 0; i < kMaxCards; ++i) {
    Card& card = account.cards[i];
    uint32_t free = 0;
    if (card.known == 0 && card.known.compare_exchange_strong(free, 1)) {
      memcpy(card.uuid, uuid, sizeof card.uuid);
      card.limit_bytes = account.limit_bytes.load();
      card.soft_bytes = account.soft_bytes.load();
      card.leave_bytes = account.leave_bytes.load();
      card.used_bytes = -1;
      card.known = 2;
      return i;
    }
    while (card.known == 1) relax();
    if (memcmp(card.uuid, uuid, sizeof card.uuid) == 0) return i;
  }
  return -1;
}

Sum sum_of(const Account& account, int card, int slot) {
  Sum sum;
  const int used = account.slots_used;
  for (int i = 0; i < used; ++i) {
    if (!is_counted(account.slots[i].owner)) continue;
    const Share& share = account.slots[i].cards[card];
    const int64_t claim = share.claim;
    const int64_t guess = share.guess;
    sum.claims += claim;
    sum.guesses += guess;
    sum.growth += share.growth;
    sum.held += share.held + share.extra;
    if (share.floor > 0 || guess > 0 || claim > 0) ++sum.contexts;
    if (i < slot && claim > 0) sum.lower_claim = true;
  }
  return sum;
}

int64_t room_on(const Account& account, int card) {
  const int64_t limit = account.cards[card].limit_bytes;
  if (limit == kNoLimit) return kNoLimit;
  const Sum sum = sum_of(account, card);
  const int64_t left = limit - reserve_of(limit, sum.contexts) - sum.held - sum.claims;
  return left > 0 ? left : 0;
}

void raise_peak(Account& account, int card) {
  const Sum sum = sum_of(account, card);
  raise_to(account.cards[card].peak_bytes, sum.held - sum.guesses - sum.growth);
}

void raise_to(std::atomic<int64_t>& peak, int64_t value) {
  for (int64_t before = peak; before < value && !peak.compare_exchange_weak(before, value);) {
  }
}

void change(std::atomic<int64_t>& own, int64_t bytes) {
  own.store(own.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
}

void add_held(Account& account, int slot, int card, int64_t bytes) {
  hold(account.slots[slot].cards[card], bytes);
  if (bytes > 0) raise_peak(account, card);
}

void give_back(Account& account, int slot, int card, int64_t bytes) {
  change(account.slots[slot].cards[card].held, -bytes);
}

// Each process shows its claim before it sums, so of two at the edge at least one sees the other. The one
// with the lowest slot keeps its claim and sums again; the others withdraw theirs and wait for it.
bool take(Account& account, int slot, int card, int64_t bytes, Asked what) {
  const bool guesses = what == Asked::kContext;
  const int64_t limit = account.cards[card].limit_bytes;
  Share& share = account.slots[slot].cards[card];
  constexpr int kTries = 20000, kSpins = 64;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    share.claim = bytes;
    const Sum sum = sum_of(account, card, slot);
    // A context may use half of the reserve: its process loads code next.
    const int64_t reserve = reserve_of(limit, sum.contexts) / (guesses ? 2 : 1);
    const int64_t top = limit == kNoLimit ? limit : limit - reserve;
    if (sum.held <= top - sum.claims) {
      if (guesses) share.guess = bytes;
      hold(share, bytes);
      share.claim.store(0, std::memory_order_release);
      if (what == Asked::kBlock)
        raise_to(account.cards[card].peak_bytes, sum.held - sum.guesses - sum.growth + bytes);
      return true;
    }
    if (sum.held > top - bytes) break;
    if (sum.lower_claim) share.claim = 0;
    if (attempt < kSpins)
      relax();
    else
      sched_yield();
    if (attempt == kTries / 2) reap(account);
  }
  share.claim = 0;
  return false;
}

int64_t monotonic_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * int64_t{1000000000} + time.tv_nsec;
}

void wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void wait_while(std::atomic<uint32_t>& word, uint32_t value, int64_t nanoseconds) {
  const timespec time{static_cast<time_t>(nanoseconds / 1000000000),
                      static_cast<long>(nanoseconds % 1000000000)};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, &time, nullptr, 0);
}

bool await_measurement(Account& account) {
  if (account.is_watched == 0) return false;
  const uint32_t wanted = account.wanted.fetch_add(1) + 1;
  wake(account.wanted);
  // The first time the parent still opens the management library. Other measurements may wake us before.
  for (const int64_t end = monotonic_ns() + 5'000'000'000; monotonic_ns() < end;) {
    const uint32_t measured = account.measured;
    if (static_cast<int32_t>(measured - wanted) >= 0) return true;
    wait_while(account.measured, measured, 100000000);
    if (owner_of(account.parent) == 0) break;
  }
  return false;
}

}  // namespace headroom::guard
