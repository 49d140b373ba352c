#include "guard/standin/cards.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace standin {
namespace {

int64_t setting(const char* name, int64_t usual) {
  const char* text = getenv(name);
  return text == nullptr ? usual : atoll(text);
}

void fill(Cards& all) {
  constexpr int64_t kMib = int64_t{1} << 20;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&all.lock, &kind);
  all.total = setting("HEADROOM_STANDIN_BYTES", 8192) * kMib;
  all.context = setting("HEADROOM_STANDIN_CONTEXT", 100) * kMib;
  all.module = setting("HEADROOM_STANDIN_MODULE", 4) * kMib;
  all.lazy = setting("HEADROOM_STANDIN_LAZY", 0) * kMib;
  for (int64_t& bytes : all.neighbor) bytes = setting("HEADROOM_STANDIN_NEIGHBOR", 0) * kMib;
  all.hides_processes = static_cast<int>(setting("HEADROOM_STANDIN_HIDES", 0));
  all.count = static_cast<int>(setting("HEADROOM_STANDIN_CARDS", 1));
}

// The start of a living process; 0 when it is dead.
unsigned long start_of(int pid) {
  char path[32], text[1024], state = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE* file = fopen(path, "re");
  if (file == nullptr) return 0;
  const size_t got = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[got] = 0;
  const char* at = strrchr(text, ')');
  unsigned long start = 0;
  if (at == nullptr) return 0;
  sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lu", &state,
         &start);
  return state == 'Z' || state == 'X' ? 0 : start;
}

class Lock {
 public:
  Lock() {
    if (pthread_mutex_lock(&cards().lock) == EOWNERDEAD) pthread_mutex_consistent(&cards().lock);
  }
  ~Lock() { pthread_mutex_unlock(&cards().lock); }
};

int64_t sum(int card) {
  int64_t bytes = 0;
  for (Process& process : cards().processes) {
    if (process.pid == 0) continue;
    if (process.pid != getpid() && start_of(process.pid) != process.start) process = {};
    bytes += process.used[card];
  }
  return bytes;
}

Process* own() {
  static int pid;
  static Process* mine;
  if (pid == getpid() && mine->pid == pid) return mine;
  pid = getpid();
  Process* free = nullptr;
  for (Process& process : cards().processes) {
    if (process.pid == pid) return mine = &process;
    if (process.pid == 0 && free == nullptr) free = &process;
  }
  if (free == nullptr) abort();
  *free = {pid, start_of(pid), {}};
  return mine = free;
}

}  // namespace

Cards& cards() {
  static Cards* all = [] {
    const char* path = getenv("HEADROOM_STANDIN");
    const int file =
        open(path == nullptr ? "/dev/shm/headroom-standin" : path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct stat facts = {};
    if (file < 0 || flock(file, LOCK_EX) != 0 || fstat(file, &facts) != 0) abort();
    const bool is_new = facts.st_size == 0;
    if (is_new && ftruncate(file, sizeof(Cards)) != 0) abort();
    void* at = mmap(nullptr, sizeof(Cards), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) abort();
    if (is_new) fill(*static_cast<Cards*>(at));
    flock(file, LOCK_UN);
    close(file);
    return static_cast<Cards*>(at);
  }();
  return *all;
}

bool change(int card, int64_t bytes) {
  if (card == kHost) return true;
  const Lock lock;
  Cards& all = cards();
  const int64_t before = sum(card);
  if (bytes > 0 && before + all.neighbor[card] + bytes > all.total) return false;
  own()->used[card] += bytes;
  all.tree_peak[card] = std::max(all.tree_peak[card], before + bytes);
  all.peak[card] = std::max(all.peak[card], before + bytes + all.neighbor[card]);
  return true;
}

int64_t used_of(int card) {
  const Lock lock;
  return sum(card) + cards().neighbor[card];
}

void uuid_of(int card, unsigned char (&uuid)[16]) {
  memcpy(uuid, "headroom standin", 16);
  uuid[15] = static_cast<unsigned char>(card);
}

void forget_own() {
  const Lock lock;
  Process& mine = *own();
  std::fill(mine.used, mine.used + kMaxCards, 0);
}

void for_each_process(int card, void (*see)(void*, int, int64_t), void* with) {
  const Lock lock;
  sum(card);
  for (const Process& process : cards().processes) {
    if (process.pid != 0 && process.used[card] > 0) see(with, process.pid, process.used[card]);
  }
}

}  // namespace standin
