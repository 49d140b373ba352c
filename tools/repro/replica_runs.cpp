// A10 and D8: one net on several GPUs, real ones of a machine or virtual ones of a card.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "examples/models/mnist/digits.h"
#include "examples/models/mnist/trainer.h"
#include "tools/repro/runs.h"

namespace headroom::repro {
namespace {

constexpr int64_t kMirroredSteps = 4;

TrainResult train_mirrored(Runtime& runtime, int replicas) {
  TrainSettings settings;
  settings.epochs = 1;
  settings.replicas = replicas;
  const int64_t images = kMirroredSteps * settings.batch;
  return train(settings, draw_digits(images, 1), draw_digits(settings.batch, 1, images), runtime);
}

// `replicas` of the runtime's GPUs beside one of them alone, over the same batches.
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

Measured run_d8(const Stage&) {
  const Environment all_visible("CUDA_VISIBLE_DEVICES", nullptr);
  Measured measured;
  compare_with_one(measured, {.device = "sim:four-2080ti"}, 4);
  return measured;
}

}  // namespace headroom::repro
