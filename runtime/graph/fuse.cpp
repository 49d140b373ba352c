#include "runtime/graph/fuse.h"

#include "runtime/graph/fuse_rules.h"

namespace headroom {

int fuse(Graph& graph, std::span<const Value> keep) {
  fold_constants(graph);
  const int whole = fuse_classifier_heads(graph, keep) + fuse_conv_blocks(graph, keep);
  return whole + fuse_dense_layers(graph, keep);
}

}  // namespace headroom
