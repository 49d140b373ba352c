// The stand-in's pools, physical memory for one's own addresses, and graphs with memory nodes.

#include <algorithm>
#include <iterator>

#include "guard/standin/process.h"

namespace standin {

void trim(CUmemPoolHandle_st& pool, int64_t keep) {
  for (auto piece = pool.pieces.begin(); piece != pool.pieces.end() && pool.reserved > keep;) {
    const auto idle = pool.idle.find(piece->first);
    if (idle == pool.idle.end() || idle->second < piece->second) {
      ++piece;
      continue;
    }
    standin::change(pool.card, -piece->second);
    pool.reserved -= piece->second;
    pool.idle.erase(idle);
    piece = pool.pieces.erase(piece);
  }
}

void give_back(const Block& block) {
  CUmemPoolHandle_st& pool = *block.pool;
  pool.used -= block.bytes;
  auto [at, is_new] = pool.idle.emplace(block.place, block.bytes);
  if (const auto next = std::next(at); next != pool.idle.end() && at->first + at->second == next->first) {
    at->second += next->second;
    pool.idle.erase(next);
  }
  if (at == pool.idle.begin()) return;
  const auto before = std::prev(at);
  if (before->first + before->second != at->first) return;
  before->second += at->second;
  pool.idle.erase(at);
}

// A stream is its context.
extern "C" CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return *context = reinterpret_cast<CUcontext>(stream), kSuccess;
}

namespace {

CUresult from_pool(CUdeviceptr* pointer, size_t size, CUmemoryPool pool) {
  const Lock lock(mutex);
  CUcontext context;
  if (const CUresult result = here(&context)) return result;
  if (size == 0) return kInvalidValue;
  const int64_t bytes = up(static_cast<int64_t>(size), 512);
  auto place = std::find_if(pool->idle.begin(), pool->idle.end(),
                            [&](const auto& idle) { return idle.second >= bytes; });
  if (place == pool->idle.end()) {
    if (fails()) return kCudaOutOfMemory;
    int64_t piece = up(bytes, kPiece);
    if (!standin::change(pool->card, piece)) {
      piece = up(bytes, kPage);
      if (!standin::change(pool->card, piece)) return kCudaOutOfMemory;
    }
    pool->reserved += piece;
    pool->pieces[pool->end] = piece;
    place = pool->idle.emplace(pool->end, piece).first;
    pool->end += piece + kPage;  // blocks do not cross pieces
  }
  const auto [begin, length] = *place;
  pool->idle.erase(place);
  if (length > bytes) pool->idle[begin + bytes] = length - bytes;
  pool->used += bytes;
  *pointer = address(bytes);
  own->blocks[*pointer] = {pool->card, bytes, context, pool, begin};
  return kSuccess;
}

CUresult from_current(CUdeviceptr* pointer, size_t size, CUstream stream) {
  CUcontext context;
  if (const CUresult result = here(&context)) return result;
  if (stream != nullptr) cuStreamGetCtx(stream, &context);
  return from_pool(pointer, size, own->pools[context->card]);
}

}  // namespace

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return from_current(pointer, bytes, stream);
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return from_current(pointer, bytes, stream);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream) {
  return from_pool(pointer, bytes, pool);
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream) {
  return from_pool(pointer, bytes, pool);
}
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return *pool = own->pools[device], kSuccess;
}
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return *pool = &own->defaults[device], kSuccess;
}
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return own->pools[device] = pool, kSuccess;
}
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const bool is_on_card = properties->location.type == 1;
  return *pool = new CUmemPoolHandle_st{.card = is_on_card ? properties->location.id : kHost}, kSuccess;
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return standin::change(pool->card, -pool->reserved), delete pool, kSuccess;
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  const Lock lock(mutex);
  return trim(*pool, static_cast<int64_t>(keep)), kSuccess;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int which, void* value) {
  if (which == kPoolReleaseThreshold) pool->threshold = *static_cast<uint64_t*>(value);
  return kSuccess;
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int which, void* value) {
  *static_cast<uint64_t*>(value) =
      static_cast<uint64_t>(which == kPoolReserved ? pool->reserved : pool->used);
  return kSuccess;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  const Lock lock(mutex);
  if (own == nullptr || bytes % kPage != 0) return kInvalidValue;
  const int card = properties->location.id;
  if (const CUresult result = take(card, static_cast<int64_t>(bytes))) return result;
  *handle = 1;
  while (own->handles.count(*handle) != 0) ++*handle;  // used again at once
  own->handles[*handle] = {new Memory{card, static_cast<int64_t>(bytes), 1}, 1};
  return kSuccess;
}
static void drop(Memory* memory) {
  if (--memory->refs > 0) return;
  standin::change(memory->card, -memory->bytes);
  delete memory;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Lock lock(mutex);
  const auto found = own->handles.find(handle);
  if (found == own->handles.end()) return kInvalidValue;
  if (--found->second.second > 0) return kSuccess;
  Memory* memory = found->second.first;
  own->handles.erase(found);
  return drop(memory), kSuccess;
}
CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  const Lock lock(mutex);
  return *pointer = address(static_cast<int64_t>(bytes)), kSuccess;
}
CUresult cuMemAddressFree(CUdeviceptr, size_t) {
  return kSuccess;
}
CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  const Lock lock(mutex);
  const auto found = own->handles.find(handle);
  if (found == own->handles.end()) return kInvalidValue;
  ++found->second.first->refs;
  own->mappings[at] = {static_cast<int64_t>(bytes), found->second.first};
  return kSuccess;
}
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  const Lock lock(mutex);
  for (const CUdeviceptr end = at + bytes; at < end;) {
    const auto found = own->mappings.find(at);
    if (found == own->mappings.end()) return kInvalidValue;
    at += static_cast<CUdeviceptr>(found->second.first);
    drop(found->second.second);
    own->mappings.erase(found);
  }
  return kSuccess;
}
CUresult cuMemSetAccess(CUdeviceptr, size_t, const void*, size_t) {
  return kSuccess;
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* at) {
  const Lock lock(mutex);
  const auto found = own->mappings.find(reinterpret_cast<CUdeviceptr>(at));
  if (found == own->mappings.end()) return kInvalidValue;
  Memory* memory = found->second.second;
  for (auto& [number, held] : own->handles) {
    if (held.first == memory) return ++held.second, *handle = number, kSuccess;
  }
  *handle = 1;
  while (own->handles.count(*handle) != 0) ++*handle;
  ++memory->refs;
  own->handles[*handle] = {memory, 1};
  return kSuccess;
}

CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  return *graph = new CUgraph_st, kSuccess;
}
CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
                                CUDA_MEM_ALLOC_NODE_PARAMS* alloc) {
  const Lock lock(mutex);
  alloc->dptr = address(static_cast<int64_t>(alloc->bytesize));
  graph->nodes.push_back(*node = new CUgraphNode_st{kMemAllocNode, *alloc});
  return kSuccess;
}
CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t, CUdeviceptr) {
  graph->nodes.push_back(*node = new CUgraphNode_st{kMemAllocNode + 1, {}});
  return kSuccess;
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  if (nodes != nullptr) std::copy_n(graph->nodes.begin(), std::min(*count, graph->nodes.size()), nodes);
  return *count = graph->nodes.size(), kSuccess;
}
CUresult cuGraphNodeGetType(CUgraphNode node, int* type) {
  return *type = node->type, kSuccess;
}
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* alloc) {
  return *alloc = node->alloc, kSuccess;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  auto* made = new CUgraphExec_st{0, false};
  for (const CUgraphNode node : graph->nodes) {
    if (node->type == kMemAllocNode)
      made->bytes += up(static_cast<int64_t>(node->alloc.bytesize), kPage);
    else
      made->frees = true;
  }
  return *executable = made, kSuccess;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream) {
  const Lock lock(mutex);
  CUcontext context;
  if (const CUresult result = here(&context)) return result;
  int64_t& reserved = own->graph_reserved[context->card];
  int64_t& used = own->graph_used[context->card];
  if (const int64_t need = used + executable->bytes - reserved; need > 0) {
    if (const CUresult result = take(context->card, need)) return result;
    reserved += need;
  }
  if (!executable->frees) used += executable->bytes;
  return kSuccess;
}
CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream) {
  return cuGraphLaunch(executable, stream);
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return delete executable, kSuccess;
}
CUresult cuDeviceGraphMemTrim(CUdevice device) {
  const Lock lock(mutex);
  standin::change(device, own->graph_used[device] - own->graph_reserved[device]);
  own->graph_reserved[device] = own->graph_used[device];
  return kSuccess;
}
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int which, void* value) {
  const int64_t bytes = which == kGraphReserved ? own->graph_reserved[device] : own->graph_used[device];
  return *static_cast<uint64_t*>(value) = static_cast<uint64_t>(bytes), kSuccess;
}

}  // extern "C"

}  // namespace standin
