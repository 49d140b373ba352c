// A program that takes device memory as its arguments say, through one of the ways in which programs find the driver:
//   guard_program HOW COMMAND...
// HOW: direct, dlsym, dlsym-default, proc[:VERSION] (cuGetProcAddress), proc2[:VERSION] (cuGetProcAddress_v2), deep,
// deep-dlsym. Each command that takes memory prints its name and the driver's code on one line. Sizes are in MiB.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long Pointer;
typedef struct { int type, handle_types, location_type, location; void* win32; unsigned char flags[8]; } Properties;
typedef struct { int type, handle_types, location_type, location; void* win32; size_t most; unsigned short usage; unsigned char rest[54]; } PoolProperties;
typedef struct { PoolProperties pool; void* access; size_t count, bytes; Pointer pointer; } Node;
typedef struct { size_t width, height; int format; unsigned channels; } Array;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } Array3D;

// name, the name that the headers give it, the parameters
#define FUNCTIONS(F) \
  F(cuInit, cuInit, (unsigned)) \
  F(cuDeviceGet, cuDeviceGet, (int*, int)) \
  F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void**, int)) \
  F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int)) \
  F(cuCtxSetCurrent, cuCtxSetCurrent, (void*)) \
  F(cuCtxCreate, cuCtxCreate_v2, (void**, unsigned, int)) \
  F(cuCtxDestroy, cuCtxDestroy_v2, (void*)) \
  F(cuCtxSynchronize, cuCtxSynchronize, (void)) \
  F(cuCtxSetLimit, cuCtxSetLimit, (int, size_t)) \
  F(cuMemAlloc, cuMemAlloc_v2, (Pointer*, size_t)) \
  F(cuMemFree, cuMemFree_v2, (Pointer)) \
  F(cuMemAllocManaged, cuMemAllocManaged, (Pointer*, size_t, unsigned)) \
  F(cuMemAllocPitch, cuMemAllocPitch_v2, (Pointer*, size_t*, size_t, size_t, unsigned)) \
  F(cuMemAllocAsync, cuMemAllocAsync, (Pointer*, size_t, void*)) \
  F(cuMemFreeAsync, cuMemFreeAsync, (Pointer, void*)) \
  F(cuMemPoolCreate, cuMemPoolCreate, (void**, const PoolProperties*)) \
  F(cuMemPoolDestroy, cuMemPoolDestroy, (void*)) \
  F(cuMemPoolSetAttribute, cuMemPoolSetAttribute, (void*, int, void*)) \
  F(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, (void**, int)) \
  F(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, (Pointer*, size_t, void*, void*)) \
  F(cuMemCreate, cuMemCreate, (Pointer*, size_t, const Properties*, unsigned long long)) \
  F(cuMemRelease, cuMemRelease, (Pointer)) \
  F(cuMemAddressReserve, cuMemAddressReserve, (Pointer*, size_t, size_t, Pointer, unsigned long long)) \
  F(cuMemMap, cuMemMap, (Pointer, size_t, size_t, Pointer, unsigned long long)) \
  F(cuMemUnmap, cuMemUnmap, (Pointer, size_t)) \
  F(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, (Pointer*, void*)) \
  F(cuArrayCreate, cuArrayCreate_v2, (void**, const Array*)) \
  F(cuArray3DCreate, cuArray3DCreate_v2, (void**, const Array3D*)) \
  F(cuArrayDestroy, cuArrayDestroy, (void*)) \
  F(cuMipmappedArrayCreate, cuMipmappedArrayCreate, (void**, const Array3D*, unsigned)) \
  F(cuGraphCreate, cuGraphCreate, (void**, unsigned)) \
  F(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, (void**, void*, const void*, size_t, Node*)) \
  F(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, (void**, void*, const void*, size_t, Pointer)) \
  F(cuGraphInstantiate, cuGraphInstantiateWithFlags, (void**, void*, unsigned long long)) \
  F(cuGraphLaunch, cuGraphLaunch, (void*, void*)) \
  F(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, (int)) \
  F(cuModuleLoadData, cuModuleLoadData, (void**, const void*)) \
  F(cuModuleGetFunction, cuModuleGetFunction, (void**, void*, const char*)) \
  F(cuMemGetInfo, cuMemGetInfo_v2, (size_t*, size_t*)) \
  F(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t*, int))

#define DECLARE(name, symbol, parameters) int(*name) parameters;
typedef struct Driver { FUNCTIONS(DECLARE) } Driver;

#define EXTERN(name, symbol, parameters) extern int symbol parameters;
#define DIRECT(name, symbol, parameters) driver->name = symbol;
#ifdef DEEP  // the library that a program opens with RTLD_DEEPBIND
FUNCTIONS(EXTERN)
void deep_direct(Driver* driver) { FUNCTIONS(DIRECT) }
void deep_dlsym(Driver* driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
#define BY_DLSYM(name, symbol, parameters) *(void**)&driver->name = dlsym(library, #symbol);
  FUNCTIONS(BY_DLSYM)
}
#else

static Driver cu;
static Pointer blocks[1 << 16];
static int count;
static const size_t kMib = 1 << 20;

#ifdef LINKED
FUNCTIONS(EXTERN)
static void direct(Driver* driver) { FUNCTIONS(DIRECT) }
#else
static void direct(Driver* driver) { (void)driver; exit(9); }
#endif

static void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, dlerror());
  exit(9);
}

static void resolve(const char* how) {
  const char* colon = strchr(how, ':');
  const int version = colon == NULL ? 13000 : atoi(colon + 1);
  if (strcmp(how, "direct") == 0) {
    direct(&cu);
  } else if (strncmp(how, "dlsym", 5) == 0) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | (how[5] == 0 ? RTLD_LOCAL : RTLD_GLOBAL));
    if (library == NULL) fail("libcuda.so.1");
    if (how[5] != 0) library = RTLD_DEFAULT;
#define FIND(name, symbol, parameters) *(void**)&cu.name = dlsym(library, #symbol);
    FUNCTIONS(FIND)
  } else if (strncmp(how, "proc", 4) == 0) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fail("libcuda.so.1");
    int (*get)(const char*, void**, int, uint64_t) = NULL;
    int (*get2)(const char*, void**, int, uint64_t, int*) = NULL;
    *(void**)&get = dlsym(library, "cuGetProcAddress");
    if (how[4] == '2') {  // as the runtime does: asks the first for the second
      *(void**)&get2 = NULL;
      get("cuGetProcAddress", (void**)&get2, 12000, 0);
    }
#define ASK(name, symbol, parameters)                                                                  \
  if (get2 != NULL) get2(#name, (void**)&cu.name, version, 0, NULL);                                  \
  else get(#name, (void**)&cu.name, version, 0);
    FUNCTIONS(ASK)
  } else {
    void* library = dlopen(getenv("GUARD_DEEP_LIBRARY"), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == NULL) fail("deep library");
    void (*fill)(Driver*) = NULL;
    *(void**)&fill = dlsym(library, strcmp(how, "deep") == 0 ? "deep_direct" : "deep_dlsym");
    fill(&cu);
  }
}

static void say(const char* what, int code) {
  printf("%s %d\n", what, code);
  fflush(stdout);
}

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void* context;
static void *pool, *stream;

static void* takes_and_gives(void* bytes) {
  cu.cuCtxSetCurrent(context);
  for (int i = 0; i < 2000; ++i) {
    Pointer at = 0;
    if (cu.cuMemAlloc(&at, (size_t)bytes) == 0) cu.cuMemFree(at);
  }
  return NULL;
}

// Several processes ask for the same memory, each until it has had it so often.
static void race(size_t bytes, int rounds) {
  int won = 0;
  while (won < rounds) {
    Pointer at = 0;
    const int result = cu.cuMemAlloc(&at, bytes);
    if (result == 2) continue;  // out of memory: the other one has it
    if (result != 0) break;
    ++won;
    cu.cuMemFree(at);
  }
  say("won", won);
}

int main(int argc, char** argv) {
  if (argc < 2) return 9;
  resolve(argv[1]);
  int device = 0, i = 2;
  void* graph = NULL;
  void* ready = NULL;
#define NUMBER ((size_t)atoll(argv[++i]))
  for (; i < argc; ++i) {
    const char* what = argv[i];
    Pointer at = 0;
    size_t free_bytes = 0, total = 0;
    if (strcmp(what, "init") == 0) say(what, cu.cuInit(0));
    else if (strcmp(what, "device") == 0) cu.cuDeviceGet(&device, (int)NUMBER);
    else if (strcmp(what, "retain") == 0) {
      say(what, cu.cuDevicePrimaryCtxRetain(&context, device));
      cu.cuCtxSetCurrent(context);
    } else if (strcmp(what, "release") == 0) say(what, cu.cuDevicePrimaryCtxRelease(device));
    else if (strcmp(what, "stream") == 0) stream = context;  // the stand-in's streams are contexts
    else if (strcmp(what, "context") == 0) say(what, cu.cuCtxCreate(&context, 0, device));
    else if (strcmp(what, "destroy") == 0) say(what, cu.cuCtxDestroy(context));
    else if (strcmp(what, "alloc") == 0) {
      const int code = cu.cuMemAlloc(&at, NUMBER * kMib);
      say(what, code);
      if (code == 0) blocks[count++] = at;
    } else if (strcmp(what, "bytes") == 0) {
      const int code = cu.cuMemAlloc(&at, NUMBER);
      if (code == 0) blocks[count++] = at;
      else say(what, code);
    } else if (strcmp(what, "fill") == 0) {  // blocks of that size until one is refused
      const size_t bytes = NUMBER * kMib;
      int code = 0, n = 0;
      while ((code = cu.cuMemAlloc(&at, bytes)) == 0) blocks[count++] = at, ++n;
      say(what, code), say("blocks", n);
    } else if (strcmp(what, "managed") == 0) say(what, cu.cuMemAllocManaged(&at, NUMBER * kMib, 1));
    else if (strcmp(what, "pitch") == 0) say(what, cu.cuMemAllocPitch(&at, &total, kMib, NUMBER, 4));
    else if (strcmp(what, "async") == 0) {
      const int code = cu.cuMemAllocAsync(&at, NUMBER * kMib, stream);
      say(what, code);
      if (code == 0) blocks[count++] = at;
    } else if (strcmp(what, "pool") == 0 || strcmp(what, "host-pool") == 0) {
      const int location_type = what[0] == 'h' ? 2 : 1;
      const PoolProperties properties = {.type = 1, .location_type = location_type, .location = device};
      if (pool == NULL) cu.cuMemPoolCreate(&pool, &properties);
      say(what, cu.cuMemAllocFromPoolAsync(&at, NUMBER * kMib, pool, NULL));
      blocks[count++] = at;
    } else if (strcmp(what, "drop-pool") == 0) {
      say(what, cu.cuMemPoolDestroy(pool));
      pool = NULL;
    } else if (strcmp(what, "churn") == 0) {  // blocks of 1 to 96 MiB come and go, so that the pool has gaps
      enum { kSlots = 48 };
      Pointer held[kSlots] = {0};
      const int steps = (int)NUMBER;
      uint32_t random = 1;
      int refused = 0;
      for (int step = 0; step < steps; ++step) {
        random = random * 1664525u + 1013904223u;
        const int slot = (int)(random >> 16) % kSlots;
        if (held[slot] != 0) cu.cuMemFreeAsync(held[slot], NULL), held[slot] = 0;
        else if (cu.cuMemAllocAsync(&held[slot], (1 + (random >> 8) % 96) * kMib, NULL) != 0) held[slot] = 0, ++refused;
      }
      for (int slot = 0; slot < kSlots; ++slot) {
        if (held[slot] != 0) cu.cuMemFreeAsync(held[slot], NULL);
      }
      say("refused", refused > 0), say(what, 0);
    } else if (strcmp(what, "gaps") == 0) {  // small blocks, and larger ones that their gaps do not hold
      static Pointer small[1 << 14];
      int n = 0;
      while (n < 1 << 14 && cu.cuMemAllocAsync(&small[n], kMib / 2, NULL) == 0) ++n;
      int again = 0;
      for (int i = 0; i < n; i += 2) cu.cuMemFreeAsync(small[i], NULL);
      for (int i = 0; i < n; i += 2) again += cu.cuMemAllocAsync(&small[i], kMib / 2, NULL) == 0;
      say("again", again == (n + 1) / 2);
      for (int i = 0; i < n; i += 2) cu.cuMemFreeAsync(small[i], NULL);
      while (n > 0 && cu.cuMemAllocAsync(&at, kMib * 3 / 4, NULL) == 0) --n;
      say(what, n > 0);
    } else if (strcmp(what, "keep") == 0) {  // the default pool gives nothing back
      void* usual = NULL;
      uint64_t all = UINT64_MAX;
      cu.cuDeviceGetDefaultMemPool(&usual, device);
      cu.cuMemPoolSetAttribute(usual, 4, &all);
    } else if (strcmp(what, "sync") == 0) cu.cuCtxSynchronize();
    else if (strcmp(what, "create") == 0) {  // mapped, the handle released: lives as long as the mapping
      const Properties properties = {.type = 1, .location_type = 1, .location = device};
      const size_t bytes = NUMBER * kMib;
      Pointer handle = 0;
      const int code = cu.cuMemCreate(&handle, bytes, &properties, 0);
      say(what, code);
      if (code != 0) continue;
      cu.cuMemAddressReserve(&at, bytes, 0, 0, 0);
      cu.cuMemMap(at, bytes, 0, handle, 0);
      cu.cuMemRelease(handle);
      blocks[count++] = at;
    } else if (strcmp(what, "unmap") == 0) say(what, cu.cuMemUnmap(blocks[--count], NUMBER * kMib));
    else if (strcmp(what, "hold") == 0) {  // a handle of its own for the last mapping
      Pointer handle = 0;
      say(what, cu.cuMemRetainAllocationHandle(&handle, (void*)blocks[count - 1]));
    } else if (strcmp(what, "array") == 0) {
      const Array array = {.width = 512, .height = 512 * NUMBER, .format = 0x20, .channels = 1};
      say(what, cu.cuArrayCreate((void**)&at, &array));
      blocks[count++] = at;
    } else if (strcmp(what, "unarray") == 0) say(what, cu.cuArrayDestroy((void*)blocks[--count]));
    else if (strcmp(what, "cube") == 0 || strcmp(what, "mipmaps") == 0) {
      const Array3D array = {.width = 512, .height = 512, .depth = NUMBER, .format = 0x20, .channels = 1};
      say(what, what[0] == 'c' ? cu.cuArray3DCreate((void**)&at, &array) : cu.cuMipmappedArrayCreate((void**)&at, &array, 9));
    } else if (strcmp(what, "graph") == 0) {
      Node node = {.pool = {.type = 1, .location_type = 1, .location = device}, .bytes = NUMBER * kMib};
      void* made = NULL;
      cu.cuGraphCreate(&graph, 0);
      cu.cuGraphAddMemAllocNode(&made, graph, NULL, 0, &node);
      cu.cuGraphAddMemFreeNode(&made, graph, &made, 1, node.pointer);
      say(what, cu.cuGraphInstantiate(&ready, graph, 0));
    } else if (strcmp(what, "launch") == 0) say(what, cu.cuGraphLaunch(ready, NULL));
    else if (strcmp(what, "trim") == 0) say(what, cu.cuDeviceGraphMemTrim(device));
    else if (strcmp(what, "stack") == 0) say(what, cu.cuCtxSetLimit(0, NUMBER));
    else if (strcmp(what, "module") == 0) {
      void* module = NULL;
      say(what, cu.cuModuleLoadData(&module, ""));
    } else if (strcmp(what, "code") == 0) {
      void* function = NULL;
      say(what, cu.cuModuleGetFunction(&function, NULL, ""));
    } else if (strcmp(what, "info") == 0) {
      cu.cuMemGetInfo(&free_bytes, &total);
      say("free", (int)(free_bytes / kMib)), say("total", (int)(total / kMib));
    } else if (strcmp(what, "total") == 0) {
      cu.cuDeviceTotalMem(&total, device);
      say(what, (int)(total / kMib));
    } else if (strcmp(what, "nvml") == 0) {
      void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
      int (*handle)(unsigned, void**) = NULL;
      int (*memory)(void*, unsigned long long*) = NULL;
      void* card = NULL;
      unsigned long long figures[3] = {0};
      *(void**)&handle = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
      *(void**)&memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
      handle(0, &card);
      memory(card, figures);
      say("nvml total", (int)(figures[0] / kMib)), say("nvml free", (int)(figures[1] / kMib));
    } else if (strcmp(what, "free") == 0) say(what, cu.cuMemFree(blocks[--count]));
    else if (strcmp(what, "free-all") == 0) {
      while (count > 0) cu.cuMemFree(blocks[--count]);
    } else if (strcmp(what, "free-async") == 0) say(what, cu.cuMemFreeAsync(blocks[--count], NULL));
    else if (strcmp(what, "threads") == 0) {
      pthread_t threads[8];
      const size_t bytes = NUMBER * kMib;
      for (int t = 0; t < 8; ++t) pthread_create(&threads[t], NULL, takes_and_gives, (void*)bytes);
      for (int t = 0; t < 8; ++t) pthread_join(threads[t], NULL);
    } else if (strcmp(what, "race") == 0) {
      const size_t bytes = NUMBER * kMib;
      race(bytes, (int)NUMBER);
    } else if (strcmp(what, "fork") == 0) {  // the rest is done by a child, then the parent ends
      const pid_t child = fork();
      if (child != 0) {
        int status = 0;
        waitpid(child, &status, 0);
        say("child", status);
        return 0;
      }
    } else if (strcmp(what, "exec") == 0) {  // the rest is done by this program anew
      char* words[256] = {argv[0], argv[1]};
      int n = 2;
      while (++i < argc) words[n++] = argv[i];
      execv(argv[0], words);
    } else if (strcmp(what, "both") == 0) {  // the rest is done by this process and a child that is a program anew
      char* words[256] = {argv[0], argv[1]};
      int n = 2;
      for (int rest = i + 1; rest < argc; ++rest) words[n++] = argv[rest];
      if (fork() == 0) execv(argv[0], words);
    } else if (strcmp(what, "wait") == 0) while (wait(NULL) > 0);
    else if (strcmp(what, "sleep") == 0) usleep((unsigned)NUMBER * 1000);
    else if (strcmp(what, "kill") == 0) raise(SIGKILL);
    else if (strcmp(what, "shell") == 0) say(what, system(argv[++i]));
    else if (strcmp(what, "exit") == 0) return (int)NUMBER;
    else if (strcmp(what, "read") == 0) {
      char line[64] = "";
      if (fgets(line, sizeof line, stdin) != NULL) printf("%s", line);
    } else if (strcmp(what, "cost") == 0) {  // ns for a pair of calls with so many live blocks, the median of 20,000
      const size_t live = NUMBER;
      for (size_t n = 0; n < live; ++n) cu.cuMemAlloc(&at, 512);
      static int64_t times[20000];
      for (int n = 0; n < 20000; ++n) {
        const int64_t before = now_ns();
        cu.cuMemAlloc(&at, 512);
        cu.cuMemFree(at);
        times[n] = now_ns() - before;
      }
      for (int n = 1; n < 20000; ++n) {
        const int64_t time = times[n];
        int to = n;
        while (to > 0 && times[to - 1] > time) times[to] = times[to - 1], --to;
        times[to] = time;
      }
      say(what, (int)times[10000]);
    } else {
      fprintf(stderr, "unknown command %s\n", what);
      return 9;
    }
  }
  return 0;
}
#endif
