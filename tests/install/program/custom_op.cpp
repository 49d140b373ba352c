// Fits a factor with an op of its own, square(x) = x^2, in a program outside the tree of Headroom.
//   custom_op DEVICE
#include <cmath>
#include <cstdio>
#include <optional>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "ops/custom.h"
#include "runtime/app/runtime.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/session/session.h"

namespace {

using namespace headroom;

const CustomOp kSquare = {
    .name = "square",
    .infer =
        [](const OpCheck& c) {
          c.floats(1);
          return Outputs{c.input(0)};
        },
    .cpu =
        [](const KernelCall& call) {
          for (int64_t i = 0; i < call.outputs[0].elements(); ++i)
            call.out()[i] = call.in(0)[i] * call.in(0)[i];
        },
    .gradient =
        [](const GradientContext& c) {
          return std::vector<std::optional<Value>>{mul(c.dy(), scale(c.in[0], 2))};
        },
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Graph graph;
  const Value rate = graph.input("rate", {DType::kF32, {}});
  const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  const std::vector<Value> weights = {graph.variable("factor", {DType::kF32, {4}}, ones())};
  const Value loss = mean(custom(kSquare, {sub(weights[0], fill(graph, 3, {}))})[0]);
  add_updates(Sgd{}, weights, gradients(loss, weights), rate, step);

  Runtime runtime({.device = argv[1], .strategy = "caching"});
  Variables variables(graph, runtime.device(), runtime.allocator());
  Session session(graph, {.fetches = {loss}, .updates = true}, PlanMode::kPacked, variables);
  session.input<float>(rate)[0] = 0.5f;
  session.run(100);
  std::printf("loss %.4f\n", static_cast<double>(session.output<float>(loss)[0]));

  // The library refuses operands in the name of the program's op.
  try {
    custom(kSquare, {rate, rate});
    return 1;
  } catch (const InvalidArgument& error) {
    if (std::string_view(error.what()).rfind("square(", 0) != 0) return 1;
  }
  return session.output<float>(loss)[0] < 1e-3f ? 0 : 1;
}
