#include "examples/models/mnist/train_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/errors.h"

namespace headroom {

// f16 underflows at 6e-8, and gradients of a mean over hundreds of images are smaller.
float usual_loss_scale(Math math) {
  return math == Math::kF16 ? 1024 : 1;
}

int64_t share_of_batch(int64_t batch, int replicas) {
  if (batch % replicas == 0) return batch / replicas;
  const int64_t below = batch / replicas * replicas;
  throw InvalidArgument(fmt::format("batch {}: not a multiple of {} replicas; try {}", batch, replicas,
                                    below > 0 ? below : replicas));
}

int64_t steps_per_epoch(const TrainSettings& settings, int64_t images) {
  const int64_t all = images / settings.batch;
  return settings.steps > 0 ? std::min(settings.steps, all) : all;
}

float rate_at(const TrainSettings& settings, int64_t step, int64_t steps) {
  const auto turn = [](double at, double end) { return 0.5 * (1 + std::cos(std::numbers::pi * at / end)); };
  const auto at = static_cast<double>(step), end = static_cast<double>(steps);
  double share = 1;
  if (settings.schedule == Schedule::kCosine) share = turn(at, end);
  if (settings.schedule == Schedule::kOneCycle) {
    // Smith, Topin 2018, with PyTorch's shape: a quarter of the way up from a 25th, then down to 0.
    constexpr double kStart = 0.04;
    const double rise = 0.25 * end;
    share = at < rise ? kStart + (1 - kStart) * at / rise : turn(at - rise, end - rise);
  }
  return static_cast<float>(static_cast<double>(settings.learning_rate) * share);
}

}  // namespace headroom
