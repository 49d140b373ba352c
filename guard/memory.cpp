// Memory that a call takes at once: plain, pitched and managed allocations, physical memory for one's own
// addresses, and arrays.

#include "guard/hooks.h"

namespace headroom::guard {
namespace {

// Counts `bytes`, calls the driver, and keeps or returns the count. `key` reads the handle after the call,
// `size` the bytes that it took, where only the driver knows them.
template <typename Call, typename Key, typename Size>
CUresult allocate(Kind kind, int64_t bytes, Place place, Call call, Key key, Size size) {
  if (place.card < 0) return call();
  int64_t pages = 0;
  bool is_counted = false;
  {
    const Locked locked;
    pages = pages_for(place.card, bytes);
    is_counted = ask(place.card, pages);
    if (!is_counted) pages_without(place.card, bytes);
  }
  if (!is_counted) return refused(place.card, bytes);
  const CUresult result = call();
  Block block;
  {
    const Locked locked;
    if (result != kSuccess) {
      pages_without(place.card, bytes);
      returned(place.card, pages);
      return result;
    }
    if (const int64_t took = size(); took != bytes) {
      returned(place.card, pages_without(place.card, bytes) - pages_for(place.card, took));
      bytes = took;
    }
    block.key = key();
    block.owner = reinterpret_cast<uint64_t>(place.context);
    block.bytes = bytes;
    block.card = static_cast<int16_t>(place.card);
    block.kind = kind;
    state.blocks.insert(block);
    grab(place);
  }
  record(guard::Call::kAllocate, kind, block.card, block.key, bytes);
  return result;
}

template <typename Call, typename Key>
CUresult allocate(Kind kind, int64_t bytes, Place place, Call call, Key key) {
  return allocate(kind, bytes, place, call, key, [bytes] { return bytes; });
}

// Takes bytes of a block from the part of its pool that is in use; negative: adds them.
void count_unused(const Block& block, int64_t bytes) {
  if (Block* pool = state.blocks.find(Kind::kPool, block.owner))
    set_pool(*pool, pool->bytes, pool->live - bytes);
}

// Frees the block with that key. Its kind is one of the two.
template <typename Call>
CUresult deallocate(Kind kind, Kind other, uint64_t key, Call call) {
  if (state.account == nullptr) return call();
  Block block;
  {
    const Locked locked;
    Block* found = state.blocks.find(kind, key);
    if (found == nullptr) found = state.blocks.find(other, key);
    if (found == nullptr) return call();
    block = *found;
    state.blocks.erase(found);  // after the call another thread may get the same address
    if (block.kind == Kind::kPooled) count_unused(block, block.bytes);
    record(guard::Call::kFree, block.kind, block.card, block.key, block.bytes);
  }
  const CUresult result = call();
  if (result != kSuccess)
    record(guard::Call::kAllocate, block.kind, block.card, block.key, block.bytes);
  else if (block.kind == Kind::kPooled && state.account->grab_bytes == 0)
    return result;
  const Locked locked;
  if (result != kSuccess) {
    state.blocks.insert(block);
    if (block.kind == Kind::kPooled) count_unused(block, -block.bytes);
    return result;
  }
  if (block.kind != Kind::kPooled) returned(block.card, pages_without(block.card, block.bytes));
  if (state.account->grab_bytes != 0) grab(here());
  return result;
}

int64_t element_bytes(int format, unsigned channels) {
  switch (format) {
    case 0x01:
    case 0x08:
      return channels;
    case 0x02:
    case 0x09:
    case 0x10:
      return int64_t{2} * channels;
    default:
      return int64_t{4} * (channels == 0 ? 1 : channels);
  }
}

// The driver lays arrays out in tiles of 64 bytes by 8 rows.
int64_t array_bytes(int64_t width, int64_t height, int64_t depth, int64_t element) {
  return round_up(width * element, 64) * (height <= 1 ? 1 : round_up(height, 8)) * (depth <= 1 ? 1 : depth);
}

template <typename D>
int64_t bytes_of(const D* array, unsigned levels = 1) {
  if (array == nullptr) return 0;
  auto width = static_cast<int64_t>(array->width), height = static_cast<int64_t>(array->height);
  int64_t depth = 1;
  bool is_layered = false;
  if constexpr (requires { array->depth; }) {
    depth = static_cast<int64_t>(array->depth);
    is_layered = (array->flags & 1) != 0;
  }
  int64_t bytes = 0;
  for (unsigned level = 0; level < levels && level < 32; ++level) {
    bytes += array_bytes(width, height, depth, element_bytes(array->format, array->channels));
    width = width > 1 ? width / 2 : 1;
    height = height > 1 ? height / 2 : height;
    if (!is_layered) depth = depth > 1 ? depth / 2 : depth;
  }
  return bytes;
}

template <auto Real, typename H, typename D, typename... A>
CUresult make_array(H* handle, const D* array, A... levels) {
  const auto call = [=] { return real<Real>(handle, array, levels...); };
  const int64_t bytes = bytes_of(array, levels...);
  if (bytes <= 0) return call();
  return allocate(Kind::kArray, bytes, here(), call, [=] { return reinterpret_cast<uint64_t>(*handle); });
}

}  // namespace

HR_DRIVER CUresult cuMemAlloc(unsigned* pointer, unsigned bytes) {
  const auto call = [=] { return real<&cuMemAlloc>(pointer, bytes); };
  if (is_absurd(bytes)) return call();
  return allocate(Kind::kMemory, bytes, here(), call, [=] { return uint64_t{*pointer}; });
}
HR_DRIVER CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  const auto call = [=] { return real<&cuMemAlloc_v2>(pointer, bytes); };
  if (is_absurd(bytes)) return call();
  return allocate(Kind::kMemory, static_cast<int64_t>(bytes), here(), call,
                  [=] { return uint64_t{*pointer}; });
}
HR_DRIVER CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  const auto call = [=] { return real<&cuMemAllocManaged>(pointer, bytes, flags); };
  if (is_absurd(bytes)) return call();
  return allocate(Kind::kMemory, static_cast<int64_t>(bytes), here(), call,
                  [=] { return uint64_t{*pointer}; });
}
HR_DRIVER CUresult cuMemAllocPitch(unsigned* pointer, unsigned* pitch, unsigned width, unsigned height,
                                   unsigned element) {
  const auto call = [=] { return real<&cuMemAllocPitch>(pointer, pitch, width, height, element); };
  const int64_t most = round_up(width, 512) * height;
  if (most <= 0) return call();
  return allocate(
      Kind::kMemory, most, here(), call, [=] { return uint64_t{*pointer}; },
      [=] { return int64_t{*pitch} * height; });
}
HR_DRIVER CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height,
                                      unsigned element) {
  const auto call = [=] { return real<&cuMemAllocPitch_v2>(pointer, pitch, width, height, element); };
  if (is_absurd(width) || is_absurd(height) || width > (size_t{1} << 50) / height) return call();
  const int64_t most = round_up(static_cast<int64_t>(width), 512) * static_cast<int64_t>(height);
  return allocate(
      Kind::kMemory, most, here(), call, [=] { return uint64_t{*pointer}; },
      [=] { return static_cast<int64_t>(*pitch * height); });
}
HR_DRIVER CUresult cuMemFree(unsigned pointer) {
  return deallocate(Kind::kMemory, Kind::kPooled, pointer, [=] { return real<&cuMemFree>(pointer); });
}
HR_DRIVER CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return deallocate(Kind::kMemory, Kind::kPooled, pointer, [=] { return real<&cuMemFree_v2>(pointer); });
}
HR_DRIVER CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return deallocate(Kind::kPooled, Kind::kMemory, pointer,
                    [=] { return real<&cuMemFreeAsync>(pointer, stream); });
}
HR_DRIVER CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
  return deallocate(Kind::kPooled, Kind::kMemory, pointer,
                    [=] { return real<&cuMemFreeAsync_ptsz>(pointer, stream); });
}

HR_DRIVER CUresult cuArrayCreate(CUarray* handle, const ArrayDescriptor<unsigned>* array) {
  return make_array<&cuArrayCreate>(handle, array);
}
HR_DRIVER CUresult cuArrayCreate_v2(CUarray* handle, const ArrayDescriptor<size_t>* array) {
  return make_array<&cuArrayCreate_v2>(handle, array);
}
HR_DRIVER CUresult cuArray3DCreate(CUarray* handle, const Array3DDescriptor<unsigned>* array) {
  return make_array<&cuArray3DCreate>(handle, array);
}
HR_DRIVER CUresult cuArray3DCreate_v2(CUarray* handle, const Array3DDescriptor<size_t>* array) {
  return make_array<&cuArray3DCreate_v2>(handle, array);
}
HR_DRIVER CUresult cuMipmappedArrayCreate(CUmipmappedArray* handle, const Array3DDescriptor<size_t>* array,
                                          unsigned levels) {
  return make_array<&cuMipmappedArrayCreate>(handle, array, levels);
}
HR_DRIVER CUresult cuArrayDestroy(CUarray handle) {
  return deallocate(Kind::kArray, Kind::kArray, reinterpret_cast<uint64_t>(handle),
                    [=] { return real<&cuArrayDestroy>(handle); });
}
HR_DRIVER CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  return deallocate(Kind::kArray, Kind::kArray, reinterpret_cast<uint64_t>(handle),
                    [=] { return real<&cuMipmappedArrayDestroy>(handle); });
}

namespace {

// Physical memory lives until its last handle is released and its last mapping undone. The driver may use the
// number of a released handle again, so the memory has a number of ours.
uint64_t last_object = 0;

void drop_object(uint64_t object) {
  Block* found = state.blocks.find(Kind::kObject, object);
  if (found == nullptr || --found->refs > 0) return;
  returned(found->card, found->bytes);
  record(Call::kFree, found->kind, found->card, object, found->bytes);
  state.blocks.erase(found);
}

void add_handle(CUmemGenericAllocationHandle handle, uint64_t object) {
  if (Block* known = state.blocks.find(Kind::kHandle, handle)) {
    ++known->refs;
    return;
  }
  if (Block* found = state.blocks.find(Kind::kObject, object)) ++found->refs;
  Block block;
  block.key = handle;
  block.owner = object;
  block.refs = 1;
  block.kind = Kind::kHandle;
  state.blocks.insert(block);
}

}  // namespace

HR_DRIVER CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                               const CUmemAllocationProp* properties, unsigned long long flags) {
  const auto call = [=] { return real<&cuMemCreate>(handle, bytes, properties, flags); };
  const bool is_device = properties != nullptr && properties->location.type == 1;
  const int card = is_device ? card_of_device(properties->location.id) : -1;
  if (card < 0 || is_absurd(bytes)) return call();
  const int64_t pages = round_up(static_cast<int64_t>(bytes), kPage);
  bool is_counted = false;
  {
    const Locked locked;
    is_counted = ask(card, pages);
  }
  if (!is_counted) return refused(card, pages);
  const CUresult result = call();
  Block block;
  {
    const Locked locked;
    if (result != kSuccess) {
      returned(card, pages);
      return result;
    }
    block.key = ++last_object;
    block.bytes = pages;
    block.card = static_cast<int16_t>(card);
    block.kind = Kind::kObject;
    state.blocks.insert(block);
    add_handle(*handle, block.key);
  }
  record(Call::kAllocate, block.kind, card, block.key, pages);
  return result;
}

HR_DRIVER CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (state.account == nullptr) return real<&cuMemRelease>(handle);
  const Locked locked;  // held meanwhile: a thread that creates memory may get the same number
  const CUresult result = real<&cuMemRelease>(handle);
  Block* found = result == kSuccess ? state.blocks.find(Kind::kHandle, handle) : nullptr;
  if (found == nullptr || --found->refs > 0) return result;
  const uint64_t object = found->owner;
  state.blocks.erase(found);
  drop_object(object);
  return result;
}

HR_DRIVER CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const CUresult result = real<&cuMemRetainAllocationHandle>(handle, address);
  if (result != kSuccess || state.account == nullptr) return result;
  const Locked locked;
  const auto at = reinterpret_cast<uint64_t>(address);
  uint64_t object = 0;
  if (const Block* mapping = state.blocks.find(Kind::kMapping, at)) object = mapping->owner;
  if (object == 0) {
    state.blocks.for_each([&](const Block& block) {
      if (block.kind == Kind::kMapping && at - block.key < static_cast<uint64_t>(block.bytes))
        object = block.owner;
    });
  }
  if (object != 0) add_handle(*handle, object);
  return result;
}

HR_DRIVER CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const CUresult result = real<&cuMemMap>(address, bytes, offset, handle, flags);
  if (result != kSuccess || state.account == nullptr) return result;
  const Locked locked;
  const Block* known = state.blocks.find(Kind::kHandle, handle);
  if (known == nullptr) return result;
  Block block;
  block.key = address;
  block.owner = known->owner;
  block.bytes = static_cast<int64_t>(bytes);
  block.kind = Kind::kMapping;
  if (Block* object = state.blocks.find(Kind::kObject, known->owner)) ++object->refs;
  state.blocks.insert(block);
  return result;
}

HR_DRIVER CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  if (state.account == nullptr) return real<&cuMemUnmap>(address, bytes);
  const Locked locked;  // held meanwhile: another thread may map there at once
  const CUresult result = real<&cuMemUnmap>(address, bytes);
  if (result != kSuccess) return result;
  for (CUdeviceptr at = address; at < address + bytes;) {
    Block* mapping = state.blocks.find(Kind::kMapping, at);
    if (mapping == nullptr) break;
    at += static_cast<CUdeviceptr>(mapping->bytes);
    const uint64_t object = mapping->owner;
    state.blocks.erase(mapping);
    drop_object(object);
  }
  return result;
}

Hooks memory_hooks() {
  static const Hook hooks[] = {
      HR_HOOK(cuMemAlloc, 0),
      HR_HOOK(cuMemAlloc_v2, 3020),
      HR_HOOK(cuMemAllocManaged, 6000),
      HR_HOOK(cuMemAllocPitch, 0),
      HR_HOOK(cuMemAllocPitch_v2, 3020),
      HR_HOOK(cuMemFree, 0),
      HR_HOOK(cuMemFree_v2, 3020),
      HR_HOOK(cuMemFreeAsync, 11020),
      HR_HOOK(cuMemFreeAsync_ptsz, 11020),
      HR_HOOK(cuArrayCreate, 0),
      HR_HOOK(cuArrayCreate_v2, 3020),
      HR_HOOK(cuArray3DCreate, 0),
      HR_HOOK(cuArray3DCreate_v2, 3020),
      HR_HOOK(cuMipmappedArrayCreate, 5000),
      HR_HOOK(cuArrayDestroy, 0),
      HR_HOOK(cuMipmappedArrayDestroy, 5000),
      HR_HOOK(cuMemCreate, 10020),
      HR_HOOK(cuMemRelease, 10020),
      HR_HOOK(cuMemRetainAllocationHandle, 11000),
      HR_HOOK(cuMemMap, 10020),
      HR_HOOK(cuMemUnmap, 10020),
  };
  return {hooks, sizeof hooks / sizeof *hooks};
}

}  // namespace headroom::guard
