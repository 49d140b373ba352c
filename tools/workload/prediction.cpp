#include "tools/workload/prediction.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/kernel.h"
#include "runtime/categories.h"
#include "runtime/core/bytes.h"
#include "runtime/core/cuda/devices.h"
#include "runtime/core/errors.h"
#include "runtime/core/sim/simulated_gpu.h"
#include "runtime/predict_peak.h"
#include "runtime/start_op.h"
#include "tools/workload/search.h"

namespace headroom {

std::vector<int64_t> workspaces_of_cpu_kernels(const Graph& graph) {
  std::vector<int64_t> bytes;
  for (const Node& node : graph.nodes()) {
    std::vector<TensorSpec> inputs, outputs;
    for (int id : node.inputs) inputs.push_back(graph.value(id).spec);
    for (int id : node.outputs) outputs.push_back(graph.value(id).spec);
    bytes.push_back(make_cpu_kernel(node.op, inputs, outputs)->workspace_bytes());
  }
  return bytes;
}

namespace {

// What a recording calls the same.
Category category_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kWeights:
      return Category::kWeights;
    case MemoryCategory::kGradients:
      return Category::kGradients;
    case MemoryCategory::kOptimizerState:
      return Category::kOptimizerState;
    case MemoryCategory::kActivations:
      return Category::kActivations;
    case MemoryCategory::kInputs:
      return Category::kInputs;
    case MemoryCategory::kWorkspace:
      return Category::kWorkspace;
    case MemoryCategory::kLibrary:
      return Category::kLibraries;
    case MemoryCategory::kOther:
      break;
  }
  return Category::kUnused;
}

int64_t sum(const ByCategory& bytes) {
  int64_t total = 0;
  for (int64_t part : bytes) total += part;
  return total;
}

// The node at the peak: the first that runs once all of it is live.
std::string op_at_peak(const Graph& graph, const Plan& plan) {
  for (auto step = static_cast<size_t>(plan.peak_step); step < plan.steps.size(); ++step) {
    if (plan.steps[step].kind == StepKind::kRun) return graph.node(plan.steps[step].id).name;
  }
  return {};
}

Place with_total(Place place, int64_t total_bytes) {
  place.profile.total_bytes = total_bytes;
  return place;
}

// No device is larger: 64 times the place's or 16 TiB.
int64_t largest_total_bytes(const Place& place) {
  return std::max(64 * place.profile.total_bytes, 16384 * kGiB);
}

}  // namespace

Place place_of(const RuntimeOptions& options) {
  Place place{{}, options.strategy_settings(), options.libraries_first};
  place.strategy.record_path.clear();  // what is only played is not what happened
  if (const std::optional<DeviceProfile> profile = simulated_profile(options)) {
    const DeviceMap map = find_devices(options);
    const LogicalGpu& gpu = map.find(default_device(options));
    place.strategy = strategy_on(map, default_device(options), place.strategy);
    place.profile = *profile;
    place.profile.others_bytes = map.physical[static_cast<size_t>(gpu.physical)].used_bytes;
    SimulatedGpu(place.profile, 0, Backing::kNone);  // refuses sizes that contradict each other
    return place;
  }
  if (!cuda_ordinal(options.device)) {
    throw InvalidArgument(fmt::format(
        "device '{}' has no memory of its own to fit into: name a GPU, such as sim:h200", options.device));
  }
  const DeviceMap map = find_devices(options);
  const LogicalGpu& logical = map.find(default_device(options));
  const PhysicalGpu& gpu = map.physical[static_cast<size_t>(logical.physical)];
  place.strategy = strategy_on(map, default_device(options), place.strategy);
  place.profile = find_profile("h200");
  place.profile.name = gpu.name;
  place.profile.compute_capability = gpu.compute_capability;
  place.profile.total_bytes = options.device_memory_bytes.value_or(gpu.total_bytes);
  place.profile.others_bytes = options.others_bytes.value_or(gpu.used_bytes);
  return place;
}

// How a run in some place would go.
struct Predictor::Trial {
  bool fits = false;
  PeakPrediction peak;
  int64_t library_bytes = 0;
  int64_t lacking_bytes = 0;  // by the failing call
  std::string reason;
};

Predictor::Predictor(Program program, PlanMode mode) : program_(std::move(program)) {
  const std::vector<int64_t> workspace_bytes = workspaces_of_cpu_kernels(*program_.graph);
  for (const Targets& targets : program_.targets) {
    plans_.push_back(make_plan(*program_.graph, targets, mode, workspace_bytes));
  }
  for (const MemoryCategory category : categorise(*program_.graph)) {
    category_of_value_.push_back(category_of(category));
  }
  largest_ = &*std::max_element(plans_.begin(), plans_.end(), [](const Plan& a, const Plan& b) {
    return a.lower_bound_bytes < b.lower_bound_bytes;
  });
  variable_bytes_ = sum(variables_by_category());
}

Predictor::Trial Predictor::play(const Place& place) const {
  Trial trial;
  const DeviceProfile& profile = place.profile;
  if (profile.total_bytes < profile.others_bytes || profile.total_bytes <= 0) {
    trial.reason = "other processes hold more than there is";
    trial.lacking_bytes = profile.others_bytes - profile.total_bytes + profile.context_bytes;
    return trial;
  }
  SimulatedGpu device(profile, 0, Backing::kNone);
  const auto lacks = [&](const Error& error, int64_t bytes) {
    trial.reason = error.what();
    trial.lacking_bytes = std::max(bytes - device.memory().info().free, int64_t{1});
  };
  try {
    StrategySettings strategy = place.strategy;
    if (place.libraries_first) strategy.reserve_bytes = start_library_handles(device);
    const std::unique_ptr<Allocator> allocator = make_allocator(strategy, device);
    std::vector<const Plan*> plans;
    for (const Plan& plan : plans_) plans.push_back(&plan);
    trial.peak = predict_peak(*program_.graph, plans, device, *allocator);
    trial.fits = true;
    trial.library_bytes = profile.overhead_bytes() - profile.context_bytes - device.pending_library_bytes();
  } catch (const OutOfMemory& error) {
    const MemoryFacts& facts = error.facts();
    lacks(error, facts.requested);
    const int64_t idle = facts.reserved - facts.allocated;
    if (idle > 0) {
      trial.peak.fragmentation =
          1 - static_cast<double>(facts.largest_free_block) / static_cast<double>(idle);
    }
  } catch (const LibraryError& error) {
    lacks(error, device.pending_library_bytes());
  } catch (const DeviceError& error) {
    lacks(error, device.pending_library_bytes());
  }
  return trial;
}

bool Predictor::fits(const Place& place, int64_t margin_bytes) const {
  Place smaller = place;
  smaller.profile.others_bytes += margin_bytes;
  return play(smaller).fits;
}

double Predictor::fragmentation(const Place& place) const {
  return play(place).peak.fragmentation;
}

bool Predictor::would_fit(const Place& place) const {
  try {
    return play(place).fits;
  } catch (const InvalidArgument&) {
    return false;  // a limit above the device's total, or on a process that needs more for its libraries
  }
}

std::optional<int64_t> Predictor::least_total_bytes(const Place& place) const {
  const int64_t page = place.profile.granularity_bytes, total = place.profile.total_bytes;
  // In pages fewer or more than the device has.
  const Fits fits_with = [&](int64_t pages) { return would_fit(with_total(place, total + pages * page)); };
  const int64_t end = (largest_total_bytes(place) - total) / page;
  const std::optional<int64_t> pages =
      fits_with(0) ? least_below(0, -(total / page), fits_with) : first_above(0, end, fits_with);
  return pages ? std::optional(total + *pages * page) : std::nullopt;
}

// The same for the limit, on a device that is large enough.
std::optional<int64_t> Predictor::least_limit_bytes(const Place& place) const {
  const int64_t page = place.profile.granularity_bytes, limit = *place.strategy.limit_bytes;
  Place roomy = with_total(place, largest_total_bytes(place));
  const Fits fits_with = [&](int64_t pages) {
    roomy.strategy.limit_bytes = limit + pages * page;
    return *roomy.strategy.limit_bytes > 0 && would_fit(roomy);
  };
  const int64_t end = (roomy.profile.total_bytes - limit) / page;
  const std::optional<int64_t> pages =
      fits_with(0) ? least_below(0, -(limit / page), fits_with) : first_above(0, end, fits_with);
  return pages ? std::optional(limit + *pages * page) : std::nullopt;
}

Prediction Predictor::predict(const Place& place) const {
  Prediction prediction;
  Trial trial = play(place);
  prediction.fits = trial.fits;
  prediction.reason = trial.reason;
  Place least = place;
  std::optional<int64_t> least_total = least_total_bytes(place), least_limit;
  if (place.strategy.limit_bytes) least_limit = least_limit_bytes(place);
  if (least_total) prediction.margin_bytes = place.profile.total_bytes - *least_total;
  if (least_limit && (trial.fits || !least_total)) {
    const int64_t margin = *place.strategy.limit_bytes - *least_limit;
    const bool binds = !least_total || margin < prediction.margin_bytes;
    if (binds) prediction.margin_bytes = margin;
  }
  if (!trial.fits) {
    if (!least_total && !least_limit) {
      prediction.margin_bytes = -trial.lacking_bytes;
      return prediction;
    }
    if (!least_total) least.strategy.limit_bytes = least_limit;
    least.profile.total_bytes = least_total.value_or(largest_total_bytes(place));
    trial = play(least);
  }
  prediction.total_bytes = trial.peak.process_bytes;
  prediction.reserved_bytes = trial.peak.reserved_bytes;
  prediction.allocated_bytes = trial.peak.allocated_bytes;
  prediction.fragmentation = trial.peak.fragmentation;
  prediction.peak_op = op_at_peak(*program_.graph, *largest_);
  prediction.by_category = live_at_peak();
  const auto part = [&](Category category) -> int64_t& {
    return prediction.by_category[static_cast<size_t>(category)];
  };
  part(Category::kContext) = place.profile.context_bytes;
  part(Category::kLibraries) = trial.library_bytes;
  part(Category::kUnused) = prediction.total_bytes - sum(prediction.by_category);
  return prediction;
}

int64_t Predictor::lower_bound_bytes() const {
  return variable_bytes_ + largest_->lower_bound_bytes;
}

ByCategory Predictor::variables_by_category() const {
  ByCategory bytes{};
  for (int id : program_.graph->variables()) {
    bytes[static_cast<size_t>(category_of_value_[static_cast<size_t>(id)])] +=
        round_up(program_.graph->value(id).spec.bytes(), Allocator::kAlignment);
  }
  return bytes;
}

ByCategory Predictor::live_at_peak() const {
  ByCategory bytes = variables_by_category();
  for (const Buffer& buffer : largest_->buffers) {
    if (buffer.first_step > largest_->peak_step || largest_->peak_step >= buffer.end_step) continue;
    const Category category =
        buffer.owner < 0 ? Category::kWorkspace : category_of_value_[static_cast<size_t>(buffer.owner)];
    bytes[static_cast<size_t>(category)] += buffer.bytes;
  }
  return bytes;
}

}  // namespace headroom
