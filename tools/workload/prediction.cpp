#include "tools/workload/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "answers/keep_to_memory.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/table.h"
#include "runtime/graph/categories.h"
#include "runtime/session/variables.h"

namespace headroom {
namespace {

// By MemoryCategory.
constexpr std::array<Category, kMemoryCategoryNames.size()> kCategoryOf = {
    Category::kUnused,      Category::kWeights, Category::kGradients, Category::kOptimizerState,
    Category::kActivations, Category::kInputs,  Category::kWorkspace, Category::kLibraries};

int64_t sum(const ByCategory& bytes) {
  int64_t total = 0;
  for (int64_t part : bytes) total += part;
  return total;
}

std::string op_at_peak(const Graph& graph, const Plan& plan, int peak_step) {
  for (auto step = static_cast<size_t>(peak_step); step < plan.steps.size(); ++step) {
    if (plan.steps[step].kind == StepKind::kRun) return graph.node(plan.steps[step].id).name;
  }
  return {};
}

// The GPU of that name; null for the CPU.
const PhysicalGpu* gpu_of(const RunSetup& setup, const std::string& name) {
  const DeviceName device = parse_device_name(name);
  if (device.type == DeviceType::kCpu) return nullptr;
  return &setup.gpus.physical[static_cast<size_t>(setup.gpus.find(device).physical)];
}

RunSetup with_total(RunSetup setup, int64_t total_bytes) {
  setup.device.total_bytes = total_bytes;
  return setup;
}

// The largest device to try: 64 times the setup's, at least 16 TiB.
int64_t largest_total_bytes(const RunSetup& setup) {
  return std::max(64 * setup.device.total_bytes, 16384 * kGiB);
}

// The lowest limit of a pool on any device, if there is one.
std::optional<int64_t> lowest_limit(const RunSetup& setup) {
  std::optional<int64_t> lowest = setup.options.strategy_settings().limit_bytes;
  for (const LogicalGpu& gpu : setup.gpus.logical) {
    if (gpu.limit_bytes) lowest = std::min(*gpu.limit_bytes, lowest.value_or(*gpu.limit_bytes));
  }
  return lowest;
}

// The setup with all limits `bytes` higher.
RunSetup with_higher_limits(RunSetup setup, int64_t bytes) {
  for (LogicalGpu& gpu : setup.gpus.logical) {
    if (gpu.limit_bytes) *gpu.limit_bytes += bytes;
  }
  if (const std::optional<int64_t> limit = setup.options.strategy_settings().limit_bytes) {
    setup.options = with_limit(setup.options, *limit + bytes).value_or(setup.options);
  }
  return setup;
}

}  // namespace

RunSetup setup_to_fit(const RuntimeOptions& options) {
  RunSetup setup = setup_of(options);
  if (setup.gpus.physical.empty()) {
    throw InvalidArgument(fmt::format(
        "device '{}' has no memory of its own to fit into: name a GPU, such as sim:h200", options.device));
  }
  return setup;
}

int64_t others_bytes(const RunSetup& setup) {
  const LogicalGpu& gpu = setup.gpus.find(default_device(setup.options));
  return setup.gpus.physical[static_cast<size_t>(gpu.physical)].used_bytes;
}

Predictor::Predictor(const WorkloadOptions& options)
    : ranks_(plan_programs(make_programs(options), options.runtime.plan)),
      played_(to_play(ranks_, options.runtime)) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const PlannedProgram& planned = *ranks_[rank];
    const Graph& graph = *planned.program.graph;
    const std::vector<std::string> names = devices_of(graph);
    for (size_t device = 0; device < names.size(); ++device) {
      if (names[device] == kHostPlace) continue;
      const std::string name = played_[rank].devices.find(names[device]).text();
      Need need{name, &planned, device, nullptr};
      for (const int id : graph.variables()) {
        if (graph.value(id).device == names[device])
          need.variable_bytes += Variables::block_bytes(graph.value(id));
      }
      for (const Plan& plan : planned.plans) {
        const PlanDevice& here = plan.devices[device];
        need.step_bytes = std::max(need.step_bytes, here.peak_bytes);
        if (need.largest == nullptr ||
            here.lower_bound_bytes > need.largest->devices[device].lower_bound_bytes) {
          need.largest = &plan;
        }
      }
      needs_.push_back(std::move(need));
    }
  }
}

PlayedAttempt Predictor::play(const RunSetup& setup) const {
  if (const std::optional<MemoryTooSmall> refusal = why_not_kept()) {
    PlayedAttempt attempt;
    attempt.error = refusal->what();
    attempt.lacking_bytes = std::max<int64_t>(1, refusal->least_bytes() - refusal->facts().limit.value_or(0));
    return attempt;
  }
  for (const Need& need : needs_) {
    const PhysicalGpu* gpu = gpu_of(setup, need.name);
    const int64_t total = setup.device.total_bytes;
    if (gpu == nullptr || (total >= gpu->used_bytes && total > 0)) continue;
    PlayedAttempt attempt;
    attempt.error = "other processes hold more than the device has";
    attempt.lacking_bytes = gpu->used_bytes - total + setup.device.context_bytes;
    return attempt;
  }
  ++plays_;
  return headroom::play(played_, setup, false);
}

bool Predictor::fits(const RunSetup& setup, int64_t margin_bytes) const {
  RunSetup smaller = setup;
  for (PhysicalGpu& gpu : smaller.gpus.physical) gpu.used_bytes += margin_bytes;
  return play(smaller).fits;
}

PlayedAttempt Predictor::try_to_play(const RunSetup& setup) const {
  // Without a walk through the plan, which takes long for many nodes.
  if (is_too_large(setup, 0)) return {};
  try {
    return play(setup);
  } catch (const InvalidArgument&) {
    return {};  // a limit above the device's total, or on a process that needs more for its libraries
  }
}

SearchWork Predictor::search_work() const {
  int64_t steps = 0;
  for (const Plan& plan : ranks_[0]->plans) steps += std::ssize(plan.steps);
  return {.each = std::max<int64_t>(1, steps * std::ssize(ranks_))};
}

std::optional<int64_t> Predictor::least_total_bytes(const RunSetup& setup, const PlayedAttempt* now) const {
  const int64_t page = setup.device.granularity_bytes, total = setup.device.total_bytes;
  PlayedAttempt fitted;  // of the trials, the last one that says how others go
  int64_t fitted_total = 0;
  const auto note = [&](const PlayedAttempt& played, int64_t with_total) {
    if (played.enough_total == 0) return;
    fitted = played;
    fitted_total = with_total;
  };
  if (now != nullptr) note(*now, total);
  const auto attempt = [&](int64_t total_bytes) -> EdgeTrial {
    const RunSetup trial = with_total(setup, total_bytes);
    if (total_bytes <= fitted_total && would_play_alike(fitted, trial)) return {.fits = true};
    const PlayedAttempt played = try_to_play(trial);
    note(played, total_bytes);
    return {.fits = played.fits};
  };
  SearchWork work = search_work();
  const std::optional<Edge> edge =
      EdgeSearch(work, attempt, page).next_to(total, total % page, largest_total_bytes(setup));
  return edge ? std::optional(edge->fitting) : std::nullopt;
}

// The same for the limits, on devices that are large enough: how much higher all of them must be.
std::optional<int64_t> Predictor::least_raise_bytes(const RunSetup& setup) const {
  const std::optional<int64_t> lowest = lowest_limit(setup);
  if (!lowest) return std::nullopt;
  const int64_t page = setup.device.granularity_bytes;
  const RunSetup roomy = with_total(setup, largest_total_bytes(setup));
  const auto attempt = [&](int64_t limit) {
    return EdgeTrial{limit > 0 && would_fit(with_higher_limits(roomy, limit - *lowest))};
  };
  SearchWork work = search_work();
  const std::optional<Edge> edge =
      EdgeSearch(work, attempt, page).next_to(*lowest, *lowest % page, roomy.device.total_bytes);
  return edge ? std::optional(edge->fitting - *lowest) : std::nullopt;
}

Prediction Predictor::predict(const RunSetup& setup) const {
  Prediction prediction;
  for (const Need& need : needs_) {
    prediction.devices.push_back({need.name, need.variable_bytes, need.step_bytes});
  }
  for (const auto& planned : ranks_) {
    const Graph& graph = *planned->program.graph;
    for (const Step& step : planned->plans.front().steps) {
      if (step.kind != StepKind::kRun || !std::holds_alternative<CopyToDevice>(graph.node(step.id).op) ||
          is_host_copy(graph, graph.node(step.id)))
        continue;
      ++prediction.copies;
      prediction.copied_bytes += graph.value(graph.node(step.id).outputs[0]).spec.bytes();
    }
  }

  PlayedAttempt attempt = play(setup);
  prediction.fits = attempt.fits;
  prediction.reason = attempt.error;
  const std::optional<int64_t> least_total = least_total_bytes(setup, &attempt),
                               raise = least_raise_bytes(setup);
  if (least_total) prediction.margin_bytes = setup.device.total_bytes - *least_total;
  if (raise && (attempt.fits || !least_total)) {
    const bool binds = !least_total || -*raise < prediction.margin_bytes;
    if (binds) prediction.margin_bytes = -*raise;
  }
  if (!attempt.fits) {
    if (!least_total && !raise) {
      prediction.margin_bytes = -attempt.lacking_bytes;
      return prediction;
    }
    const RunSetup raised = least_total ? setup : with_higher_limits(setup, *raise);
    attempt = play(with_total(raised, least_total.value_or(largest_total_bytes(setup))));
  }
  for (size_t i = 0; i < attempt.devices.size(); ++i) prediction.devices[i].peak = attempt.devices[i].peak;
  const auto fullest = std::max_element(prediction.devices.begin(), prediction.devices.end(),
                                        [](const DevicePrediction& a, const DevicePrediction& b) {
                                          return std::pair(a.peak.process_bytes, a.peak.reserved_bytes) <
                                                 std::pair(b.peak.process_bytes, b.peak.reserved_bytes);
                                        });
  prediction.total_bytes = fullest->peak.process_bytes;
  prediction.reserved_bytes = fullest->peak.reserved_bytes;
  prediction.allocated_bytes = fullest->peak.allocated_bytes;
  prediction.fragmentation = fullest->peak.fragmentation;
  const auto at = static_cast<size_t>(fullest - prediction.devices.begin());
  const Need& need = needs_[at];
  prediction.peak_op =
      op_at_peak(*need.program->program.graph, *need.largest, need.largest->devices[need.device].peak_step);
  for (const Need& other : needs_) {
    if (gpu_of(setup, other.name) == gpu_of(setup, need.name)) {
      add_live_at_peak(other, prediction.by_category);
    }
  }
  const auto part = [&](Category category) -> int64_t& {
    return prediction.by_category[static_cast<size_t>(category)];
  };
  part(Category::kContext) = setup.device.kept_context_bytes();
  part(Category::kLibraries) = attempt.devices[at].library_bytes;
  int64_t& rest =
      part(prediction.total_bytes == setup.device.context_bytes ? Category::kContext : Category::kUnused);
  rest += prediction.total_bytes - sum(prediction.by_category);
  return prediction;
}

int64_t Predictor::lower_bound_bytes() const {
  int64_t bytes = 0;
  for (const Need& need : needs_) bytes += need.lower_bound_bytes();
  return bytes;
}

std::optional<MemoryTooSmall> Predictor::why_not_kept() const {
  std::vector<Program> programs;
  for (const auto& planned : ranks_) programs.push_back(planned->program);
  return headroom::why_not_kept(programs);
}

void Predictor::require_kept() const {
  if (const std::optional<MemoryTooSmall> refusal = why_not_kept()) throw MemoryTooSmall(*refusal);
}

bool Predictor::is_too_large(const RunSetup& setup, int64_t margin_bytes) const {
  return std::any_of(needs_.begin(), needs_.end(), [&](const Need& need) {
    const PhysicalGpu* gpu = gpu_of(setup, need.name);
    if (gpu == nullptr) return false;
    const DeviceProfile& device = setup.device;
    return std::max(need.lower_bound_bytes() + device.kept_context_bytes(), device.context_bytes) >
           device.total_bytes - gpu->used_bytes - margin_bytes;
  });
}

void Predictor::add_live_at_peak(const Need& need, ByCategory& bytes) const {
  const Graph& graph = *need.program->program.graph;
  const std::vector<MemoryCategory> categories = categorise(graph);
  const auto category = [&](int value) {
    return static_cast<size_t>(kCategoryOf[static_cast<size_t>(categories[static_cast<size_t>(value)])]);
  };
  const PlanDevice& here = need.largest->devices[need.device];
  for (const int id : graph.variables()) {
    if (graph.value(id).device == here.name) bytes[category(id)] += Variables::block_bytes(graph.value(id));
  }
  for (const Buffer& buffer : need.largest->buffers) {
    const bool is_here = static_cast<size_t>(buffer.device) == need.device;
    if (!is_here || buffer.first_step > here.peak_step || here.peak_step >= buffer.end_step) continue;
    bytes[buffer.owner < 0 ? static_cast<size_t>(Category::kWorkspace) : category(buffer.owner)] +=
        buffer.bytes;
  }
}

std::string device_table(const Prediction& prediction, const Terminal& terminal) {
  if (prediction.devices.size() < 2) return {};
  Table table({{"device"},
               {.title = "variables", .is_number = true, .drop = 2},
               {.title = "a step", .is_number = true, .drop = 3},
               {.title = "allocated", .is_number = true, .drop = 4},
               {.title = "reserved", .is_number = true, .drop = 1},
               {.title = "process", .is_number = true}});
  for (const DevicePrediction& device : prediction.devices) {
    const PeakPrediction& peak = device.peak;
    const auto mib = [&](int64_t bytes) {
      return peak.process_bytes > 0 ? format_mib(bytes) : std::string("-");
    };
    table.add({device.name, format_mib(device.variable_bytes), format_mib(device.step_bytes),
               mib(peak.allocated_bytes), mib(peak.reserved_bytes), mib(peak.process_bytes)});
  }
  std::string text = "\nin MiB\n" + table.text(terminal);
  if (prediction.copies > 0) {
    text += fmt::format("{} values are copied between devices in a step, {}\n", prediction.copies,
                        format_bytes(prediction.copied_bytes));
  }
  return text;
}

std::string devices_json(const Prediction& prediction) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const DevicePrediction& device : prediction.devices) {
    rows.push_back({{"name", device.name},
                    {"variable_bytes", device.variable_bytes},
                    {"step_bytes", device.step_bytes},
                    {"peak_allocated_bytes", device.peak.allocated_bytes},
                    {"peak_reserved_bytes", device.peak.reserved_bytes},
                    {"process_bytes", device.peak.process_bytes}});
  }
  return rows.dump();
}

}  // namespace headroom
