// A made-up PyTorch program of eight equal layers, for tests of what a solver changes in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "tools/trace/program.h"
#include "trace/trace_builder.h"

namespace headroom {

inline constexpr int kLayers = 8;
inline constexpr int64_t kLayeredBatch = 8;
inline constexpr double kLayerUs = 100;

// A net of eight layers, each a product and a relu that keep 5 MiB a sample, and an optimizer that takes as
// much as the weights for a moment unless it is fused. `logits` bytes a sample are live at the loss, or an
// eighth of them in each of eight parts, which take another tenth of a layer's time each.
inline TracedProgram net(int64_t batch, const ProgramChanges& changes, int64_t logits = 0) {
  const int64_t kept = 5 * kMiB * batch, weights = 40 * kMiB;
  const auto is_checkpoint = [&](const std::string& path) {
    return std::find(changes.checkpoints.begin(), changes.checkpoints.end(), path) !=
           changes.checkpoints.end();
  };
  TracedProgram program{.model = "Net", .name = "net"};
  TraceBuilder builder("train.py:make_step", "Headroom");
  builder.add_setting("framework", "PyTorch 2.11");
  uint64_t next = 1;
  builder.mark(0, StepPhase::kSetup, 0);
  builder.allocate(next++, weights, {.category = MemoryCategory::kWeights});
  for (int step = 1; step <= 2; ++step) {
    for (int64_t pass = 0; pass < changes.passes; ++pass) {
      builder.mark(step, StepPhase::kForward, 0);
      std::vector<std::vector<uint64_t>> live(kLayers);
      for (size_t layer = 0; layer < kLayers; ++layer) {
        const std::string module = "layers." + std::to_string(layer);
        const auto allocate = [&](const char* part) {
          builder.allocate(next, kept, {.module = module + part, .category = MemoryCategory::kActivations});
          live[layer].push_back(next++);
        };
        allocate(".product");
        allocate(".relu");
        if (is_checkpoint(module)) {
          builder.free(live[layer].front());
          live[layer].erase(live[layer].begin());
        }
      }
      if (logits > 0) {
        builder.allocate(next, logits * batch / changes.loss_parts);
        builder.free(next++);
      }
      builder.mark(step, StepPhase::kBackward, 0);
      for (size_t layer = kLayers; layer-- > 0;) {
        if (live[layer].size() == 1) {
          builder.allocate(next, kept);
          live[layer].push_back(next++);
        }
        for (const uint64_t block : live[layer]) builder.free(block);
      }
    }
    builder.mark(step, StepPhase::kOptimizer, 0);
    if (!changes.fused) {
      builder.allocate(next, weights);
      builder.free(next++);
    }
  }
  program.trace = builder.take();
  program.modules.push_back({"layers", 0, kLayers});
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string module = "layers." + std::to_string(layer);
    program.modules.push_back({module, 0, 2});
    program.modules.push_back({module + ".product", 0.9 * kLayerUs, 0});
    program.modules.push_back({module + ".relu", 0.1 * kLayerUs, 0});
  }
  program.us_per_step = 3 * kLayers * kLayerUs + kLayerUs * static_cast<double>(changes.checkpoints.size()) +
                        20 * static_cast<double>(changes.passes) +
                        0.1 * kLayerUs * static_cast<double>(changes.loss_parts - 1);
  if (logits > 0) program.head = "head";
  return program;
}

inline TracedProgram traced_net(std::optional<int64_t> batch, const ProgramChanges& changes) {
  return net(batch.value_or(kLayeredBatch), changes);
}

}  // namespace headroom
