#include "examples/models/mnist/train_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "runtime/base/errors.h"
#include "runtime/base/text.h"

namespace headroom {
namespace {

constexpr std::array<std::string_view, 4> kMathNames = {"f32", "tf32", "bf16",
                                                        "f16"};  // in the order of Math

constexpr std::array<std::string_view, 3> kScheduleNames = {"constant", "cosine", "one-cycle"};

// The value whose index is that of its name.
template <typename Enum>
Enum parse(std::string_view what, std::string_view name, std::span<const std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    throw InvalidArgument(
        fmt::format("unknown {} '{}'; known: {}", what, name, list_with_suggestion(name, names)));
  }
  return static_cast<Enum>(found - names.begin());
}

}  // namespace

std::span<const std::string_view> schedule_names() {
  return kScheduleNames;
}

std::string_view to_string(Schedule schedule) {
  return kScheduleNames[static_cast<size_t>(schedule)];
}

Schedule parse_schedule(std::string_view name) {
  return parse<Schedule>("schedule", name, kScheduleNames);
}

std::span<const std::string_view> math_names() {
  return kMathNames;
}

// f16 underflows at 6e-8, and gradients of a mean over hundreds of images are smaller.
float usual_loss_scale(Math math) {
  return math == Math::kF16 ? 1024 : 1;
}

Math parse_math(std::string_view name) {
  return parse<Math>("math", name, kMathNames);
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
