// Keeps the optimizer's state in page-locked host memory (kHostPlace), where updates read and write it over
// the link, as ZeRO-Offload does (Ren et al. 2021), but with the update on the device. Knows no plan and no
// link.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/graph/graph.h"

namespace headroom {

// Returns variables on the default device that only updates of weights use, as their state, and that are not
// fetched; the largest first.
std::vector<int> find_movable_states(const Graph& graph, std::span<const Value> fetches);

// Puts those variables there. Nodes stay on their devices, and compute the same.
void put_on_host(Graph& graph, std::span<const int> variables);

// By node: the bytes of its states in host memory, which a step reads and writes once each.
std::vector<int64_t> host_state_bytes(const Graph& graph);

}  // namespace headroom
