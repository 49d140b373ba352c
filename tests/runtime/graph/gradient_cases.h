// The table of ops whose gradients are held to differences. A graph is all that a row needs.
#pragma once

#include <functional>
#include <ostream>
#include <vector>

#include "runtime/graph/functions.h"

namespace headroom::test {

struct GradientCase {
  const char* name;
  std::vector<Shape> shapes;  // shapes of the float operands
  // Any shape; the loss is a weighted sum of it.
  std::function<Value(Graph&, const std::vector<Value>&)> build;
  float low = -1, high = 1;  // range of the operands
};

inline void PrintTo(const GradientCase& row, std::ostream* out) {
  *out << row.name;
}

const std::vector<GradientCase>& gradient_cases();

// The float operands of a row as variables of a graph.
std::vector<Value> operands_of(const GradientCase& row, Graph& graph);

}  // namespace headroom::test
