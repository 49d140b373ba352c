// Times a training step of the conv net on the CPU node by node, and its share of convolutions. Usage:
// train_step [batch [steps]]

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "examples/models/mnist/conv_net.h"
#include "examples/models/mnist/digits.h"
#include "runtime/app/runtime.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/fuse.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/session/session.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Multiply-adds of the convolutions for one image, forward and backward, if nothing were skipped: conv2d
// 194,688, conv2d_1 2,230,272, conv2d_2 331,776; the same for gradients of filters, and of inputs without the
// first.
constexpr double kConvolutionFlops = 2.0 * (2 * (194688.0 + 2230272 + 331776) + 2230272 + 331776);

struct Step {
  Graph graph;
  Value images, labels, rate, loss;

  Step(int64_t batch, bool fused) {
    images = graph.input("images", {DType::kU8, {batch, 28, 28, 1}});
    labels = graph.input("labels", {DType::kI32, {batch}});
    rate = graph.input("rate", {DType::kF32, {}});
    const ConvNet net(graph, 1);
    loss = mean(cross_entropy(net.logits(images), labels));
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    add_updates(Adam{}, net.parameters(), gradients(loss, net.parameters()), rate, step);
    if (fused) fuse(graph);
  }
};

void feed(const Step& step, Session& session, int64_t batch) {
  const Dataset digits = draw_digits(batch, 1);
  std::copy(digits.images.begin(), digits.images.end(), session.input<uint8_t>(step.images).begin());
  const auto labels = session.input<int32_t>(step.labels);
  std::copy(digits.labels.begin(), digits.labels.end(), labels.begin());
  session.input<float>(step.rate)[0] = 1e-4f;
}

// Forwards to another kernel and measures its time.
class TimedKernel final : public Kernel {
 public:
  TimedKernel(std::unique_ptr<Kernel> kernel, double* microseconds_taken)
      : kernel_(std::move(kernel)), taken_(microseconds_taken) {}
  int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void* workspace,
           Stream stream) override {
    const auto start = Clock::now();
    kernel_->run(inputs, outputs, workspace, stream);
    *taken_ = microseconds(Clock::now() - start);
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  double* taken_;
};

void measure(int64_t batch, int steps, PlanMode mode, bool fused, bool by_node) {
  const Step step(batch, fused);
  Runtime runtime({.device = "cpu"});
  Variables variables(step.graph, runtime.device(), runtime.allocator());
  std::vector<double> taken(step.graph.nodes().size());
  std::vector<std::unique_ptr<Kernel>> timed;
  for (const Node& node : step.graph.nodes()) {
    std::vector<TensorSpec> inputs, outputs;
    for (int id : node.inputs) inputs.push_back(step.graph.value(id).spec);
    for (int id : node.outputs) outputs.push_back(step.graph.value(id).spec);
    timed.push_back(
        std::make_unique<TimedKernel>(make_cpu_kernel(node.op, inputs, outputs), &taken[timed.size()]));
  }
  const auto kernels = std::make_shared<const Kernels>(std::move(timed));
  const Plan plan = make_plan(step.graph, {{step.loss}, true}, mode, kernels->workspace_bytes());
  Session session(step.graph, plan, kernels, variables);
  feed(step, session, batch);
  for (int i = 0; i < 5; ++i) session.run();
  std::vector<double> whole, convolutions;
  std::map<std::string, std::vector<double>> nodes;
  for (int i = 0; i < steps; ++i) {
    const auto start = Clock::now();
    session.run();
    whole.push_back(microseconds(Clock::now() - start));
    double sum = 0;
    for (size_t node = 0; node < taken.size(); ++node) {
      const std::string_view op = op_name(step.graph.nodes()[node].op);
      if (op.starts_with("conv")) sum += taken[node];
      if (by_node && taken[node] > 0) nodes[step.graph.nodes()[node].name].push_back(taken[node]);
    }
    convolutions.push_back(sum);
  }
  const double total = median(whole), conv = median(convolutions);
  fmt::print(
      "{:<8} {:<8} step {:8.1f} us, convolutions {:8.1f} us, step/convolutions {:.3f}, {:6.0f} GFLOP/s "
      "dense-equivalent; {} bytes, largest live set {}\n",
      to_string(mode), fused ? "fused" : "library", total, conv, total / conv,
      kConvolutionFlops * static_cast<double>(batch) / conv / 1e3, plan.peak_bytes, plan.lower_bound_bytes);
  std::vector<std::pair<double, std::string>> sorted;
  for (auto& [name, values] : nodes) sorted.emplace_back(median(values), name);
  std::sort(sorted.rbegin(), sorted.rend());
  for (const auto& [time, name] : sorted) {
    if (time >= 5) fmt::print("    {:8.1f} us  {}\n", time, name);
  }
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  using namespace headroom;
  const int64_t batch = argc > 1 ? std::atoll(argv[1]) : 64;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 300;
  if (batch < 1 || steps < 1) {
    fmt::print(stderr, "usage: train_step [batch [steps]]\n");
    return 2;
  }
  fmt::print("batch {}, median of {} steps\n", batch, steps);
  measure(batch, steps, PlanMode::kPacked, true, true);
  measure(batch, steps, PlanMode::kDynamic, true, false);
  measure(batch, steps, PlanMode::kParallel, true, false);
  measure(batch, steps, PlanMode::kPacked, false, false);
  measure(batch, steps, PlanMode::kParallel, false, false);
  return 0;
}
