#include "examples/models/zoo/layers.h"

namespace headroom {

Value Layers::trained(std::string_view name, const Shape& shape, const Initializer& initializer) {
  parameters_.push_back(graph_.variable(name, {DType::kF32, shape}, initializer));
  return parameters_.back();
}

Value Layers::dense(std::string_view name, Value x, int64_t units) {
  const NameScope scope(graph_, name);
  const Shape shape{x.shape().last(), units};
  const Value kernel = trained("kernel", shape, glorot_uniform(shape, seed_));
  return bias(matmul(x, kernel), trained("bias", {units}, zeros()));
}

Value Layers::conv(std::string_view name, Value x, int window, int64_t channels, int stride, bool with_bias) {
  const NameScope scope(graph_, name);
  const Shape shape{window, window, x.shape().last(), channels};
  const Value kernel = trained("kernel", shape, he_normal(shape, seed_));
  const int padding = window / 2;
  const Value y = conv2d(x, kernel, {.stride = {stride, stride}, .padding = {padding, padding}});
  return with_bias ? bias(y, trained("bias", {channels}, zeros())) : y;
}

Value Layers::batch_norm(std::string_view name, Value x) {
  const NameScope scope(graph_, name);
  const BatchNormState state = batch_norm_state(graph_, x.shape().last());
  parameters_.push_back(state.gamma);
  parameters_.push_back(state.beta);
  return batch_norm_training(x, state);
}

Value Layers::embedding(std::string_view name, Value indices, int64_t rows, int64_t columns) {
  const NameScope scope(graph_, name);
  return gather(trained("table", {rows, columns}, normal(0, 0.02f, seed_)), indices);
}

Value upsample(Value x) {
  const Shape& s = x.shape();
  const Value apart = reshape(x, {s[0], s[1], 1, s[2], 1, s[3]});
  return reshape(broadcast_to(apart, {s[0], s[1], 2, s[2], 2, s[3]}), {s[0], 2 * s[1], 2 * s[2], s[3]});
}

Value classification_loss(Value logits, Value labels) {
  return mean(cross_entropy(logits, reshape(labels, {logits.shape()[0]})));
}

}  // namespace headroom
