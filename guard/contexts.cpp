// Contexts, stacks and code take memory without a request in bytes. The watcher measures them; the hooks here
// wait for a measurement where they must. The hooks by which programs read the size of a card follow.

#include <dlfcn.h>
#include <unistd.h>

#include "guard/hooks.h"

namespace headroom::guard {
namespace {

constexpr int64_t kContextGuess = int64_t{512} << 20, kLeastContext = int64_t{16} << 20;

Share& own_share(int card) {
  return state.account->slots[state.slot].cards[card];
}

// The bytes that a new context took: by the driver's figure of this process, else by that of the card.
int64_t growth_since(int64_t process_before, int64_t used_before, int card) {
  const Card& known = state.account->cards[card];
  const int64_t process = own_share(card).driver;
  if (known.lists_processes != 0 && process > 0) return process - process_before;
  return used_before < 0 ? 0 : known.used_bytes - used_before;
}

// Waits while another process makes the first context, as it is unknown what one needs before: for ten
// seconds at most.
void await_first_context(const Account& account, int card) {
  for (int i = 0; i < 10000 && account.cards[card].context_bytes == 0; ++i) {
    if (sum_of(account, card).guesses == 0) return;
    usleep(1000);
  }
}

// Counts a guess, makes the context, and counts what it took instead; `undo` destroys one that is too large.
template <typename Call, typename Undo>
CUresult make_context(CUcontext* context, CUdevice device, int card, Call call, Undo undo) {
  Account& account = *state.account;
  Card& facts = account.cards[card];
  int64_t guess = 0;
  bool is_counted = false;
  // What is left may be taken, or what a context needs become known, between the guess and the request for
  // it.
  constexpr int kTries = 16;
  for (int attempt = 0; attempt < kTries && !is_counted; ++attempt) {
    await_first_context(account, card);
    const Locked locked;
    const int64_t known = facts.context_bytes, limit = facts.limit_bytes;
    const Sum sum = sum_of(account, card);
    if (known == 0 && sum.guesses > 0) continue;
    guess = known;
    if (known == 0) {
      const int64_t left = limit == kNoLimit
                               ? kContextGuess
                               : limit - reserve_of(limit, sum.contexts + 1) / 2 - sum.held - sum.claims;
      guess = left > kContextGuess ? kContextGuess : left < kLeastContext ? kLeastContext : left;
    }
    is_counted = ask(card, guess, Asked::kContext);
    if (known != 0) break;
  }
  if (!is_counted) {
    facts.context_refused = guess;
    return refused(card, guess);
  }
  const bool is_measured = await_measurement(account);
  const int64_t process_before = own_share(card).driver, extra_before = own_share(card).extra;
  const int64_t used_before = is_measured ? facts.used_bytes.load() : -1;
  const CUresult result = call();
  const bool knows = result == kSuccess && await_measurement(account);
  int64_t took = 0;
  bool fits = true;
  {
    const Locked locked;
    if (result != kSuccess) {
      returned(card, guess);
      own_share(card).guess = 0;
      return result;
    }
    took = knows ? growth_since(process_before, used_before, card) : guess;
    if (took <= 0) took = guess;
    Share& share = own_share(card);
    share.extra = extra_before + took;  // the watcher may have added it already
    share.floor += took;
    returned(card, guess);
    share.guess = 0;
    share.recent = share.held.load();
    if (int64_t least = facts.context_bytes; knows && (least == 0 || took < least))
      facts.context_bytes = took;
    Block block;
    block.key = reinterpret_cast<uint64_t>(*context);
    block.bytes = took;
    block.card = static_cast<int16_t>(card);
    block.kind = Kind::kContext;
    state.blocks.insert(block);
    fits = sum_of(account, card).held <= facts.limit_bytes;
    if (fits) raise_peak(account, card);
  }
  record(guard::Call::kAllocate, Kind::kContext, card, reinterpret_cast<uint64_t>(*context), took);
  if (!fits) {
    undo();
    const Locked locked;
    forget_context(*context);
    facts.context_refused = took;
  }
  if (!fits) return refused(card, took);
  (void)device;
  return result;
}

template <auto Real, auto Destroy, typename... A>
CUresult create_context(CUcontext* context, CUdevice device, A... arguments) {
  const int card = card_of_device(device);
  if (card < 0) return real<Real>(context, arguments...);
  const Locked locked(state.making_context);
  return make_context(
      context, device, card, [=] { return real<Real>(context, arguments...); },
      [=] { real<Destroy>(*context); });
}

bool is_primary_active(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return driver.cuDevicePrimaryCtxGetState != nullptr &&
         driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == kSuccess && active != 0;
}

template <auto Real>
CUresult end_primary(CUdevice device) {
  const CUresult result = real<Real>(device);
  if (card_of_device(device) < 0 || result != kSuccess || is_primary_active(device)) return result;
  const Locked locked;
  if (state.primary[device] != nullptr) forget_context(state.primary[device]);
  state.primary[device] = nullptr;
  settle_pools(card_of_device(device), false);
  return result;
}

template <auto Real>
CUresult destroy_context(CUcontext context) {
  const CUresult result = real<Real>(context);
  if (result != kSuccess || state.account == nullptr) return result;
  const Locked locked;
  forget_context(context);
  return result;
}

}  // namespace

HR_DRIVER CUresult cuCtxDestroy(CUcontext context) {
  return destroy_context<&cuCtxDestroy>(context);
}
HR_DRIVER CUresult cuCtxDestroy_v2(CUcontext context) {
  return destroy_context<&cuCtxDestroy_v2>(context);
}
HR_DRIVER CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  return create_context<&cuCtxCreate, &cuCtxDestroy_v2>(context, device, flags, device);
}
HR_DRIVER CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return create_context<&cuCtxCreate_v2, &cuCtxDestroy_v2>(context, device, flags, device);
}
HR_DRIVER CUresult cuCtxCreate_v3(CUcontext* context, void* affinity, int count, unsigned flags,
                                  CUdevice device) {
  return create_context<&cuCtxCreate_v3, &cuCtxDestroy_v2>(context, device, affinity, count, flags, device);
}
HR_DRIVER CUresult cuCtxCreate_v4(CUcontext* context, void* parameters, unsigned flags, CUdevice device) {
  return create_context<&cuCtxCreate_v4, &cuCtxDestroy_v2>(context, device, parameters, flags, device);
}

HR_DRIVER CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return end_primary<&cuDevicePrimaryCtxRelease>(device);
}
HR_DRIVER CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return end_primary<&cuDevicePrimaryCtxRelease_v2>(device);
}
HR_DRIVER CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return end_primary<&cuDevicePrimaryCtxReset>(device);
}
HR_DRIVER CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return end_primary<&cuDevicePrimaryCtxReset_v2>(device);
}
HR_DRIVER CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const auto call = [=] { return real<&cuDevicePrimaryCtxRetain>(context, device); };
  const int card = card_of_device(device);
  if (card < 0) return call();
  const Locked locked(state.making_context);
  if (is_primary_active(device)) return call();
  const CUresult result =
      make_context(context, device, card, call, [=] { real<&cuDevicePrimaryCtxRelease_v2>(device); });
  if (result == kSuccess) state.primary[device] = *context;
  return result;
}

// Stacks for all threads that the card can hold, and the heaps of device code.
HR_DRIVER CUresult cuCtxSetLimit(int which, size_t value) {
  const Place place = here();
  const auto call = [=] { return real<&cuCtxSetLimit>(which, value); };
  if (place.card < 0 || which < kLimitStack || which > kLimitHeap || driver.cuCtxGetLimit == nullptr)
    return call();
  size_t before = 0;
  int multiprocessors = 1, threads = 1;
  driver.cuCtxGetLimit(&before, which);
  if (which == kLimitStack) {
    driver.cuDeviceGetAttribute(&multiprocessors, kSmCount, place.device);
    driver.cuDeviceGetAttribute(&threads, kThreadsPerSm, place.device);
  }
  if (value <= before) return call();
  const int64_t bytes = static_cast<int64_t>(value - before) * multiprocessors * threads;
  bool is_counted = false;
  {
    const Locked locked;
    is_counted = ask(place.card, bytes);
  }
  if (!is_counted) return refused(place.card, bytes);
  const CUresult result = call();
  const Locked locked;
  if (result == kSuccess) {
    Share& share = own_share(place.card);
    share.extra += bytes;
    share.floor += bytes;
    Block* context = state.blocks.find(Kind::kContext, reinterpret_cast<uint64_t>(place.context));
    if (context != nullptr) context->bytes += bytes;
  }
  returned(place.card, bytes);
  return result;
}

namespace {

// Code may use the reserve but for a quarter, as several processes may load at once, and counts once the
// watcher sees it, which is woken.
template <auto Real, typename... A>
CUresult load_code(A... arguments) {
  const Place place = here();
  if (place.card < 0) return real<Real>(arguments...);
  Account& account = *state.account;
  const int64_t limit = account.cards[place.card].limit_bytes;
  if (limit != kNoLimit && sum_of(account, place.card).held > limit - reserve_of(limit) / 4) {
    return refused(place.card, 0);
  }
  const CUresult result = real<Real>(arguments...);
  account.wanted++;
  wake(account.wanted);
  return result;
}

}  // namespace

HR_DRIVER CUresult cuModuleLoad(CUmodule* module, const char* file) {
  return load_code<&cuModuleLoad>(module, file);
}
HR_DRIVER CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return load_code<&cuModuleLoadData>(module, image);
}
HR_DRIVER CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, int* options,
                                      void** values) {
  return load_code<&cuModuleLoadDataEx>(module, image, count, options, values);
}
HR_DRIVER CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return load_code<&cuModuleLoadFatBinary>(module, image);
}
HR_DRIVER CUresult cuLibraryLoadData(CUlibrary* library, const void* code, int* jit, void** jit_values,
                                     unsigned jit_count, int* options, void** values, unsigned count) {
  return load_code<&cuLibraryLoadData>(library, code, jit, jit_values, jit_count, options, values, count);
}
HR_DRIVER CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file, int* jit, void** jit_values,
                                         unsigned jit_count, int* options, void** values, unsigned count) {
  return load_code<&cuLibraryLoadFromFile>(library, file, jit, jit_values, jit_count, options, values, count);
}

namespace {

template <auto Real, typename N>
CUresult memory_info(N* free, N* total) {
  const CUresult result = real<Real>(free, total);
  const Place place = result == kSuccess ? here() : Place{};
  if (place.card < 0) return result;
  const int64_t limit = state.account->cards[place.card].limit_bytes, grabbed = grabbed_bytes(place.card);
  const int64_t left = room_on(*state.account, place.card), room = left == kNoLimit ? left : left + grabbed;
  if (free != nullptr) *free = static_cast<N>(static_cast<int64_t>(*free) + grabbed);  // the program's own
  if (total != nullptr && static_cast<int64_t>(*total) > limit) *total = static_cast<N>(limit);
  if (free != nullptr && static_cast<int64_t>(*free) > room) *free = static_cast<N>(room);
  return result;
}

template <auto Real, typename N>
CUresult total_memory(N* total, CUdevice device) {
  const CUresult result = real<Real>(total, device);
  const int card = result == kSuccess && total != nullptr ? card_of_device(device) : -1;
  if (card < 0) return result;
  const int64_t limit = state.account->cards[card].limit_bytes;
  if (static_cast<int64_t>(*total) > limit) *total = static_cast<N>(limit);
  return result;
}

}  // namespace

HR_DRIVER CUresult cuMemGetInfo(unsigned* free, unsigned* total) {
  return memory_info<&cuMemGetInfo>(free, total);
}
HR_DRIVER CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return memory_info<&cuMemGetInfo_v2>(free, total);
}
HR_DRIVER CUresult cuDeviceTotalMem(unsigned* total, CUdevice device) {
  return total_memory<&cuDeviceTotalMem>(total, device);
}
HR_DRIVER CUresult cuDeviceTotalMem_v2(size_t* total, CUdevice device) {
  return total_memory<&cuDeviceTotalMem_v2>(total, device);
}

Hooks context_hooks() {
  static const Hook hooks[] = {
      HR_HOOK(cuCtxCreate, 0),
      HR_HOOK(cuCtxCreate_v2, 3020),
      HR_HOOK(cuCtxCreate_v3, 11040),
      HR_HOOK(cuCtxCreate_v4, 12050),
      HR_HOOK(cuCtxDestroy, 0),
      HR_HOOK(cuCtxDestroy_v2, 4000),
      HR_HOOK(cuDevicePrimaryCtxRetain, 7000),
      HR_HOOK(cuDevicePrimaryCtxRelease, 7000),
      HR_HOOK(cuDevicePrimaryCtxRelease_v2, 11000),
      HR_HOOK(cuDevicePrimaryCtxReset, 7000),
      HR_HOOK(cuDevicePrimaryCtxReset_v2, 11000),
      HR_HOOK(cuCtxSetLimit, 3010),
      HR_HOOK(cuModuleLoad, 0),
      HR_HOOK(cuModuleLoadData, 0),
      HR_HOOK(cuModuleLoadDataEx, 2010),
      HR_HOOK(cuModuleLoadFatBinary, 0),
      HR_HOOK(cuLibraryLoadData, 12000),
      HR_HOOK(cuLibraryLoadFromFile, 12000),
      HR_HOOK(cuMemGetInfo, 0),
      HR_HOOK(cuMemGetInfo_v2, 3020),
      HR_HOOK(cuDeviceTotalMem, 0),
      HR_HOOK(cuDeviceTotalMem_v2, 3020),
  };
  return {hooks, sizeof hooks / sizeof *hooks};
}

// The management library, which some programs read instead. It numbers all cards, so they are found by name.
namespace {

int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

template <auto Real, typename M>
CUresult managed_memory(nvmlDevice_t device, M* memory) {
  static CUresult (*uuid_of)(nvmlDevice_t, char*, unsigned);
  if (uuid_of == nullptr || real_of<Real> == nullptr) {
    void* library = reinterpret_cast<void* (*)(const char*, int)>(real_symbol(RTLD_NEXT, "dlopen"))(
        "libnvidia-ml.so.1", RTLD_LAZY);
    if (library == nullptr) return 12;  // NVML_ERROR_LIBRARY_NOT_FOUND
    uuid_of = reinterpret_cast<decltype(uuid_of)>(real_symbol(library, "nvmlDeviceGetUUID"));
    for (size_t i = 0; i < management_hooks().count; ++i) {
      const Hook& hook = management_hooks().first[i];
      *hook.real = real_symbol(library, hook.name);
    }
  }
  if (real_of<Real> == nullptr) return 13;  // NVML_ERROR_FUNCTION_NOT_FOUND
  const int result = reinterpret_cast<decltype(Real)>(real_of<Real>)(device, memory);
  if (result != 0 || state.account == nullptr || uuid_of == nullptr) return result;
  char text[96] = {};
  if (uuid_of(device, text, sizeof text) != 0) return result;
  unsigned char uuid[16] = {};
  int digits = 0;
  const char* at = text;
  while (*at != 0 && *at != '-') ++at;  // "GPU-" or "MIG-"
  for (; *at != 0 && digits < 32; ++at) {
    const int digit = hex_digit(*at);
    if (digit >= 0) uuid[digits / 2] = static_cast<unsigned char>(uuid[digits / 2] << 4 | digit), ++digits;
  }
  const int card = digits == 32 ? card_of(*state.account, uuid) : -1;
  const int64_t limit = card < 0 ? kNoLimit : state.account->cards[card].limit_bytes.load();
  if (static_cast<int64_t>(memory->total) <= limit) return result;
  const int64_t used = sum_of(*state.account, card).held;
  const auto left = static_cast<unsigned long long>(limit > used ? limit - used : 0);
  memory->total = static_cast<unsigned long long>(limit);
  if (memory->free > left) memory->free = left;
  memory->used = memory->total - memory->free;
  return result;
}

}  // namespace

HR_DRIVER CUresult nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  return managed_memory<&nvmlDeviceGetMemoryInfo>(device, memory);
}
HR_DRIVER CUresult nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  return managed_memory<&nvmlDeviceGetMemoryInfo_v2>(device, memory);
}

Hooks management_hooks() {
  static const Hook hooks[] = {HR_HOOK(nvmlDeviceGetMemoryInfo, 0), HR_HOOK(nvmlDeviceGetMemoryInfo_v2, 0)};
  return {hooks, 2};
}

}  // namespace headroom::guard
