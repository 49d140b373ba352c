// Declarations that the hooks share: the driver's own functions, the state of this process, and asking the
// account.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "guard/account.h"
#include "guard/blocks.h"
#include "guard/driver.h"
#include "guard/recording.h"

#define HR_DRIVER extern "C" __attribute__((visibility("default")))

namespace headroom::guard {

// A function of the driver that we answer in its place. `since`: the driver's version from which a name
// without suffix means it.
struct Hook {
  const char* name;
  void* ours;
  void** real;
  int since;
};
template <auto F>
inline void* real_of = nullptr;
template <auto F>
Hook hook(const char* name, int since) {
  return {name, reinterpret_cast<void*>(F), &real_of<F>, since};
}
#define HR_HOOK(function, since) hook<&function>(#function, since)

struct Hooks {
  const Hook* first;
  size_t count;
};
// One array a file; `hook_named` walks them.
Hooks resolve_hooks();
Hooks memory_hooks();
Hooks pool_hooks();
Hooks graph_hooks();
Hooks context_hooks();
Hooks management_hooks();

// Opens the driver when it is first needed; false without one.
extern std::atomic<bool> is_open;
bool open_driver_first();
inline bool open_driver() {
  return is_open || open_driver_first();
}
// glibc's own dlsym on a handle.
void* real_symbol(void* library, const char* name);

// Calls the driver's own function.
template <auto F, typename... A>
CUresult real(A... arguments) {
  if (real_of<F> == nullptr && (!open_driver() || real_of<F> == nullptr)) return kNotFound;
  return reinterpret_cast<decltype(F)>(real_of<F>)(arguments...);
}

// Functions that are called and not answered for.
struct Driver {
  CUresult (*cuCtxGetCurrent)(CUcontext*);
  CUresult (*cuCtxGetDevice)(CUdevice*);
  CUresult (*cuCtxGetLimit)(size_t*, int);
  CUresult (*cuDeviceGetAttribute)(int*, int, CUdevice);
  CUresult (*cuDeviceGetUuid)(CUuuid*, CUdevice);
  CUresult (*cuDeviceGetUuid_v2)(CUuuid*, CUdevice);
  CUresult (*cuDeviceGetMemPool)(CUmemoryPool*, CUdevice);
  CUresult (*cuDevicePrimaryCtxGetState)(CUdevice, unsigned*, int*);
  CUresult (*cuMemPoolGetAttribute)(CUmemoryPool, int, void*);
  CUresult (*cuStreamGetCtx)(CUstream, CUcontext*);
  CUresult (*cuStreamIsCapturing)(CUstream, int*);
  CUresult (*cuStreamSynchronize)(CUstream);
  CUresult (*cuThreadExchangeStreamCaptureMode)(int*);
  CUresult (*cuGraphGetNodes)(CUgraph, CUgraphNode*, size_t*);
  CUresult (*cuGraphNodeGetType)(CUgraphNode, int*);
  CUresult (*cuGraphMemAllocNodeGetParams)(CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS*);
  CUresult (*cuDeviceGetGraphMemAttribute)(CUdevice, int, void*);
};
extern Driver driver;

constexpr int kMaxOrdinals = 64;

// A lock of this process alone, in line and given back by a plain store, as three are taken in a pair of
// calls: those of the C library cost as much as the rest of ours. Who waits for long sleeps between its
// looks.
class Mutex {
 public:
  void lock() {
    while (word_.exchange(1, std::memory_order_acquire) != 0) await();
  }
  void unlock() { word_.store(0, std::memory_order_release); }

 private:
  void await() const;
  std::atomic<uint32_t> word_{0};
};

struct State {
  Account* account = nullptr;  // null: nothing is guarded
  int slot = -1;
  Mutex lock;            // of all below
  Mutex making_context;  // taken before `lock`
  Mutex recording;       // taken last
  Blocks blocks;
  int64_t small_bytes[kMaxCards] = {};           // requests that share pages
  CUmemoryPool current_pool[kMaxOrdinals] = {};  // null: unknown
  CUcontext primary[kMaxOrdinals] = {};
  std::atomic<int> devices{0};        // that were used
  std::atomic<int> memory_graphs{0};  // executable graphs with memory nodes
  int64_t trims = 1;
  std::atomic<uint32_t> epoch{1};  // rises when a context ends
};
extern State state;

class Locked {
 public:
  explicit Locked(Mutex& mutex = state.lock) : mutex_(mutex) { mutex_.lock(); }
  ~Locked() { mutex_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Mutex& mutex_;
};

// The number of a device's card in the account; -1: nothing is counted.
int card_of_device(CUdevice device);
struct Place {
  CUcontext context = nullptr;
  CUdevice device = 0;
  int card = -1;
};
// The device of a call that names none.
Place here();

constexpr int64_t kPage = int64_t{2} << 20;
inline int64_t round_up(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
// A size that no card has; it goes to the driver uncounted, which refuses it.
inline bool is_absurd(size_t bytes) {
  return bytes == 0 || bytes > size_t{1} << 50;
}

// Counts bytes for this process, after dead processes' and pools' unused pages are given back if need be.
// Call with the lock; when it returns false, note the refusal without it.
bool ask(int card, int64_t bytes, Asked what = Asked::kBlock);
void returned(int card, int64_t bytes);
// Notes a refusal and returns its code.
CUresult refused(int card, int64_t bytes);
// The pages that one block of that size more, or one less, takes on the card.
int64_t pages_for(int card, int64_t bytes);
int64_t pages_without(int card, int64_t bytes);

// Notes a call in the recording, if there is one. A call that allocates or was refused: without the lock.
// `kind`: kNone where nothing was made.
void write_record(Call call, Kind kind, int card, uint64_t address, int64_t bytes, CUstream stream);
inline void record(Call call, Kind kind, int card, uint64_t address, int64_t bytes,
                   CUstream stream = nullptr) {
  if (state.account != nullptr && state.account->record_folder[0] != 0)
    write_record(call, kind, card, address, bytes, stream);
}

// grab-all: takes what is left; what that holds; gives one piece back (false: none); after a context's end.
// With the lock.
void grab(const Place& place);
int64_t grabbed_bytes(int card);
bool give_up_piece(int card);
void forget_grabbed(CUcontext context);
void forget_all_grabbed();  // after fork

// Sets the counted bytes of a pool and the part in use. With the lock.
void set_pool(Block& pool, int64_t bytes, int64_t live);
// Compares the counted bytes of pools with the driver's figures. With the lock.
void settle_pools(int card, bool trim);
void settle_graph_pool(CUdevice device, int card);
// Drops what ended with a context. With the lock.
void forget_context(CUcontext context);

}  // namespace headroom::guard
