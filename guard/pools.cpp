// Stream-ordered allocation. A pool takes memory in large pieces and keeps what is freed, so what counts is
// what the pool holds, not what the program uses of it.

#include "guard/hooks.h"

namespace headroom::guard {
namespace {

constexpr int64_t kPiece = int64_t{32} << 20;  // by which the driver's pools grow
constexpr int kNoCard = -1;                    // of the host's memory, or of a device that is not counted

// Lets questions be asked while a stream is captured.
class Relaxed {
 public:
  Relaxed() { exchange(); }
  ~Relaxed() { exchange(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  void exchange() {
    if (driver.cuThreadExchangeStreamCaptureMode != nullptr) driver.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  int mode_ = kRelaxedCapture;
};

// Counts growth that the driver has not confirmed; negative: no longer.
void expect(Block& pool, int64_t bytes) {
  if (bytes == 0) return;
  pool.pending += bytes;
  change(state.account->slots[state.slot].cards[pool.card].growth, bytes);
}

// Counts the driver's figure and the growth that calls under way may cause.
void count(Block& pool, int64_t reserved) {
  const int64_t pending = pool.refs == 0 ? 0 : pool.pending, now = reserved + pending;
  if (now > pool.bytes)
    add_held(*state.account, state.slot, pool.card, now - pool.bytes);
  else
    returned(pool.card, pool.bytes - now);
  expect(pool, pending - pool.pending);
  if (pending == 0) pool.covered = 0;
  if (reserved > pool.reserved) raise_peak(*state.account, pool.card);
  pool.reserved = reserved;
  set_pool(pool, now, pool.live);
}

// Asks the driver what the pool holds; -1: unknown. One question: this is in each large request, and in one
// of several others.
int64_t reserved_by(const Block& pool) {
  uint64_t reserved = 0;
  if (driver.cuMemPoolGetAttribute == nullptr || state.slot < 0) return -1;
  const Relaxed relaxed;
  const auto handle = reinterpret_cast<CUmemoryPool>(pool.key);
  return driver.cuMemPoolGetAttribute(handle, kPoolReserved, &reserved) == kSuccess
             ? static_cast<int64_t>(reserved)
             : -1;
}

void settle_reserved(Block& pool) {
  if (const int64_t reserved = reserved_by(pool); reserved >= 0) count(pool, reserved);
}

// Counts that, and notes what the program uses of it.
void settle(Block& pool) {
  settle_reserved(pool);
  if (driver.cuMemPoolGetAttribute == nullptr || state.slot < 0 || pool.refs != 0) return;
  const Relaxed relaxed;
  uint64_t used = 0;
  if (driver.cuMemPoolGetAttribute(reinterpret_cast<CUmemoryPool>(pool.key), kPoolUsed, &used) == kSuccess)
    set_pool(pool, pool.bytes, static_cast<int64_t>(used));
}

CUmemoryPool current_pool(CUdevice device) {
  CUmemoryPool& pool = state.current_pool[device];
  if (pool == nullptr && driver.cuDeviceGetMemPool != nullptr) driver.cuDeviceGetMemPool(&pool, device);
  return pool;
}

Block* find_pool(CUmemoryPool pool, int card) {
  const auto key = reinterpret_cast<uint64_t>(pool);
  if (Block* known = state.blocks.find(Kind::kPool, key)) return known;
  Block block;
  block.key = key;
  block.card = static_cast<int16_t>(card);
  block.kind = Kind::kPool;
  state.blocks.insert(block);
  return state.blocks.find(Kind::kPool, key);
}

// Counts by how much the pool may grow for `bytes` that nothing covers, in pieces; false when that is
// refused. For all of it, as what the pool keeps may lie in parts between blocks in use. Requests that make
// up half a piece need one at most, as the rest of it is larger than each of them: what is counted for the
// first covers the others, so that they ask neither the account nor the driver. `growth`: what this call
// alone may need.
bool cover(Block& pool, int64_t bytes, int64_t* growth) {
  const int64_t limit = state.account->cards[pool.card].limit_bytes;
  const bool has_reserve = limit == kNoLimit || reserve_of(limit) >= kPiece;
  const bool covers = has_reserve && bytes <= kPiece / 2 && pool.refs == 0;
  if (const int64_t reserved = covers ? reserved_by(pool) : -1; reserved >= 0) {
    const bool is_left = pool.pending == kPiece && reserved == pool.reserved;
    if (is_left) return pool.covered = kPiece / 2, true;
    count(pool, reserved);
  }
  if (const int64_t more = round_up(bytes, kPiece); ask(pool.card, more, Asked::kGrowth)) {
    set_pool(pool, pool.bytes + more, pool.live);
    expect(pool, more);
    *growth = covers ? 0 : more;
    if (covers) pool.covered = kPiece / 2;
    return true;
  }
  // Small requests may use what the pool keeps: the reserve covers the one piece that they may need.
  const int64_t idle = pool.bytes - pool.live;
  if (!has_reserve || bytes >= kPage || bytes > idle) return false;
  if (!take(*state.account, state.slot, pool.card, 0, Asked::kGrowth)) return false;
  pool.covered = idle < kPiece / 4 ? idle : kPiece / 4;
  return true;
}

// Counts a request of a pool; false when it is refused.
bool ask_growth(Block& pool, int64_t bytes, int64_t* growth) {
  *growth = 0;
  if (bytes > pool.covered && !cover(pool, bytes, growth)) return false;
  if (*growth == 0) pool.covered -= bytes;
  set_pool(pool, pool.bytes, pool.live + bytes);
  ++pool.refs;
  return true;
}

// Waits until a pool can give back what was freed in the stream; false while the stream is captured.
bool finish(CUstream stream) {
  int status = 0;
  if (driver.cuStreamSynchronize == nullptr || driver.cuStreamIsCapturing == nullptr) return false;
  if (driver.cuStreamIsCapturing(stream, &status) != kSuccess || status != 0) return false;
  return driver.cuStreamSynchronize(stream) == kSuccess;
}

// `find` tells the pool, with the lock; null: nothing is counted.
template <typename Find, typename Call>
CUresult allocate(Find find, CUdeviceptr* pointer, size_t size, CUstream stream, Call call) {
  if (is_absurd(size)) return call();
  const int64_t bytes = round_up(static_cast<int64_t>(size), 512);
  int card = -1;
  int64_t growth = 0;
  uint64_t key = 0;  // the pool's
  const auto ask_once = [&] {
    const Locked locked;
    Block* pool = find();
    if (pool == nullptr || pool->card == kNoCard) return true;
    card = pool->card;
    key = pool->key;
    return ask_growth(*pool, bytes, &growth);
  };
  // At the edge a pool must give back what lies between its blocks before it may grow.
  if (!ask_once() && !(finish(stream) && ask_once())) return refused(card, bytes);
  const CUresult result = call();
  if (card < 0) return result;
  Block block;
  {
    const Locked locked;
    Block* pool = state.blocks.find(Kind::kPool, key);
    if (pool == nullptr) return result;
    --pool->refs;
    expect(*pool, -growth);
    if (result != kSuccess) {
      set_pool(*pool, pool->bytes, pool->live - bytes);
      settle(*pool);
      return result;
    }
    if (growth != 0) settle_reserved(*pool);
    block.key = *pointer;
    block.owner = key;
    block.bytes = bytes;
    block.card = static_cast<int16_t>(card);
    block.kind = Kind::kPooled;
    state.blocks.insert(block);
  }
  record(guard::Call::kAllocate, block.kind, card, block.key, bytes, stream);
  return result;
}

template <auto Real>
CUresult from_current(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  Place place = here();
  // A stream of another context; 1 and 2 are the default ones.
  if (reinterpret_cast<uintptr_t>(stream) > 2 && driver.cuStreamGetCtx != nullptr && state.devices > 1) {
    CUcontext context = nullptr;
    if (driver.cuStreamGetCtx(stream, &context) == kSuccess && context != place.context) {
      for (CUdevice device = 0; device < kMaxOrdinals; ++device) {
        if (state.primary[device] == context) place = {context, device, card_of_device(device)};
      }
    }
  }
  const auto find = [place]() -> Block* {
    const CUmemoryPool pool = place.card < 0 ? nullptr : current_pool(place.device);
    return pool == nullptr ? nullptr : find_pool(pool, place.card);
  };
  return allocate(find, pointer, bytes, stream, [=] { return real<Real>(pointer, bytes, stream); });
}

template <auto Real>
CUresult from_pool(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  const int card = here().card;
  const auto find = [=]() -> Block* { return card < 0 ? nullptr : find_pool(pool, card); };
  return allocate(find, pointer, bytes, stream, [=] { return real<Real>(pointer, bytes, pool, stream); });
}

}  // namespace

void set_pool(Block& pool, int64_t bytes, int64_t live) {
  const int64_t idle = bytes - live, idle_before = pool.bytes - pool.live;
  if (idle != idle_before)
    change(state.account->slots[state.slot].cards[pool.card].cached, idle - idle_before);
  pool.bytes = bytes;
  pool.live = live;
}

HR_DRIVER CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  const CUresult result = real<&cuMemPoolTrimTo>(pool, keep);
  if (state.account == nullptr) return result;
  const Locked locked;
  Block* known = state.blocks.find(Kind::kPool, reinterpret_cast<uint64_t>(pool));
  if (known != nullptr && known->card != kNoCard) settle(*known);
  return result;
}

void settle_pools(int card, bool trim) {
  state.blocks.for_each([&](Block& block) {
    if (block.card != card) return;
    if (block.kind == Kind::kGraphPool) settle_graph_pool(static_cast<CUdevice>(block.key), card);
    if (block.kind != Kind::kPool) return;
    if (trim && block.bytes > block.live)
      real<&cuMemPoolTrimTo>(reinterpret_cast<CUmemoryPool>(block.key), size_t{0});
    settle(block);
  });
}

HR_DRIVER CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return from_current<&cuMemAllocAsync>(pointer, bytes, stream);
}
HR_DRIVER CUresult cuMemAllocAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return from_current<&cuMemAllocAsync_ptsz>(pointer, bytes, stream);
}
HR_DRIVER CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                           CUstream stream) {
  return from_pool<&cuMemAllocFromPoolAsync>(pointer, bytes, pool, stream);
}
HR_DRIVER CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                                CUstream stream) {
  return from_pool<&cuMemAllocFromPoolAsync_ptsz>(pointer, bytes, pool, stream);
}

HR_DRIVER CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const CUresult result = real<&cuMemPoolCreate>(pool, properties);
  if (result != kSuccess || state.account == nullptr) return result;
  const bool is_on_card = properties->location.type == 1;
  const int card = is_on_card ? card_of_device(properties->location.id) : kNoCard;
  const Locked locked;
  find_pool(*pool, card);
  return result;
}

HR_DRIVER CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  if (state.account == nullptr) return real<&cuMemPoolDestroy>(pool);
  const Locked locked;
  const CUresult result = real<&cuMemPoolDestroy>(pool);
  Block* known =
      result == kSuccess ? state.blocks.find(Kind::kPool, reinterpret_cast<uint64_t>(pool)) : nullptr;
  if (known == nullptr) return result;
  for (CUmemoryPool& current : state.current_pool) {
    if (current == pool) current = nullptr;
  }
  known->refs = 0;  // calls that have not returned find no pool, so that nothing is pending any more
  if (known->card != kNoCard) count(*known, 0);
  state.blocks.erase(known);
  return result;
}

HR_DRIVER CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  const CUresult result = real<&cuDeviceSetMemPool>(device, pool);
  if (result != kSuccess || state.account == nullptr || device < 0 || device >= kMaxOrdinals) return result;
  const Locked locked;
  state.current_pool[device] = nullptr;
  return result;
}

HR_DRIVER CUresult cuMemSetMemPool(CUmemLocation* location, int type, CUmemoryPool pool) {
  const CUresult result = real<&cuMemSetMemPool>(location, type, pool);
  if (result != kSuccess || state.account == nullptr) return result;
  const Locked locked;
  for (CUmemoryPool& current : state.current_pool) current = nullptr;
  return result;
}

Hooks pool_hooks() {
  static const Hook hooks[] = {
      HR_HOOK(cuMemAllocAsync, 11020),         HR_HOOK(cuMemAllocAsync_ptsz, 11020),
      HR_HOOK(cuMemAllocFromPoolAsync, 11020), HR_HOOK(cuMemAllocFromPoolAsync_ptsz, 11020),
      HR_HOOK(cuMemPoolTrimTo, 11020),         HR_HOOK(cuMemPoolCreate, 11020),
      HR_HOOK(cuMemPoolDestroy, 11020),        HR_HOOK(cuDeviceSetMemPool, 11020),
      HR_HOOK(cuMemSetMemPool, 13000),
  };
  return {hooks, sizeof hooks / sizeof *hooks};
}

}  // namespace headroom::guard
