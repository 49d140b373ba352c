// Places a net that is too large for one device on two: one layer on each.

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/bytes.h"
#include "base/errors.h"
#include "runtime/app/place.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/graph/placement.h"
#include "runtime/session/session.h"

namespace {

using namespace headroom;

// Two layers, the second on `device`; an empty name leaves it on the device of the first.
void train(const char* device, const RuntimeOptions& options) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {32, 512}});
  const Value labels = graph.input("labels", {DType::kI32, {32}});
  const Value rate = graph.input("rate", {DType::kF32, {}});
  const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  const Value w1 = graph.variable("w1", {DType::kF32, {512, 512}}, glorot_uniform({512, 512}, 1));
  const Value hidden = relu(matmul(x, w1));

  // Variables, ops, their gradients and the optimizer's state are on this device. to_device copies values
  // from the first device, and their gradients back. Omitting it is an error, as in PyTorch.
  const DeviceScope second(graph, device);
  const Value w2 = graph.variable("w2", {DType::kF32, {512, 512}}, glorot_uniform({512, 512}, 2));
  const Value logits = matmul(to_device(hidden, device), w2);
  const Value loss = mean(cross_entropy(logits, to_device(labels, device)));
  const std::vector<Value> weights = {w1, w2};
  add_updates(Adam{}, weights, gradients(loss, weights), rate, step);

  Runtime runtime(options);
  std::printf("%s\n", count_line(runtime.devices()).c_str());
  try {
    const DeviceSet devices = place(graph, runtime);
    for (const std::string& line : placement_lines(graph, runtime.current_device())) {
      if (line.find("(copy_to_device)") != std::string::npos) std::printf("  %s\n", line.c_str());
    }
    Variables variables(graph, devices);
    Session session(graph, {.fetches = {loss}, .updates = true}, PlanMode::kPacked, variables);
    std::ranges::fill(session.input<float>(x), 0.5f);
    std::iota(session.input<int32_t>(labels).begin(), session.input<int32_t>(labels).end(), 0);
    session.input<float>(rate)[0] = 1e-3f;
    session.run(20);
    std::printf("  loss %.6f, weights %016llx\n", static_cast<double>(session.output<float>(loss)[0]),
                static_cast<unsigned long long>(variables.checksum(weights)));
    for (const PlacedDevice& placed : devices.all()) {
      std::printf("  %s: at most %s allocated\n", placed.name.c_str(),
                  format_bytes(placed.allocator->statistics().allocated.peak).c_str());
    }
  } catch (const OutOfMemory& error) {
    std::printf("  %s\n", error.what());
  }
}

}  // namespace

int main() {
  const RuntimeOptions large{.device = "sim:card-6gb"};
  RuntimeOptions halves = large;
  halves.strategy = "direct";
  halves.virtual_devices = "0:6MiB,6MiB";
  train("", large);
  train("", halves);
  train("/GPU:1", halves);  // the same weights as the first run, bit for bit
  return 0;
}
