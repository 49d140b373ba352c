#include "examples/models/zoo/zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/errors.h"
#include "examples/models/zoo/layers.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/fuse.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"

namespace headroom {
namespace {

Value images(ZooStep& step, const Shape& shape) {
  return step.input = step.graph.input("images", {DType::kF32, shape});
}

// Adds the input for labels and the loss of logits (M,C); label_shape has M elements.
void finish(ZooStep& step, const Layers& layers, Value logits, const Shape& label_shape) {
  step.classes = logits.shape().last();
  step.labels = step.graph.input("labels", {DType::kI32, label_shape});
  step.loss = classification_loss(logits, step.labels);
  step.parameters = layers.parameters();
}

// Two convolutions with batch normalization and a shortcut, which is projected if the shape changes (He et
// al. 2016, "Deep Residual Learning").
Value residual_block(Layers& layers, const std::string& name, Value x, int64_t channels, int stride) {
  const bool same_shape = stride == 1 && x.shape().last() == channels;
  const Value shortcut = same_shape ? x : layers.conv(name + "_project", x, 1, channels, stride, false);
  Value y = layers.conv(name + "_conv1", x, 3, channels, stride, false);
  y = relu(layers.batch_norm(name + "_norm1", y));
  y = layers.conv(name + "_conv2", y, 3, channels, 1, false);
  return relu(add(layers.batch_norm(name + "_norm2", y), shortcut));
}

Value double_conv(Layers& layers, const std::string& name, Value x, int64_t channels) {
  x = relu(layers.conv(name + "_conv1", x, 3, channels));
  return relu(layers.conv(name + "_conv2", x, 3, channels));
}

void build_mlp(ZooStep& step, const ZooSettings& settings) {
  Layers layers(step.graph, settings.seed);
  Value x = images(step, {settings.batch, 784});
  x = relu(layers.dense("dense1", x, 512 * settings.width));
  x = relu(layers.dense("dense2", x, 512 * settings.width));
  finish(step, layers, layers.dense("logits", x, 10), {settings.batch});
}

// LeCun et al. 1998, with relu and max pooling.
void build_lenet(ZooStep& step, const ZooSettings& settings) {
  Layers layers(step.graph, settings.seed);
  const int64_t width = settings.width;
  Value x = images(step, {settings.batch, 28, 28, 1});
  x = max_pool(relu(layers.conv("conv1", x, 5, 6 * width)));   // (N,14,14,6w)
  x = max_pool(relu(layers.conv("conv2", x, 5, 16 * width)));  // (N,7,7,16w)
  x = relu(layers.dense("dense1", flatten(x), 120 * width));
  x = relu(layers.dense("dense2", x, 84 * width));
  finish(step, layers, layers.dense("logits", x, 10), {settings.batch});
}

// The net of He et al. for CIFAR-10 with n = 2: 6 n + 2 = 14 layers.
void build_residual(ZooStep& step, const ZooSettings& settings) {
  constexpr int kStages = 3, kBlocks = 2;
  Layers layers(step.graph, settings.seed);
  Value x = images(step, {settings.batch, 32, 32, 3});
  x = relu(layers.batch_norm("norm", layers.conv("conv", x, 3, 16 * settings.width, 1, false)));
  for (int stage = 0; stage < kStages; ++stage) {
    for (int block = 0; block < kBlocks; ++block) {
      const int stride = stage > 0 && block == 0 ? 2 : 1;
      x = residual_block(layers, fmt::format("stage{}_block{}", stage + 1, block + 1), x,
                         (16 << stage) * settings.width, stride);
    }
  }
  x = mean(x, {1, 2});  // (N,8,8,64w) -> (N,64w)
  finish(step, layers, layers.dense("logits", x, 10), {settings.batch});
}

// Ronneberger et al. 2015, with padding, three levels, nearest-pixel upsampling and two classes per pixel.
void build_unet(ZooStep& step, const ZooSettings& settings) {
  constexpr int kLevels = 3;
  constexpr int64_t kSide = 64;
  Layers layers(step.graph, settings.seed);
  Value x = images(step, {settings.batch, kSide, kSide, 1});
  std::vector<Value> skipped;
  for (int level = 0; level < kLevels; ++level) {
    skipped.push_back(
        double_conv(layers, fmt::format("down{}", level + 1), x, (16 << level) * settings.width));
    x = max_pool(skipped.back());
  }
  x = double_conv(layers, "bottom", x, (16 << kLevels) * settings.width);
  for (int level = kLevels; level-- > 0;) {
    x = concat({upsample(x), skipped[static_cast<size_t>(level)]}, -1);
    x = double_conv(layers, fmt::format("up{}", level + 1), x, (16 << level) * settings.width);
  }
  x = layers.conv("logits", x, 1, 2);
  finish(step, layers, reshape(x, {settings.batch * kSide * kSide, 2}), {settings.batch, kSide, kSide});
}

// An encoder block of Vaswani et al. 2017 with gelu that predicts a class for each token. It normalizes over
// the batch, because the runtime has no layer normalization.
void build_attention(ZooStep& step, const ZooSettings& settings) {
  constexpr int64_t kTokens = 64, kVocabulary = 256, kHeads = 4, kHeadUnits = 16;
  Layers layers(step.graph, settings.seed);
  const int64_t batch = settings.batch, rows = batch * kTokens;
  const int64_t head_units = kHeadUnits * settings.width, units = kHeads * head_units;
  step.input = step.graph.input("tokens", {DType::kI32, {batch, kTokens}});
  Value x = layers.embedding("embedding", step.input, kVocabulary, units);
  x = reshape(x, {rows, units});

  const auto heads = [&](std::string_view name) {  // -> (N,heads,T,head_units)
    const Value all = reshape(layers.dense(name, x, units), {batch, kTokens, kHeads, head_units});
    return transpose(all, {0, 2, 1, 3});
  };
  const Value query = heads("query"), key = heads("key"), value = heads("value");
  const Value scores = scale(matmul(query, key, {.transpose_b = true}),
                             1 / std::sqrt(static_cast<float>(head_units)));  // (N,heads,T,T)
  const Value mixed = transpose(matmul(softmax(scores), value), {0, 2, 1, 3});
  x = layers.batch_norm("norm1", add(x, layers.dense("output", reshape(mixed, {rows, units}), units)));
  const Value hidden = gelu(layers.dense("mlp1", x, 4 * units));
  x = layers.batch_norm("norm2", add(x, layers.dense("mlp2", hidden, units)));
  finish(step, layers, layers.dense("logits", x, kVocabulary), {batch, kTokens});
}

constexpr ZooNet kNets[] = {
    {"mlp", "three dense layers on 28x28 pixels", build_mlp},
    {"lenet", "two convolutions and three dense layers on 28x28 pixels: LeNet-5", build_lenet},
    {"residual", "14 layers with shortcuts and batch normalization on 32x32 pixels: a small ResNet",
     build_residual},
    {"unet", "down to 8x8 and up again with concatenations on 64x64 pixels: a small U-Net", build_unet},
    {"attention", "one encoder block of 4 heads on 64 tokens", build_attention},
};

// Leaves room to multiply by the sizes of a net. Shapes check the products.
constexpr int64_t kMaxSize = int64_t{1} << 40;

void check_size(std::string_view what, int64_t size) {
  if (size < 1) throw InvalidArgument(fmt::format("{} {}: must be at least 1", what, size));
  if (size > kMaxSize) throw InvalidArgument(fmt::format("{} {}: too many elements", what, size));
}

}  // namespace

std::span<const ZooNet> zoo_nets() {
  return kNets;
}

const ZooNet* find_zoo_net(std::string_view name) {
  const auto* const found = std::ranges::find_if(kNets, [&](const ZooNet& net) { return net.name == name; });
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
