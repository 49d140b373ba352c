// Records calls in the process's file. A stack takes longer than a call, so stacks are left out while they
// have taken more than a hundredth of the time.

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "guard/hooks.h"
#include "guard/recording.h"

namespace headroom::guard {
namespace {

Recording* recording = nullptr;
int recorder = 0;  // the process that it belongs to
int64_t began_ns;
std::atomic<int64_t> spent_ns;

constexpr int kMostFrames = 32;
constexpr uint32_t kKnown = 1 << 14;
struct Known {
  uint64_t hash;
  uint32_t text;
} known[kKnown];  // stacks and other texts that were written

// Maps the file of this process; after fork a child has one of its own. Sparse, so it takes what is written.
bool is_recording() {
  const Account* account = state.account;
  if (recording != nullptr && recorder == getpid()) return true;
  recorder = getpid();
  char path[320];
  snprintf(path, sizeof path, "%s/%d-%ld", account->record_folder, recorder,
           static_cast<long>(monotonic_ns()));
  const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  void* at = MAP_FAILED;
  if (file >= 0 && ftruncate(file, sizeof(Recording)) == 0) {
    at = mmap(nullptr, sizeof(Recording), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (file >= 0) close(file);
  recording = at == MAP_FAILED ? nullptr : static_cast<Recording*>(at);
  if (recording == nullptr) return false;
  memset(known, 0, sizeof known);
  began_ns = monotonic_ns();
  spent_ns = 0;
  recording->process = recorder;
  recording->text_bytes = 1;
  const int command = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (command >= 0) {
    const ssize_t got = read(command, recording->command, sizeof recording->command - 1);
    for (ssize_t i = 0; i + 1 < got; ++i) {
      if (recording->command[i] == 0) recording->command[i] = ' ';
    }
    close(command);
  }
  recording->magic = Recording::kMagic;
  return true;
}

uint64_t hash_of(const void* bytes, size_t count) {
  uint64_t hash = 1469598103934665603u;
  for (size_t i = 0; i < count; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 1099511628211u;
  return hash == 0 ? 1 : hash;
}

uint32_t find_text(uint64_t hash) {
  uint32_t i = static_cast<uint32_t>(hash) % kKnown;
  for (uint32_t tries = 0; tries < 64; ++tries, i = (i + 1) % kKnown) {
    if (known[i].hash == hash) return known[i].text;
    if (known[i].hash == 0) break;
  }
  return 0;
}

// 0 when there is no room.
uint32_t add_text(uint64_t hash, const char* text) {
  if (const uint32_t old = find_text(hash)) return old;
  const size_t bytes = strlen(text) + 1;
  const uint32_t at = recording->text_bytes;
  uint32_t i = static_cast<uint32_t>(hash) % kKnown;
  for (uint32_t tries = 0; tries < 64 && known[i].hash != 0; ++tries) i = (i + 1) % kKnown;
  if (bytes <= 1 || known[i].hash != 0 || at + bytes > Recording::kTextBytes) return 0;
  memcpy(recording->texts + at, text, bytes);
  recording->text_bytes = at + static_cast<uint32_t>(bytes);
  known[i] = {hash, at};
  return at;
}

// "libtorch.so:0 c10::..."; C++ names as the linker has them.
size_t write_frames(char* text, size_t size, void** frames, int count) {
  size_t used = 0;
  for (int i = 0; i < count && used + 300 < size; ++i) {
    Dl_info facts{};
    if (dladdr(frames[i], &facts) == 0 || facts.dli_fname == nullptr) continue;
    const char* file = strrchr(facts.dli_fname, '/');
    file = file == nullptr ? facts.dli_fname : file + 1;
    if (strncmp(file, "libheadroom_guard", 17) == 0) continue;
    used += static_cast<size_t>(snprintf(text + used, 300, "%.100s:0 %.180s\n", file,
                                         facts.dli_sname == nullptr ? "?" : facts.dli_sname));
  }
  if (used > 0) text[--used] = 0;
  return used;
}

// The loader and Python are asked for names with no lock held: others may hold theirs while they wait for
// ours.
uint32_t stack_now(bool is_urgent) {
  const int64_t before = monotonic_ns();
  if (!is_urgent && spent_ns > (before - began_ns) / 100 + 10000000) return 0;
  void* frames[kMostFrames];
  const int count = backtrace(frames, kMostFrames);
  char text[8192];
  const uint64_t hash = hash_of(frames, sizeof *frames * static_cast<size_t>(count));
  uint32_t stack = 0;
  {
    const Locked locked(state.recording);
    stack = find_text(hash);
  }
  if (stack == 0) write_frames(text, sizeof text, frames, count);
  const Locked locked(state.recording);
  if (stack == 0) stack = add_text(hash, text);
  spent_ns += monotonic_ns() - before;
  return stack;
}

// The driver's function that makes blocks of a kind.
const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "refused";
    case Kind::kMemory:
      return "cuMemAlloc";
    case Kind::kPooled:
      return "cuMemAllocAsync";
    case Kind::kObject:
      return "cuMemCreate";
    case Kind::kArray:
      return "cuArrayCreate";
    case Kind::kContext:
      return "cuCtxCreate";
    default:
      return "cuGraphLaunch";
  }
}

}  // namespace

void write_record(Call call, Kind kind, int card, uint64_t address, int64_t bytes, CUstream stream) {
  {
    const Locked locked(state.recording);
    if (!is_recording()) return;
  }
  const uint32_t stack = call == Call::kFree ? 0 : stack_now(call == Call::kRefused);
  const Locked locked(state.recording);
  const uint64_t number = ++recording->count;
  Record& record = recording->records[(number - 1) % Recording::kRecords];
  record.number.store(0, std::memory_order_release);
  record.time_ns = monotonic_ns();
  record.address = address;
  record.bytes = bytes;
  record.stream = reinterpret_cast<uint64_t>(stream);
  const char* what = name_of(kind);
  record.what = add_text(hash_of(what, strlen(what)), what);
  record.stack = stack;
  record.card = static_cast<int16_t>(card);
  record.call = call;
  record.number.store(number, std::memory_order_release);
}

}  // namespace headroom::guard
