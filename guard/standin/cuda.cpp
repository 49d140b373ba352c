// The stand-in's libcuda.so.1: the memory entry points of NVIDIA's driver over simulated cards. Pointers lead
// nowhere and nothing is computed. HEADROOM_STANDIN_FAIL=N makes the Nth call that takes memory fail.

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "guard/standin/process.h"

namespace standin {

Own* own = nullptr;
std::recursive_mutex mutex;

namespace {

thread_local std::vector<CUcontext> current;
std::atomic<int64_t> calls{0};

}  // namespace

bool fails() {
  static const char* text = getenv("HEADROOM_STANDIN_FAIL");
  return text != nullptr && ++calls == atoll(text);
}
CUresult take(int card, int64_t bytes) {
  return fails() || !standin::change(card, bytes) ? kCudaOutOfMemory : kSuccess;
}
CUresult here(CUcontext* context) {
  if (own == nullptr) return kNotInitialized;
  if (own->pid != getpid()) return kNotInitialized;
  if (current.empty() || current.back() == nullptr) return kInvalidContext;
  return *context = current.back(), kSuccess;
}
int64_t up(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
CUdeviceptr address(int64_t bytes) {
  const CUdeviceptr at = own->next;
  own->next += static_cast<CUdeviceptr>(up(bytes, kPage));
  return at;
}

namespace {

// Small blocks share pages.
int64_t pages(int card, int64_t bytes, int sign) {
  if (bytes > kPage / 2) return up(bytes, kPage);
  const int64_t before = up(own->small[card], kPage);
  own->small[card] += sign * up(bytes, 512);
  return std::abs(up(own->small[card], kPage) - before);
}

}  // namespace

CUresult allocate(CUdeviceptr* pointer, int64_t bytes) {
  const Lock lock(mutex);
  CUcontext context;
  if (const CUresult result = here(&context)) return result;
  if (pointer == nullptr || bytes <= 0) return kInvalidValue;
  const int64_t taken = pages(context->card, bytes, 1);
  if (const CUresult result = take(context->card, taken)) return pages(context->card, bytes, -1), result;
  *pointer = address(bytes);
  own->blocks[*pointer] = {context->card, bytes, context, nullptr};
  return kSuccess;
}

CUresult deallocate(CUdeviceptr pointer) {
  const Lock lock(mutex);
  if (own == nullptr) return kNotInitialized;
  const auto found = own->blocks.find(pointer);
  if (found == own->blocks.end()) return kInvalidValue;
  const Block block = found->second;
  own->blocks.erase(found);
  if (block.pool != nullptr)
    give_back(block);
  else
    standin::change(block.card, -pages(block.card, block.bytes, -1));
  return kSuccess;
}

namespace {

CUresult make_context(CUcontext* context, CUdevice card) {
  const Lock lock(mutex);
  if (own == nullptr) return kNotInitialized;
  if (card < 0 || card >= cards().count) return kInvalidDevice;
  if (const CUresult result = take(card, cards().context)) return result;
  *context = new CUctx_st{card};
  return kSuccess;
}

CUresult end_context(CUcontext context) {
  const Lock lock(mutex);
  for (auto at = own->blocks.begin(); at != own->blocks.end();) {
    const CUdeviceptr pointer = at->first;
    const bool ends = at->second.context == context;
    ++at;
    if (ends) deallocate(pointer);
  }
  int64_t stacks = 0;
  stacks += static_cast<int64_t>(context->limits[0] - 1024) * kSms * kThreads;
  standin::change(context->card, -cards().context - stacks);
  std::erase(current, context);
  delete context;
  return kSuccess;
}

// The names that one name may mean, oldest first; the last number is the version in which it came.
struct Version {
  const char* base;
  const char* symbol;
  int since;
};
constexpr Version kVersions[] = {
    {"cuMemAlloc", "cuMemAlloc_v2", 3020},
    {"cuMemFree", "cuMemFree_v2", 3020},
    {"cuMemAllocPitch", "cuMemAllocPitch_v2", 3020},
    {"cuMemGetInfo", "cuMemGetInfo_v2", 3020},
    {"cuDeviceTotalMem", "cuDeviceTotalMem_v2", 3020},
    {"cuArrayCreate", "cuArrayCreate_v2", 3020},
    {"cuArray3DCreate", "cuArray3DCreate_v2", 3020},
    {"cuCtxCreate", "cuCtxCreate_v2", 3020},
    {"cuCtxDestroy", "cuCtxDestroy_v2", 4000},
    {"cuDeviceGetUuid", "cuDeviceGetUuid_v2", 11040},
    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", 11000},
    {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", 11000},
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
    {"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
};

constexpr char kVersionName[] = "STANDIN_1";

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
  const Lock lock(mutex);
  if (own != nullptr && own->pid != getpid()) return kNotInitialized;
  if (own != nullptr) return kSuccess;
  if (cards().count == 0) return kNoDevice;
  standin::forget_own();
  own = new Own;
  for (int i = 0; i < standin::kMaxCards; ++i) own->defaults[i].card = i, own->pools[i] = &own->defaults[i];
  return kSuccess;
}
CUresult cuDriverGetVersion(int* version) {
  return *version = 13000, kSuccess;
}
CUresult cuDeviceGetCount(int* count) {
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  *count = visible == nullptr ? cards().count
                              : static_cast<int>(std::count(visible, visible + strlen(visible), ',')) + 1;
  return kSuccess;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  // A device is the card's number: which cards are visible shows in their order alone.
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; visible != nullptr && i < ordinal; ++i) {
    visible = strchr(visible, ',');
    if (visible == nullptr) return kInvalidDevice;
    ++visible;
  }
  *device = visible == nullptr ? ordinal : atoi(visible);
  return *device < cards().count ? kSuccess : kInvalidDevice;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  return strncpy(name, "stand-in", static_cast<size_t>(size)), kSuccess;
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return standin::uuid_of(device, uuid->bytes), kSuccess;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  return *bytes = static_cast<size_t>(cards().total), kSuccess;
}
CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice) {
  return *bytes = static_cast<unsigned>(cards().total), kSuccess;
}
CUresult cuDeviceGetAttribute(int* value, int which, CUdevice) {
  *value = which == kSmCount ? kSms : which == kThreadsPerSm ? kThreads : 0;
  return kSuccess;
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice device) {
  const CUresult result = make_context(context, device);
  if (result == kSuccess) current.push_back(*context);
  return result;
}
CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}
CUresult cuCtxCreate_v4(CUcontext* context, void*, unsigned flags, CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}
CUresult cuCtxDestroy_v2(CUcontext context) {
  return end_context(context);
}
CUresult cuCtxDestroy(CUcontext context) {
  return end_context(context);
}
CUresult cuCtxSetCurrent(CUcontext context) {
  if (current.empty())
    current.push_back(context);
  else
    current.back() = context;
  return kSuccess;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  if (own == nullptr) return kNotInitialized;
  return *context = current.empty() ? nullptr : current.back(), kSuccess;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  CUcontext context;
  if (const CUresult result = here(&context)) return result;
  return *device = context->card, kSuccess;
}
CUresult cuStreamIsCapturing(CUstream, int* status) {
  return *status = 0, kSuccess;
}
CUresult cuStreamSynchronize(CUstream) {
  return kSuccess;
}
CUresult cuCtxSynchronize() {
  const Lock lock(mutex);
  for (CUmemPoolHandle_st* pool : own->pools) {
    if (pool != nullptr) trim(*pool, static_cast<int64_t>(pool->threshold));
  }
  return kSuccess;
}
CUresult cuCtxGetLimit(size_t* value, int which) {
  CUcontext context;
  if (const CUresult result = here(&context)) return result;
  return *value = context->limits[which], kSuccess;
}
CUresult cuCtxSetLimit(int which, size_t value) {
  const Lock lock(mutex);
  CUcontext context;
  if (const CUresult result = here(&context)) return result;
  if (which == kLimitStack) {
    const int64_t bytes =
        (static_cast<int64_t>(value) - static_cast<int64_t>(context->limits[0])) * kSms * kThreads;
    if (bytes > 0 ? take(context->card, bytes) != kSuccess : !standin::change(context->card, bytes))
      return kCudaOutOfMemory;
  }
  context->limits[which] = value;
  return kSuccess;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = own != nullptr && own->primary[device] != nullptr;
  return kSuccess;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const Lock lock(mutex);
  if (own == nullptr) return kNotInitialized;
  if (own->primary[device] == nullptr) {
    if (const CUresult result = make_context(&own->primary[device], device)) return result;
  }
  ++own->primary_refs[device];
  return *context = own->primary[device], kSuccess;
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  const Lock lock(mutex);
  if (own->primary[device] != nullptr) end_context(own->primary[device]);
  own->primary[device] = nullptr;
  own->primary_refs[device] = 0;
  return kSuccess;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const Lock lock(mutex);
  if (own->primary_refs[device] == 0) return kInvalidContext;
  return --own->primary_refs[device] == 0 ? cuDevicePrimaryCtxReset_v2(device) : kSuccess;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return cuDevicePrimaryCtxRelease_v2(device);
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  CUcontext context;
  if (const CUresult result = here(&context)) return result;
  *total = static_cast<size_t>(cards().total);
  *free = static_cast<size_t>(cards().total - standin::used_of(context->card));
  return kSuccess;
}
CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  return allocate(pointer, static_cast<int64_t>(bytes));
}
CUresult cuMemAlloc(unsigned* pointer, unsigned bytes) {
  CUdeviceptr at = 0;
  const CUresult result = allocate(&at, bytes);
  return *pointer = static_cast<unsigned>(at), result;
}
CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned) {
  return allocate(pointer, static_cast<int64_t>(bytes));
}
CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned) {
  *pitch = static_cast<size_t>(up(static_cast<int64_t>(width), 512));
  return allocate(pointer, static_cast<int64_t>(*pitch * height));
}
CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return deallocate(pointer);
}
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream) {
  return deallocate(pointer);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream) {
  return deallocate(pointer);
}
CUresult cuArrayCreate_v2(CUarray* array, const ArrayDescriptor<size_t>* shape) {
  return allocate(
      reinterpret_cast<CUdeviceptr*>(array),
      static_cast<int64_t>(shape->width * std::max<size_t>(shape->height, 1) * shape->channels * 4));
}
CUresult cuArray3DCreate_v2(CUarray* array, const Array3DDescriptor<size_t>* shape) {
  return allocate(reinterpret_cast<CUdeviceptr*>(array),
                  static_cast<int64_t>(shape->width * std::max<size_t>(shape->height, 1) *
                                       std::max<size_t>(shape->depth, 1) * shape->channels * 4));
}
CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const Array3DDescriptor<size_t>* shape, unsigned) {
  return allocate(
      reinterpret_cast<CUdeviceptr*>(array),
      static_cast<int64_t>(shape->width * std::max<size_t>(shape->height, 1) * shape->channels * 4 * 4 / 3));
}
CUresult cuArrayDestroy(CUarray array) {
  return deallocate(reinterpret_cast<CUdeviceptr>(array));
}
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return deallocate(reinterpret_cast<CUdeviceptr>(array));
}

CUresult cuModuleLoadData(CUmodule* module, const void*) {
  CUcontext context;
  if (const CUresult result = here(&context)) return result;
  if (const CUresult result = take(context->card, cards().module)) return result;
  return *module = reinterpret_cast<CUmodule>(own), kSuccess;
}
// Code that comes when it is first used.
CUresult cuModuleGetFunction(void** function, CUmodule module, const char*) {
  CUcontext context;
  if (const CUresult result = here(&context)) return result;
  if (!own->has_lazy && take(context->card, cards().lazy) != kSuccess) return kCudaOutOfMemory;
  own->has_lazy = true;
  return *function = module, kSuccess;
}

// A driver may hand out functions that it does not export.
static CUresult hidden_alloc(CUdeviceptr* pointer, size_t bytes) {
  return allocate(pointer, static_cast<int64_t>(bytes));
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  std::string name = symbol;
  for (const Version& other : kVersions) {
    if (name == other.base && version >= other.since) {
      name = other.symbol;
      break;
    }
  }
  // The functions have a version, as dlsym is answered by a library in front of us.
  static void* self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  *function = nullptr;
  if ((flags & kPerThreadStreams) != 0) *function = dlvsym(self, (name + "_ptsz").c_str(), kVersionName);
  if (*function == nullptr) *function = dlvsym(self, name.c_str(), kVersionName);
  if (name == "cuMemAlloc_v2" && getenv("HEADROOM_STANDIN_HIDDEN") != nullptr)
    *function = reinterpret_cast<void*>(hidden_alloc);
  return *function == nullptr ? kNotFound : kSuccess;
}
CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags, int* status) {
  const CUresult result = cuGetProcAddress(symbol, function, version, flags);
  if (status != nullptr) *status = result == kSuccess ? 0 : 1;
  return result;
}

}  // extern "C"

}  // namespace standin
