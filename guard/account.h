// The account of what all processes of one `headroom run` hold on each card, in memory that they share. There
// is no lock in it, so a process may die at any moment: each process writes its own slot alone, and a slot
// without a living owner counts nothing. Knows no driver.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::guard {

inline constexpr int kMaxCards = 16, kMaxSlots = 256;
inline constexpr char kAccountVariable[] = "HEADROOM_GUARD";  // the account's file, for the processes
inline constexpr char kAccountFolder[] = "/dev/shm";          // where accounts are
inline constexpr char kAccountPrefix[] = "headroom-guard-";   // how their names begin
inline constexpr int64_t kNoLimit = INT64_MAX;

// The part of a limit that is kept for growth without a request (code of kernels, stacks) until it is
// measured.
inline int64_t reserve_of(int64_t limit_bytes) {
  constexpr int64_t kMost = int64_t{64} << 20;
  return limit_bytes / 16 < kMost ? limit_bytes / 16 : kMost;
}
// For so many processes, which may all grow before the next measurement.
inline int64_t reserve_of(int64_t limit_bytes, int processes) {
  const int64_t all = reserve_of(limit_bytes) * (processes < 1 ? 1 : processes);
  return all < limit_bytes / 4 ? all : limit_bytes / 4;
}

// The share of one process on one card, in bytes. Sums read `claim` before `held`.
struct Share {
  std::atomic<int64_t> claim;   // asked for; becomes `held` or 0 within a microsecond
  std::atomic<int64_t> held;    // what it asked the driver for and got, as pages
  std::atomic<int64_t> extra;   // measured: contexts, code, stacks
  std::atomic<int64_t> floor;   // the part of `extra` that contexts took when they were made
  std::atomic<int64_t> recent;  // the largest `held` since the last measurement
  std::atomic<int64_t> guess;   // the part of `held` that stands for a context in the making
  std::atomic<int64_t> growth;  // the part of `held` that pools may need or not
  std::atomic<int64_t> cached;  // the part of `held` that pools keep for the process
  std::atomic<int64_t> before;  // `held` and `extra` when the minute began
  std::atomic<int64_t> driver;  // what the driver says that the process has; 0: unknown
};

struct Slot {
  std::atomic<uint64_t> owner;  // 0: free; see owner_of
  std::atomic<uint64_t> space;  // the namespace of its process id
  std::atomic<int64_t> refusals;
  std::atomic<int64_t> refused_bytes, refused_ns;  // the last refusal
  std::atomic<int64_t> refused_others;             // what the run's other processes held then on that card
  std::atomic<int32_t> refused_card;
  Share cards[kMaxCards];
};

struct Card {
  std::atomic<uint32_t> known;  // 0: free, 1: being written, 2: valid
  unsigned char uuid[16];
  std::atomic<int64_t> limit_bytes, soft_bytes, leave_bytes;
  std::atomic<int64_t> peak_bytes;       // of the sum
  std::atomic<int64_t> context_bytes;    // the least that a process needs, once known
  std::atomic<int64_t> context_refused;  // what a context needed that did not fit
  // Figures of the driver's management library; used_bytes < 0: not measured yet.
  std::atomic<int64_t> total_bytes, used_bytes, tree_bytes, tree_peak_bytes;
  std::atomic<uint32_t> lists_processes;  // whether it tells our processes' shares
};

struct Account {
  uint32_t magic, version;
  int32_t parent;                                             // the process id of `headroom run`
  std::atomic<int64_t> limit_bytes, soft_bytes, leave_bytes;  // of cards without a limit of their own
  std::atomic<int64_t> grab_bytes;
  // A process that wants a measurement raises `wanted`; the parent answers with `measured`. Both are futexes.
  std::atomic<uint32_t> wanted, measured, is_watched;
  std::atomic<uint32_t> knows_cards;  // the parent has added all cards, in the order of nvidia-smi
  std::atomic<int64_t> minute_ns;     // when the watcher last began a minute
  std::atomic<int32_t> slots_used;
  std::atomic<uint64_t> first_refusal_of;  // owner of the first process that was refused
  std::atomic<int64_t> escaped_bytes;      // most that a process of the tree held without being counted
  std::atomic<int32_t> escaped_process;
  char command[256];
  char record_folder[256];  // where processes record, if they shall
  Card cards[kMaxCards];
  Slot slots[kMaxSlots];
};

// Makes the file of a new account and maps it; null with errno when that fails.
Account* create_account(const char* path);
// Maps an existing one; null when it is none.
Account* open_account(const char* path);
void close_account(Account* account);

// A process as a number that no other process has until the machine restarts; 0 when there is none.
uint64_t owner_of(int process);
int process_of(uint64_t owner);
// True if `ancestor` started the process, or a process that did.
bool is_descendant(int process, int ancestor);
uint64_t own_space();

// The slot of this process, taken if need be; -1 when all are taken.
int take_slot(Account& account);
// Frees slots of processes that are dead; returns how many.
int reap(Account& account);
bool is_counted(uint64_t owner);

// The number of a card, added with the common limits if it is new; -1 when there are too many.
int card_of(Account& account, const unsigned char (&uuid)[16]);

struct Sum {
  int64_t held = 0;     // all that counts, without claims
  int64_t guesses = 0;  // the part of it that stands for contexts in the making
  int64_t growth = 0;   // the part of it that pools may need or not
  int64_t claims = 0;
  int contexts = 0;          // processes with one, or that ask for memory
  bool lower_claim = false;  // of a slot below the asking one
};
Sum sum_of(const Account& account, int card, int slot = 0);
// The bytes that requests may still take on a card; at least 0.
int64_t room_on(const Account& account, int card);

// Tells what bytes are asked for: a block; a context, whose size is a guess and which may use the reserve;
// growth that a pool may need or not, which counts for the peak once it is known.
enum class Asked : uint8_t { kBlock, kContext, kGrowth };
// Counts `bytes` for a slot if the sum then is at most the limit. One call at a time for each slot.
bool take(Account& account, int slot, int card, int64_t bytes, Asked what = Asked::kBlock);
void give_back(Account& account, int slot, int card, int64_t bytes);
// Adds to a figure that this process alone writes, one call at a time: on x86 at a tenth of a locked
// addition.
void change(std::atomic<int64_t>& own, int64_t bytes);
// Counts without a check: what the driver took already.
void add_held(Account& account, int slot, int card, int64_t bytes);
void raise_to(std::atomic<int64_t>& peak, int64_t value);
void raise_peak(Account& account, int card);

// Asks the parent for a measurement and waits for it, while it lives and 5 s at most. False without one.
bool await_measurement(Account& account);
int64_t monotonic_ns();
void wake(std::atomic<uint32_t>& word);
void wait_while(std::atomic<uint32_t>& word, uint32_t value, int64_t nanoseconds);

}  // namespace headroom::guard
