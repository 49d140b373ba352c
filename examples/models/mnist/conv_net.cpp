#include "examples/models/mnist/conv_net.h"

#include <array>

#include "runtime/graph/functions.h"

namespace headroom {
namespace {

struct Layer {
  const char* name;  // Keras' names, which TensorFlow's messages show
  Shape kernel;
};

const std::array<Layer, 5> kLayers = {{
    {"conv2d", {3, 3, 1, 32}},
    {"conv2d_1", {3, 3, 32, 64}},
    {"conv2d_2", {3, 3, 64, 64}},
    {"dense", {576, 64}},
    {"dense_1", {64, 10}},
}};

}  // namespace

ConvNet::ConvNet(Graph& graph, uint64_t seed) {
  const NameScope model(graph, "sequential");
  for (const Layer& layer : kLayers) {
    const NameScope scope(graph, layer.name);
    parameters_.push_back(
        graph.variable("kernel", {DType::kF32, layer.kernel}, glorot_uniform(layer.kernel, seed)));
    parameters_.push_back(graph.variable("bias", {DType::kF32, {layer.kernel.last()}}, zeros()));
  }
}

Value ConvNet::logits(Value images) const {
  Graph& graph = *images.graph;
  const NameScope model(graph, "sequential");
  Value x = images;
  if (x.spec().dtype == DType::kU8) x = scale(cast(x, DType::kF32), kPixelScale);
  for (size_t i = 0; i < kLayers.size(); ++i) {
    const NameScope scope(graph, kLayers[i].name);
    const Value kernel = parameters_[2 * i], b = parameters_[2 * i + 1];
    if (i < 3) {
      x = relu(bias(conv2d(x, kernel), b));  // (N,26,26,32), (N,11,11,64), (N,3,3,64)
      if (i < 2) x = max_pool(x);            // (N,13,13,32), (N,5,5,64)
    } else {
      if (i == 3) x = flatten(x);  // (N,576)
      x = bias(matmul(x, kernel), b);
      if (i == 3) x = relu(x);  // (N,64)
    }
  }
  return x;
}

}  // namespace headroom
