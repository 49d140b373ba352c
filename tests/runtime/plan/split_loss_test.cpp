// The loss in parts of its rows: the same training except for rounding, in less memory.

#include "runtime/plan/split_loss.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "runtime/graph/fuse.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "tests/runtime/session/harness.h"

namespace headroom {
namespace {

constexpr int64_t kTextCount = 5, kTokens = 10, kHidden = 8, kClasses = 1024;

// A head over a vocabulary after a hidden layer, with tied or own weights.
struct TextNet {
  Graph graph;
  Value x, labels, rate, loss, logits;
  std::vector<Value> parameters;

  TextNet(bool has_bias, bool is_transposed) {
    x = graph.input("x", {DType::kF32, {kTextCount, kTokens, kHidden}});
    labels = graph.input("labels", {DType::kI32, {kTextCount * kTokens}});
    rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    const auto weight = [&](const char* name, const Shape& shape) {
      parameters.push_back(
          graph.variable(name, {DType::kF32, shape},
                         shape.rank() < 2 ? zeros() : glorot_uniform(shape, parameters.size() + 1)));
      return parameters.back();
    };
    const Value hidden = tanh(matmul(x, weight("w1", {kHidden, kHidden})));
    const Shape shape = is_transposed ? Shape{kClasses, kHidden} : Shape{kHidden, kClasses};
    logits = matmul(hidden, weight("w2", shape), {false, is_transposed});
    if (has_bias) logits = add(logits, weight("bias", {kClasses}));
    logits = reshape(logits, {kTextCount * kTokens, kClasses});
    loss = mean(graph.add(CrossEntropy{}, std::vector<Value>{logits, labels})[0]);
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
  }
  Targets targets() const { return {{loss}, true}; }
};

struct TrainedText {
  std::vector<float> weights;
  float loss = 0;
  int64_t step_bytes = 0;
};

TrainedText train_text(const TextNet& net) {
  CpuHarness cpu;
  Variables variables(net.graph, cpu.device, *cpu.allocator);
  Session session(net.graph, net.targets(), PlanMode::kPacked, variables);
  const std::vector<float> values = random_floats(kTextCount * kTokens * kHidden, 7);
  std::copy(values.begin(), values.end(), session.input<float>(net.x).begin());
  const auto labels = session.input<int32_t>(net.labels);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(37 * i % kClasses);
  session.input<float>(net.rate)[0] = 0.01f;
  session.run(3);
  TrainedText trained{{}, session.output<float>(net.loss)[0], session.plan().peak_bytes};
  for (const Value& parameter : net.parameters) {
    const std::vector<float> some = read<float>(variables, parameter);
    trained.weights.insert(trained.weights.end(), some.begin(), some.end());
  }
  return trained;
}

TEST(SplitLoss, TrainsAsTheWholeButForRoundingInLessMemory) {
  for (const bool has_bias : {false, true}) {
    for (const bool is_transposed : {false, true}) {
      for (const bool fused : {false, true}) {
        if (has_bias && !fused) continue;  // an addition of its own
        for (const int parts : {2, 7}) {   // 7 parts have unequal numbers of rows
          SCOPED_TRACE(::testing::Message() << has_bias << is_transposed << fused << parts);
          TextNet whole(has_bias, is_transposed), split(has_bias, is_transposed);
          if (fused) {
            fuse(whole.graph, whole.targets().fetches);
            fuse(split.graph, split.targets().fetches);
          }
          const std::vector<Value> fetches = split.targets().fetches;
          EXPECT_EQ(splittable_logits_bytes(split.graph, fetches),
                    kTextCount * kTokens * kClasses * static_cast<int64_t>(sizeof(float)));
          split_loss(split.graph, parts, fetches);
          const TrainedText a = train_text(whole), b = train_text(split);
          EXPECT_NEAR(a.loss, b.loss, 1e-4);
          ASSERT_EQ(a.weights.size(), b.weights.size());
          for (size_t i = 0; i < a.weights.size(); ++i) ASSERT_NEAR(a.weights[i], b.weights[i], 1e-4) << i;
          EXPECT_LT(b.step_bytes, a.step_bytes);
        }
      }
    }
  }
}

TEST(SplitLoss, LogitsThatSomebodyElseReadsStayWhole) {
  TextNet net(false, false);
  EXPECT_EQ(splittable_logits_bytes(net.graph, std::vector<Value>{net.loss, net.logits}), 0);
  EXPECT_THROW(split_loss(net.graph, 2, std::vector<Value>{net.loss, net.logits}), InvalidArgument);
}

TEST(SplitLoss, NoMorePartsThanRows) {
  TextNet net(false, false);
  EXPECT_THROW(split_loss(net.graph, kTextCount * kTokens + 1, net.targets().fetches), InvalidArgument);
}

}  // namespace
}  // namespace headroom
