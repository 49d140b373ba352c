#include "runtime/fuse.h"

#include "runtime/fuse_rules.h"

namespace headroom {

int fuse(Graph& graph, std::span<const Value> keep) {
  fold_constants(graph);
  return fuse_classifier_heads(graph, keep) + fuse_conv_blocks(graph, keep);
}

}  // namespace headroom
