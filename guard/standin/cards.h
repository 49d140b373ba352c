// The simulated cards of the stand-in driver: how much each has and which process holds how much of it, in a
// file that all processes map. It shares no code with the account that it is there to check. Only for tests.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace standin {

constexpr int kMaxCards = 8, kMaxProcesses = 512;

struct Process {
  int pid;
  unsigned long start;  // a pid may come again
  int64_t used[kMaxCards];
};

struct Cards {
  pthread_mutex_t lock;
  int count;
  int64_t total, context, module, lazy;
  int64_t peak[kMaxCards];       // of the sum
  int64_t tree_peak[kMaxCards];  // without the neighbor
  int64_t neighbor[kMaxCards];   // used by processes that no test started
  int hides_processes;
  Process processes[kMaxProcesses];
};

// Maps the file named by HEADROOM_STANDIN; the first process fills it in from HEADROOM_STANDIN_CARDS, _BYTES,
// _CONTEXT, _MODULE, _LAZY (sizes in MiB), _NEIGHBOR and _HIDES.
Cards& cards();
inline constexpr int kHost = -1;  // no card
// False: no room. Negative bytes come back.
bool change(int card, int64_t bytes);
int64_t used_of(int card);  // by all
void uuid_of(int card, unsigned char (&uuid)[16]);
// Drops what this process held as another program.
void forget_own();
// Calls see(pid, bytes) for each living process that holds something.
void for_each_process(int card, void (*see)(void*, int, int64_t), void* with);

}  // namespace standin
