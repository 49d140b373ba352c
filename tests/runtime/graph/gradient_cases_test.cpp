#include "tests/runtime/graph/gradient_cases.h"

#include <gtest/gtest.h>

#include <set>

namespace headroom::test {
namespace {

TEST(GradientTable, CoversEveryOpThatHasAGradient) {
  std::set<std::string_view> covered;
  for (const GradientCase& row : gradient_cases()) {
    Graph graph;
    row.build(graph, operands_of(row, graph));
    for (const Node& node : graph.nodes()) covered.insert(op_name(node.op));
  }
  for_each_op_type([&]<typename T>() {
    if (!T::kTraits.has_gradient()) return;
    for (std::string_view name : T::kTraits.names()) EXPECT_TRUE(covered.contains(name)) << name;
  });
}

}  // namespace
}  // namespace headroom::test
