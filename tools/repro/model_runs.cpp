// D: what PyTorch's documents say of memory and devices.

#include <fmt/format.h>

#include <cmath>

#include "examples/models/mnist/digits.h"
#include "examples/models/mnist/trainer.h"
#include "runtime/base/bytes.h"
#include "runtime/device/host/simulated_gpu.h"
#include "tools/repro/card.h"
#include "tools/repro/runs.h"

namespace headroom::repro {
namespace {

constexpr std::string_view kModelCard = "card-6gb";

}  // namespace

Measured run_d5(const Stage& stage) {
  Card card(stage, kModelCard);
  Allocator& allocator = card.allocator();
  Measured measured;
  {
    const Card::Tensor x = card.randn({200, 300, 200, 20});
    measured.add("memory_allocated_bytes", allocator.statistics().allocated.current);
    measured.add("memory_reserved_bytes", allocator.statistics().reserved.current);
  }
  measured.add("allocated_after_del_bytes", allocator.statistics().allocated.current);
  measured.add("reserved_after_del_bytes", allocator.statistics().reserved.current);
  allocator.trim();
  measured.add("reserved_after_empty_cache_bytes", allocator.statistics().reserved.current);
  measured.add("max_memory_allocated_bytes", allocator.statistics().allocated.peak);
  measured.add("max_memory_reserved_bytes", allocator.statistics().reserved.peak);
  return measured;
}

Measured run_d7(const Stage& stage) {
  TrainSettings settings;
  settings.epochs = 1;
  settings.fused = false;
  settings.math = Math::kF32;
  const Dataset training = draw_digits(4 * settings.batch, 1);
  const Dataset test = draw_digits(settings.batch, 1, training.count);
  const auto train_on = [&](const RuntimeOptions& options) {
    Runtime runtime(options);
    return train(settings, training, test, runtime);
  };
  const TrainResult cpu = train_on({.device = "cpu"});
  const TrainResult gpu = train_on(stage.card(kModelCard));
  // A GPU adds in another order; a thousandth of the loss after four steps is far above what that makes.
  const bool agree = std::abs(cpu.final_loss - gpu.final_loss) <= 1e-3 * std::abs(cpu.final_loss);
  Measured measured;
  measured.add("on_the_cpu", cpu.outcome);
  measured.add("on_the_gpu", gpu.outcome);
  measured.add("losses_agree", agree ? "yes" : "no");
  measured.add("weights",
               cpu.weights_checksum == gpu.weights_checksum ? "the same bits" : "differ by rounding");
  for (const TrainResult* result : {&cpu, &gpu}) {
    measured.lines.push_back(fmt::format("--device {}: loss {:.4f}, weights {}", result->device,
                                         result->final_loss, result->weights_checksum));
  }
  return measured;
}

}  // namespace headroom::repro
