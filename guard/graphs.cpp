// CUDA graphs with memory nodes: the memory comes when a graph is first launched, into a pool of the device
// that keeps it for later launches until it is trimmed.

#include <sys/mman.h>

#include "guard/hooks.h"

namespace headroom::guard {
namespace {

// The bytes that the memory nodes of a graph ask for, including nodes of a captured stream.
int64_t node_bytes(CUgraph graph) {
  size_t count = 0;
  if (driver.cuGraphGetNodes == nullptr || driver.cuGraphNodeGetType == nullptr ||
      driver.cuGraphMemAllocNodeGetParams == nullptr ||
      driver.cuGraphGetNodes(graph, nullptr, &count) != kSuccess) {
    return 0;
  }
  int64_t bytes = 0;
  constexpr size_t kMostNodes = 1 << 20;
  if (count == 0 || count > kMostNodes) return 0;
  const size_t room = count * sizeof(CUgraphNode);
  void* memory = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  auto* nodes = static_cast<CUgraphNode*>(memory);
  if (driver.cuGraphGetNodes(graph, nodes, &count) == kSuccess) {
    for (size_t i = 0; i < count; ++i) {
      int type = 0;
      CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
      if (driver.cuGraphNodeGetType(nodes[i], &type) != kSuccess || type != kMemAllocNode) continue;
      if (driver.cuGraphMemAllocNodeGetParams(nodes[i], &alloc) == kSuccess) {
        bytes += round_up(static_cast<int64_t>(alloc.bytesize), kPage);
      }
    }
  }
  munmap(memory, room);
  return bytes;
}

template <typename Call>
CUresult instantiate(CUgraphExec* executable, CUgraph graph, Call call) {
  const CUresult result = call();
  if (result != kSuccess || state.account == nullptr) return result;
  const Place place = here();
  const int64_t bytes = place.card < 0 ? 0 : node_bytes(graph);
  if (bytes == 0) return result;
  const Locked locked;
  Block block;
  block.key = reinterpret_cast<uint64_t>(*executable);
  block.bytes = bytes;
  block.card = static_cast<int16_t>(place.card);
  block.kind = Kind::kGraph;
  if (state.blocks.insert(block)) state.memory_graphs++;
  settle_graph_pool(place.device, place.card);
  return result;
}

Block* graph_pool(CUdevice device, int card) {
  if (Block* known = state.blocks.find(Kind::kGraphPool, static_cast<uint64_t>(device))) return known;
  Block block;
  block.key = static_cast<uint64_t>(device);
  block.card = static_cast<int16_t>(card);
  block.kind = Kind::kGraphPool;
  state.blocks.insert(block);
  return state.blocks.find(Kind::kGraphPool, static_cast<uint64_t>(device));
}

uint64_t attribute(CUdevice device, int which) {
  uint64_t value = 0;
  if (driver.cuDeviceGetGraphMemAttribute != nullptr)
    driver.cuDeviceGetGraphMemAttribute(device, which, &value);
  return value;
}

template <typename Call>
CUresult launch(CUgraphExec executable, Call call) {
  if (state.memory_graphs == 0) return call();
  const Place place = here();
  if (place.card < 0) return call();
  const auto key = reinterpret_cast<uint64_t>(executable);
  int64_t growth = 0;
  bool is_counted = true;
  {
    const Locked locked;
    Block* graph = state.blocks.find(Kind::kGraph, key);
    if (graph == nullptr || graph->live == state.trims) {
      graph = nullptr;
    } else {
      const auto idle =
          static_cast<int64_t>(attribute(place.device, kGraphReserved) - attribute(place.device, kGraphUsed));
      growth = graph->bytes > idle ? graph->bytes - idle : 0;
      if (Block* pool = graph_pool(place.device, place.card); pool != nullptr && growth > 0) {
        is_counted = ask(place.card, growth);
        pool->bytes += is_counted ? growth : 0;
        pool->pending += is_counted ? growth : 0;
      }
    }
    if (graph == nullptr) growth = -1;
  }
  if (!is_counted) return refused(place.card, growth);
  const CUresult result = call();
  if (growth < 0) return result;
  const Locked locked;
  if (Block* pool = graph_pool(place.device, place.card)) pool->pending -= growth;
  settle_graph_pool(place.device, place.card);
  Block* graph = state.blocks.find(Kind::kGraph, key);
  if (graph != nullptr && result == kSuccess) graph->live = state.trims;
  return result;
}

}  // namespace

void settle_graph_pool(CUdevice device, int card) {
  Block* pool = state.blocks.find(Kind::kGraphPool, static_cast<uint64_t>(device));
  if (pool == nullptr) return;
  const int64_t now = static_cast<int64_t>(attribute(device, kGraphReserved)) + pool->pending;
  if (now > pool->bytes)
    add_held(*state.account, state.slot, card, now - pool->bytes);
  else
    returned(card, pool->bytes - now);
  pool->bytes = now;
}

HR_DRIVER CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, CUgraphNode* node, char* log,
                                      size_t size) {
  return instantiate(executable, graph,
                     [=] { return real<&cuGraphInstantiate>(executable, graph, node, log, size); });
}
HR_DRIVER CUresult cuGraphInstantiate_v2(CUgraphExec* executable, CUgraph graph, CUgraphNode* node, char* log,
                                         size_t size) {
  return instantiate(executable, graph,
                     [=] { return real<&cuGraphInstantiate_v2>(executable, graph, node, log, size); });
}
HR_DRIVER CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                               unsigned long long flags) {
  return instantiate(executable, graph,
                     [=] { return real<&cuGraphInstantiateWithFlags>(executable, graph, flags); });
}
HR_DRIVER CUresult cuGraphInstantiateWithParams(CUgraphExec* executable, CUgraph graph, void* parameters) {
  return instantiate(executable, graph,
                     [=] { return real<&cuGraphInstantiateWithParams>(executable, graph, parameters); });
}
HR_DRIVER CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* executable, CUgraph graph,
                                                     void* parameters) {
  return instantiate(executable, graph,
                     [=] { return real<&cuGraphInstantiateWithParams_ptsz>(executable, graph, parameters); });
}
HR_DRIVER CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return launch(executable, [=] { return real<&cuGraphLaunch>(executable, stream); });
}
HR_DRIVER CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream) {
  return launch(executable, [=] { return real<&cuGraphLaunch_ptsz>(executable, stream); });
}
HR_DRIVER CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
  return launch(executable, [=] { return real<&cuGraphUpload>(executable, stream); });
}
HR_DRIVER CUresult cuGraphUpload_ptsz(CUgraphExec executable, CUstream stream) {
  return launch(executable, [=] { return real<&cuGraphUpload_ptsz>(executable, stream); });
}
HR_DRIVER CUresult cuGraphExecDestroy(CUgraphExec executable) {
  if (state.memory_graphs == 0) return real<&cuGraphExecDestroy>(executable);
  const Locked locked;
  const CUresult result = real<&cuGraphExecDestroy>(executable);
  Block* graph = state.blocks.find(Kind::kGraph, reinterpret_cast<uint64_t>(executable));
  if (result == kSuccess && graph != nullptr) {
    state.blocks.erase(graph);
    state.memory_graphs--;
  }
  return result;
}
HR_DRIVER CUresult cuDeviceGraphMemTrim(CUdevice device) {
  const CUresult result = real<&cuDeviceGraphMemTrim>(device);
  const int card = card_of_device(device);
  if (card < 0) return result;
  const Locked locked;
  ++state.trims;
  settle_graph_pool(device, card);
  return result;
}

Hooks graph_hooks() {
  static const Hook hooks[] = {
      HR_HOOK(cuGraphInstantiate, 10000),
      HR_HOOK(cuGraphInstantiate_v2, 11000),
      HR_HOOK(cuGraphInstantiateWithFlags, 11040),
      HR_HOOK(cuGraphInstantiateWithParams, 12000),
      HR_HOOK(cuGraphInstantiateWithParams_ptsz, 12000),
      HR_HOOK(cuGraphLaunch, 10000),
      HR_HOOK(cuGraphLaunch_ptsz, 10000),
      HR_HOOK(cuGraphUpload, 11010),
      HR_HOOK(cuGraphUpload_ptsz, 11010),
      HR_HOOK(cuGraphExecDestroy, 10000),
      HR_HOOK(cuDeviceGraphMemTrim, 11040),
  };
  return {hooks, sizeof hooks / sizeof *hooks};
}

}  // namespace headroom::guard
