// The stand-in's libnvidia-ml.so.1: what the watcher and programs ask of the management library.

#include <cstdio>
#include <cstring>

#include "guard/driver.h"
#include "guard/standin/cards.h"

using headroom::guard::nvmlMemory_t;
using headroom::guard::nvmlMemory_v2_t;
using headroom::guard::nvmlProcessInfo_t;
using standin::cards;

namespace {

using Device = intptr_t;  // the card's number and 1
constexpr int kSuccess = 0, kInvalidArgument = 2, kNotFound = 6, kInsufficientSize = 7;

bool is_card(Device device) {
  return device >= 1 && device <= cards().count;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return kSuccess;
}
int nvmlShutdown() {
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  return *count = static_cast<unsigned>(cards().count), kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = static_cast<Device>(index) + 1;
  return is_card(*device) ? kSuccess : kInvalidArgument;
}
int nvmlDeviceGetUUID(Device device, char* text, unsigned size) {
  if (!is_card(device)) return kInvalidArgument;
  unsigned char uuid[16];
  standin::uuid_of(static_cast<int>(device) - 1, uuid);
  int at = snprintf(text, size, "GPU-");
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    at += snprintf(text + at, size - static_cast<unsigned>(at), "%s%02x", dash ? "-" : "", uuid[i]);
  }
  return kSuccess;
}
int nvmlDeviceGetHandleByUUID(const char* text, Device* device) {
  for (*device = 1; is_card(*device); ++*device) {
    char own[96];
    nvmlDeviceGetUUID(*device, own, sizeof own);
    if (strcmp(own, text) == 0) return kSuccess;
  }
  return kNotFound;
}
int nvmlDeviceGetName(Device, char* text, unsigned size) {
  return snprintf(text, size, "stand-in"), kSuccess;
}
int nvmlDeviceGetMemoryInfo(Device device, nvmlMemory_t* memory) {
  if (!is_card(device)) return kInvalidArgument;
  const auto used = static_cast<unsigned long long>(standin::used_of(static_cast<int>(device) - 1));
  const auto total = static_cast<unsigned long long>(cards().total);
  *memory = {total, total - used, used};
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo_v2(Device device, nvmlMemory_v2_t* memory) {
  nvmlMemory_t plain;
  if (const int result = nvmlDeviceGetMemoryInfo(device, &plain)) return result;
  *memory = {memory->version, plain.total, 0, plain.free, plain.used};
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, nvmlProcessInfo_t* list) {
  if (!is_card(device)) return kInvalidArgument;
  struct Filling {
    unsigned room, count;
    nvmlProcessInfo_t* list;
  } filling{*count, 0, list};
  if (cards().hides_processes == 0) {
    standin::for_each_process(
        static_cast<int>(device) - 1,
        [](void* with, int pid, int64_t bytes) {
          auto& to = *static_cast<Filling*>(with);
          if (to.count < to.room)
            to.list[to.count] = {static_cast<unsigned>(pid), static_cast<unsigned long long>(bytes), ~0u,
                                 ~0u};
          ++to.count;
        },
        &filling);
  }
  *count = filling.count;
  return filling.count > filling.room ? kInsufficientSize : kSuccess;
}

}  // extern "C"
