// Programs reach our functions instead of the driver's through exported symbols, dlsym, cuGetProcAddress, and
// libraries that were loaded to look into themselves first (RTLD_DEEPBIND).

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "guard/hooks.h"

// dlsym and dlopen look at who calls them (RTLD_NEXT, a library's own search path), so where we do not answer
// ourselves the call goes on to glibc with the caller's return address.
#if defined(__x86_64__)
#define HR_FORWARD(name, strip)                                                                             \
  asm(".text\n.globl " #name "\n.type " #name ",@function\n" #name                                          \
      ":\n  .cfi_startproc\n  endbr64\n  push %rdi\n  push %rsi\n  sub $8, %rsp\n  .cfi_adjust_cfa_offset " \
      "24\n"                                                                                                \
      "  call headroom_guard_" #name                                                                        \
      "\n  add $8, %rsp\n  pop %rsi\n  pop %rdi\n  .cfi_adjust_cfa_offset -24\n"                            \
      "  test %rax, %rax\n  jne 1f\n" strip "  jmp *headroom_real_" #name                                   \
      "(%rip)\n1:  ret\n  .cfi_endproc\n"                                                                   \
      ".size " #name ", .-" #name "\n")
HR_FORWARD(dlsym, "");
HR_FORWARD(dlopen, "  and $~8, %esi\n");
#elif defined(__aarch64__)
#define HR_FORWARD(name, strip)                                                                            \
  asm(".text\n.globl " #name "\n.type " #name ",%function\n" #name                                         \
      ":\n  stp x29, x30, [sp, #-32]!\n  mov x29, sp\n  stp x0, x1, [sp, #16]\n  bl headroom_guard_" #name \
      "\n  mov x2, x0\n  ldp x0, x1, [sp, #16]\n  ldp x29, x30, [sp], #32\n  cbnz x2, 1f\n" strip          \
      "  adrp x16, headroom_real_" #name "\n  ldr x16, [x16, #:lo12:headroom_real_" #name                  \
      "]\n  br x16\n"                                                                                      \
      "1:  mov x0, x2\n  ret\n.size " #name ", .-" #name "\n")
HR_FORWARD(dlsym, "");
HR_FORWARD(dlopen, "  and w1, w1, #0xfffffff7\n");
#endif

extern "C" {
__attribute__((visibility("hidden"))) void* headroom_real_dlsym = nullptr;
__attribute__((visibility("hidden"))) void* headroom_real_dlopen = nullptr;
}

namespace headroom::guard {

Driver driver;
State state;
std::atomic<bool> is_open{false};

namespace {

Mutex opening;

void find_loader() {
  if (headroom_real_dlsym != nullptr) return;
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
    if (headroom_real_dlopen == nullptr) headroom_real_dlopen = dlvsym(RTLD_NEXT, "dlopen", version);
    if (headroom_real_dlsym == nullptr) headroom_real_dlsym = dlvsym(RTLD_NEXT, "dlsym", version);
  }
}

template <typename See>
const Hook* find_hook(See see) {
  for (const Hooks& hooks :
       {resolve_hooks(), memory_hooks(), pool_hooks(), graph_hooks(), context_hooks(), management_hooks()}) {
    for (size_t i = 0; i < hooks.count; ++i) {
      if (see(hooks.first[i])) return &hooks.first[i];
    }
  }
  return nullptr;
}

const Hook* hook_named(const char* name) {
  return find_hook([name](const Hook& hook) { return strcmp(hook.name, name) == 0; });
}

bool is_driver_name(const char* name) {
  return name != nullptr && (strncmp(name, "cu", 2) == 0 || strncmp(name, "nvml", 4) == 0);
}

// The address that a library shall hold for `name`, if we export that symbol.
void* export_named(const char* name) {
  if (strcmp(name, "dlsym") == 0) return reinterpret_cast<void*>(&dlsym);
  if (strcmp(name, "dlopen") == 0) return reinterpret_cast<void*>(&dlopen);
  const Hook* hook = is_driver_name(name) ? hook_named(name) : nullptr;
  return hook == nullptr ? nullptr : hook->ours;
}

void patch(const dl_phdr_info& library, const ElfW(Rela) * relocations, size_t bytes,
           const ElfW(Sym) * symbols, const char* names) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < bytes / sizeof *relocations; ++i) {
    const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(relocations[i].r_info)];
    if (ELF64_R_SYM(relocations[i].r_info) == 0 || symbol.st_shndx != SHN_UNDEF) continue;
    void* ours = export_named(names + symbol.st_name);
    void** slot = reinterpret_cast<void**>(library.dlpi_addr + relocations[i].r_offset);
    if (ours == nullptr || *slot == ours) continue;
    bool is_protected = false;
    for (int p = 0; p < library.dlpi_phnum; ++p) {
      const ElfW(Phdr)& part = library.dlpi_phdr[p];
      if (part.p_type == PT_GNU_RELRO && relocations[i].r_offset - part.p_vaddr < part.p_memsz)
        is_protected = true;
    }
    void* at = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) & ~(page - 1));
    if (is_protected && mprotect(at, page, PROT_READ | PROT_WRITE) != 0) continue;
    *slot = ours;
    if (is_protected) mprotect(at, page, PROT_READ);
  }
}

// A deep-bound library, and what it brought along, found glibc's dlsym and the driver's functions before
// ours.
int patch_library(dl_phdr_info* library, size_t, void*) {
  const char* file = strrchr(library->dlpi_name, '/');
  const char* name = file == nullptr ? library->dlpi_name : file + 1;
  for (const char* skipped :
       {"libc.so", "ld-linux", "libdl.so", "libcuda.so", "libnvidia", "libheadroom_guard"}) {
    if (strncmp(name, skipped, strlen(skipped)) == 0) return 0;
  }
  const ElfW(Rela) * tables[2] = {};
  size_t bytes[2] = {};
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  for (int p = 0; p < library->dlpi_phnum; ++p) {
    if (library->dlpi_phdr[p].p_type != PT_DYNAMIC) continue;
    const auto* entry =
        reinterpret_cast<const ElfW(Dyn)*>(library->dlpi_addr + library->dlpi_phdr[p].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const auto at = entry->d_un.d_ptr;
      if (entry->d_tag == DT_JMPREL) tables[0] = reinterpret_cast<const ElfW(Rela)*>(at);
      if (entry->d_tag == DT_PLTRELSZ) bytes[0] = entry->d_un.d_val;
      if (entry->d_tag == DT_RELA) tables[1] = reinterpret_cast<const ElfW(Rela)*>(at);
      if (entry->d_tag == DT_RELASZ) bytes[1] = entry->d_un.d_val;
      if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(at);
      if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(at);
    }
  }
  // The addresses in the kernel's own library (vdso) are not relocated.
  if (symbols == nullptr || names == nullptr || reinterpret_cast<uintptr_t>(symbols) < library->dlpi_addr)
    return 0;
  for (int i = 0; i < 2; ++i) {
    if (tables[i] != nullptr) patch(*library, tables[i], bytes[i], symbols, names);
  }
  return 0;
}

void after_fork() {
  for (Mutex* mutex : {&state.lock, &state.making_context, &state.recording, &opening}) mutex->unlock();
  // The parent's memory is not the child's.
  state.blocks.clear();
  state.slot = -1;
  memset(state.small_bytes, 0, sizeof state.small_bytes);
  memset(state.current_pool, 0, sizeof state.current_pool);
  memset(state.primary, 0, sizeof state.primary);
  state.memory_graphs = 0;
  forget_all_grabbed();
  state.epoch++;
}

__attribute__((constructor)) void start() {
  find_loader();
  const char* path = getenv(kAccountVariable);
  if (path == nullptr) return;
  state.account = open_account(path);
  if (state.account == nullptr) return;
  pthread_atfork(nullptr, nullptr, after_fork);
  if (state.account->record_folder[0] != 0) {  // the first call loads a library
    void* frame = nullptr;
    backtrace(&frame, 1);
  }
  // This process may have had memory as another program, before exec.
  const int used = state.account->slots_used;
  const uint64_t me = used > 0 ? owner_of(getpid()) : 0;
  for (int i = 0; i < used; ++i) {
    if (state.account->slots[i].owner == me) state.slot = take_slot(*state.account);
  }
}

}  // namespace

void* real_symbol(void* library, const char* name) {
  find_loader();
  return reinterpret_cast<void* (*)(void*, const char*)>(headroom_real_dlsym)(library, name);
}

bool open_driver_first() {
  find_loader();
  const Locked locked(opening);
  if (is_open) return true;
  const auto open = reinterpret_cast<void* (*)(const char*, int)>(headroom_real_dlopen);
  void* library = open("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return false;
  for (const Hooks& hooks : {resolve_hooks(), memory_hooks(), pool_hooks(), graph_hooks(), context_hooks()}) {
    for (size_t i = 0; i < hooks.count; ++i) {
      void* symbol = real_symbol(library, hooks.first[i].name);
      if (symbol != hooks.first[i].ours) *hooks.first[i].real = symbol;
    }
  }
#define HR_FIND(name) driver.name = reinterpret_cast<decltype(driver.name)>(real_symbol(library, #name))
  HR_FIND(cuCtxGetCurrent), HR_FIND(cuCtxGetDevice), HR_FIND(cuCtxGetLimit), HR_FIND(cuDeviceGetAttribute);
  HR_FIND(cuDeviceGetUuid), HR_FIND(cuDeviceGetUuid_v2), HR_FIND(cuDeviceGetMemPool);
  HR_FIND(cuDevicePrimaryCtxGetState), HR_FIND(cuMemPoolGetAttribute), HR_FIND(cuStreamGetCtx);
  HR_FIND(cuStreamIsCapturing), HR_FIND(cuStreamSynchronize), HR_FIND(cuThreadExchangeStreamCaptureMode),
      HR_FIND(cuGraphGetNodes), HR_FIND(cuGraphNodeGetType);
  HR_FIND(cuGraphMemAllocNodeGetParams), HR_FIND(cuDeviceGetGraphMemAttribute);
#undef HR_FIND
  is_open = true;
  if (state.account != nullptr &&
      state.account->knows_cards == 0) {  // the parent opens its library meanwhile
    state.account->wanted++;
    wake(state.account->wanted);
  }
  return true;
}

namespace {

// Our function in place of the driver's answer for `symbol`: the hook whose real function that is; if the
// driver exports no such function, the newest hook that this version may mean.
void* answer_for(const char* symbol, void* handed_out, int version, uint64_t flags) {
  const size_t length = strlen(symbol);
  const Hook* same = find_hook([handed_out](const Hook& hook) { return *hook.real == handed_out; });
  if (same != nullptr) return same->ours;
  Dl_info facts;
  if (dladdr(handed_out, &facts) != 0 && facts.dli_saddr == handed_out) return handed_out;
  const Hook* best = nullptr;
  find_hook([&](const Hook& hook) {
    if (strncmp(hook.name, symbol, length) != 0) return false;
    const char* suffix = hook.name + length;
    const bool per_thread = strstr(suffix, "_ptsz") != nullptr;
    const bool is_version = *suffix == 0 || strncmp(suffix, "_v", 2) == 0 || strcmp(suffix, "_ptsz") == 0;
    if (!is_version || hook.since > version || per_thread != ((flags & kPerThreadStreams) != 0)) return false;
    if (best == nullptr || hook.since >= best->since) best = &hook;
    return false;
  });
  return best == nullptr ? handed_out : best->ours;
}

}  // namespace

HR_DRIVER CUresult cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags);
HR_DRIVER CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags,
                                       int* status);
HR_DRIVER CUresult cuGetProcAddress_v2_ptsz(const char* symbol, void** function, int version, uint64_t flags,
                                            int* status);

namespace {

void answer(const char* symbol, void** function, int version, uint64_t flags) {
  if (state.account == nullptr || function == nullptr || *function == nullptr || symbol == nullptr) return;
  *function = answer_for(symbol, *function, version, flags);
}

}  // namespace

HR_DRIVER CUresult cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  const CUresult result = real<&cuGetProcAddress>(symbol, function, version, flags);
  if (result == kSuccess) answer(symbol, function, version, flags);
  return result;
}

HR_DRIVER CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags,
                                       int* status) {
  const CUresult result = real<&cuGetProcAddress_v2>(symbol, function, version, flags, status);
  if (result == kSuccess) answer(symbol, function, version, flags);
  return result;
}

HR_DRIVER CUresult cuGetProcAddress_v2_ptsz(const char* symbol, void** function, int version, uint64_t flags,
                                            int* status) {
  const CUresult result = real<&cuGetProcAddress_v2_ptsz>(symbol, function, version, flags, status);
  if (result == kSuccess) answer(symbol, function, version, flags | kPerThreadStreams);
  return result;
}

Hooks resolve_hooks() {
  static const Hook hooks[] = {HR_HOOK(cuGetProcAddress, 11030), HR_HOOK(cuGetProcAddress_v2, 12000),
                               HR_HOOK(cuGetProcAddress_v2_ptsz, 12000)};
  return {hooks, 3};
}

// Null: glibc answers.
extern "C" __attribute__((visibility("hidden"), used)) void* headroom_guard_dlsym(void* library,
                                                                                  const char* name) {
  find_loader();
  if (state.account == nullptr || !is_driver_name(name)) return nullptr;
  const Hook* hook = hook_named(name);
  if (hook == nullptr) return nullptr;
  if (strncmp(name, "nvml", 4) == 0) {
    // Found where the program looks for it, as we look for no management library.
    void* symbol = library == RTLD_NEXT || library == RTLD_DEFAULT ? nullptr : real_symbol(library, name);
    if (symbol == nullptr || symbol == hook->ours) return nullptr;
    *hook->real = symbol;
    return hook->ours;
  }
  return open_driver() && *hook->real != nullptr ? hook->ours : nullptr;
}

extern "C" __attribute__((visibility("hidden"), used)) void* headroom_guard_dlopen(const char* path,
                                                                                   int flags) {
  find_loader();
  if (state.account == nullptr || (flags & RTLD_DEEPBIND) == 0) return nullptr;
  // The search for a name without a folder depends on the caller, so glibc makes it, without the flag.
  if (path == nullptr || strchr(path, '/') == nullptr) return nullptr;
  void* library = reinterpret_cast<void* (*)(const char*, int)>(headroom_real_dlopen)(path, flags);
  if (library != nullptr) dl_iterate_phdr(patch_library, nullptr);
  return library;
}

}  // namespace headroom::guard
