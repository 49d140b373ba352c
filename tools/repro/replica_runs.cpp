// A10, D7 and D8: one net on several devices: CPU and GPU, the GPUs of a machine, virtual ones of a card.

#include <fmt/format.h>

#include <cmath>

#include "tools/repro/runs.h"

namespace headroom::repro {
namespace {

TrainResult train_mirrored(Runtime& runtime, int replicas) {
  TrainSettings settings;
  settings.replicas = replicas;
  return train_four_steps(settings, runtime);
}

// Compares `replicas` of the runtime's GPUs with one of them, over the same batches.
void compare_with_one(Measured& measured, const RuntimeOptions& options, int replicas) {
  Runtime together(options), alone(options);
  const TrainResult many = train_mirrored(together, replicas), one = train_mirrored(alone, 1);
  measured.add("outcome", many.outcome);
  bool weights_equal = true, losses_agree = many.losses.size() == one.losses.size();
  for (const ReplicaResult& replica : many.replicas) {
    weights_equal = weights_equal && replica.weights_checksum == many.weights_checksum;
    measured.lines.push_back(fmt::format("{}: {} images a step, weights {}", replica.device,
                                         many.batch / replicas, replica.weights_checksum));
  }
  for (size_t i = 0; losses_agree && i < one.losses.size(); ++i) {
    losses_agree = std::abs(many.losses[i] - one.losses[i]) < 1e-3f;
  }
  measured.add("images_per_gpu", many.batch / replicas);
  measured.add("weights_of_all", weights_equal ? "the same bits" : "differ");
  measured.add("losses_of_one_gpu", losses_agree ? "yes" : "no");
  measured.lines.push_back(fmt::format("loss {:.4f} on {} GPUs, {:.4f} on one with the same batches",
                                       many.final_loss, replicas, one.final_loss));
}

}  // namespace

Measured run_a10(const Stage&) {
  const RuntimeOptions options{.device = "sim:rtx-2080ti", .virtual_devices = "0:1GiB,1GiB"};
  Measured measured;
  measured.add("counts", count_line(find_devices(options)));
  compare_with_one(measured, options, 2);
  return measured;
}

Measured run_d7(const Stage& stage) {
  TrainSettings settings;
  settings.fused = false;
  settings.math = Math::kF32;
  const auto train_on = [&](const RuntimeOptions& options) {
    Runtime runtime(options);
    return train_four_steps(settings, runtime);
  };
  const TrainResult cpu = train_on({.device = "cpu"});
  const TrainResult gpu = train_on(stage.card(kSixGb));
  // A GPU adds in another order; a thousandth of the loss after four steps is far above that difference.
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

Measured run_d8(const Stage&) {
  const Environment all_visible(kVisible, nullptr);
  Measured measured;
  compare_with_one(measured, {.device = kFourGpus}, 4);
  return measured;
}

}  // namespace headroom::repro
