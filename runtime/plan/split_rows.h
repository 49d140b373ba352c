// A region of a step that runs once for each part of its rows: cuts of what it reads, its nodes, and sums and
// concatenations of what others read of it. Knows neither batches nor losses.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/graph/graph.h"

namespace headroom {

// The role of a value, or of a node with these results, in the parts.
enum class Role : uint8_t {
  kShared,     // equal in all parts
  kCut,        // read from outside: each part gets its rows
  kPerPart,    // computed for each part
  kPartShape,  // computed once, in the shape of a part
  kAfter,      // computed once, from what all parts together give
  kWhole,      // a variable that follows the batch and belongs to all parts, such as the order of an epoch
};

// The way in which the results of the parts become one that others read.
enum class Join : uint8_t { kRows, kSum, kMean };

struct SplitRegion {
  int parts = 1;
  std::vector<int> order = {};  // the nodes of the step, without updates that must come last
  std::vector<Role> values = {}, nodes = {};
  std::vector<std::pair<int, Join>> results = {};  // values of the parts that others read
  // Sums are in f32, or as their values are stored.
  bool sums_in_f32 = false;
  // A node, and the shape of a value, in a part.
  std::function<Node(int node, int part)> node = {};
  std::function<TensorSpec(int value, int part)> spec = {};
};

// The nodes of the order in parts, for a graph whose nodes are to be replaced by them.
std::vector<Node> split_rows(Graph& graph, const SplitRegion& region);

}  // namespace headroom
