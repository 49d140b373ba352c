#include "examples/models/zoo/zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "examples/models/zoo/nets.h"
#include "runtime/base/errors.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/fuse.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"

namespace headroom {
namespace {

constexpr ZooNet kNets[] = {
    {"mlp", "three dense layers on 28x28 pixels", build_mlp},
    {"lenet", "two convolutions and three dense layers on 28x28 pixels: LeNet-5", build_lenet},
    {"residual", "14 layers with shortcuts and batch normalisation on 32x32 pixels: a small ResNet",
     build_residual},
    {"unet", "down to 8x8 and up again with concatenations on 64x64 pixels: a small U-Net", build_unet},
    {"attention", "one encoder block of 4 heads on 64 tokens", build_attention},
};

// So that a net can multiply it by its own sizes; shapes refuse what is too large after that.
constexpr int64_t kLargestSize = int64_t{1} << 40;

void check_size(std::string_view what, int64_t size) {
  if (size < 1) throw InvalidArgument(fmt::format("{} {}: must be at least 1", what, size));
  if (size > kLargestSize)
    throw InvalidArgument(fmt::format("{} {}: more elements than can be counted", what, size));
}

}  // namespace

std::span<const ZooNet> zoo_nets() {
  return kNets;
}

const ZooNet* find_zoo_net(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kNets), std::end(kNets), [&](const ZooNet& net) { return net.name == name; });
  return found == std::end(kNets) ? nullptr : found;
}

std::unique_ptr<ZooStep> make_zoo_step(const ZooNet& net, const ZooSettings& settings) {
  check_size("batch", settings.batch);
  check_size("width", settings.width);
  auto step = std::make_unique<ZooStep>();
  Graph& graph = step->graph;
  put_scopes_on_devices(graph, settings.placed);
  const Value counter = graph.variable("step", {DType::kI32, {}}, zeros());
  step->learning_rate = graph.input("learning_rate", {DType::kF32, {}});
  {
    const NameScope scope(graph, net.name);
    net.build(*step, settings);
  }
  add_updates(parse_optimizer(settings.optimizer), step->parameters, gradients(step->loss, step->parameters),
              step->learning_rate, counter, 1, settings.shard);
  if (settings.fused) fuse(graph, std::vector<Value>{step->loss});
  require_scopes(graph, settings.placed);
  reduce_gradients(graph, settings.replicas, settings.buckets);
  return step;
}

}  // namespace headroom
