#include "answers/variant.h"

#include <algorithm>
#include <array>
#include <utility>

#include "answers/lower.h"
#include "answers/play.h"
#include "answers/variants.h"
#include "base/bytes.h"
#include "base/edge.h"
#include "base/errors.h"
#include "runtime/graph/host_state.h"
#include "runtime/graph/placement.h"
#include "runtime/session/start_op.h"
#include "runtime/session/variables.h"

namespace headroom {
namespace {

// Real kernels reach about these shares of a card's published peaks. An empty one takes some microseconds.
constexpr double kReachedFlops = 0.6, kReachedTraffic = 0.85, kLaunchUs = 2;
// Likewise an empty copy between host and device.
constexpr double kCopyUs = 5;
// An update that reads and writes its state over the link reaches this share of what copies both ways do.
// Measured on an H200 for 512 MiB of Adam's state: 41.8 of 44.6 GB/s each way.
constexpr double kReachedLink = 0.93;
// So many points in a row whose packing takes no less end the search for the least.
constexpr int kMostPackedMisses = 8;
// More than any device has.
constexpr int64_t kEnough = int64_t{1} << 46;
// Nodes of the plans that are kept for another budget, some hundred bytes each.
constexpr size_t kMaxKeptNodes = size_t{1} << 18;

// Returns the time of a step's nodes without levers.
double step_us(const Program& program, std::span<const double> node_us) {
  double us = 0;
  for (const int id : find_needed_nodes(*program.graph, program.targets.front()).pure) {
    us += node_us[id];
  }
  return us;
}

double modeled_step_us(const Program& program, const DeviceProfile& device) {
  return step_us(program, node_times_us(*program.graph, speed_of(device)));
}

// Returns the peak of the process under that limit; nothing if the program does not fit. Throws
// InvalidArgument for an invalid strategy, and for a limit below context and libraries.
std::optional<int64_t> play_unchecked(const Program& planned, int64_t memory_bytes, RunSetup setup) {
  setup.options.memory_bytes = memory_bytes;
  setup.options.limit_bytes.reset();
  setup.options.memory_fraction.reset();
  if (setup.strategy) {
    setup.strategy->limit_bytes = memory_bytes;
    setup.strategy->limit_scope = LimitScope::kProcess;
  }
  const Prediction attempt = headroom::play(lower({&planned, 1}, setup.options), setup);
  // The context, when it is new, may be the most of all.
  if (!attempt.fits || attempt.front().process_bytes > memory_bytes) return std::nullopt;
  return attempt.front().process_bytes;
}

std::optional<int64_t> play(const Program& planned, int64_t memory_bytes, const RunSetup& setup) {
  try {
    return play_unchecked(planned, memory_bytes, setup);
  } catch (const InvalidArgument&) {  // a limit below context and libraries
    return std::nullopt;
  }
}

// Returns the smallest limit under which it fits, searching from `memory_bytes` on; nullopt if all free
// memory of the device is not enough.
std::optional<int64_t> least_limit(const Program& planned, int64_t memory_bytes, const RunSetup& setup) {
  const int64_t page = setup.device.granularity_bytes, most = free_bytes(setup);
  SearchWork work;
  int64_t taken = 0;
  const auto attempt = [&](int64_t limit) -> EdgeTrial {
    const std::optional<int64_t> process_bytes = play(planned, limit, setup);
    if (process_bytes) taken = *process_bytes;
    return {process_bytes.has_value()};
  };
  EdgeSearch pages(work, attempt, page), bytes(work, attempt);
  int64_t failing = most - round_up(std::max<int64_t>(0, most - memory_bytes), page);
  for (int64_t less = page; failing > 0 && pages.fits(failing); less *= 2) failing -= less;
  const std::optional<Edge> edge = pages.above(failing, most);
  if (!edge) return std::nullopt;
  // Usually what it took is the least to the byte; a strategy may also need a whole page to be left.
  const bool is_inside = edge->failing < taken && taken <= edge->fitting;
  if (is_inside && bytes.fits(taken) && !bytes.fits(taken - 1)) return taken;
  return bytes.between(edge->fitting, edge->failing).fitting;
}

}  // namespace

DeviceSpeed speed_of(const DeviceProfile& profile) {
  // TFLOP/s and GB/s in units of one microsecond.
  return {.flops_per_us = 1e6 * kReachedFlops * std::max(profile.tflops, 1e-3),
          .bytes_per_us = 1e3 * kReachedTraffic * std::max(profile.memory_gb_per_s, 1e-3),
          .launch_us = kLaunchUs,
          .half_factor = profile.compute_capability >= 80   ? 2.0
                         : profile.compute_capability >= 70 ? 8.0
                                                            : 1.0};
}

HostLink host_link_of(const RunSetup& setup, int replicas) {
  if (setup.gpus.physical.empty() || setup.options.plan != PlanMode::kPacked) return {};
  return {.bytes_per_us = 1e3 * link_gb_per_s(setup.device),
          .latency_us = kCopyUs,
          .max_bytes = setup.options.host_memory_bytes.value_or(0) / replicas};
}

Variant::Variant(Program program, const RunSetup& setup, const NodeCostsOf& costs_of, const HostLink& host)
    : setup_(setup), costs_of_(costs_of), program_(std::move(program)), host_(host) {
  std::vector<std::string> devices = devices_of(*program_.graph);
  std::erase(devices, kHostPlace);
  if (devices.size() != 1 || setup_.gpus.has_virtual()) {
    throw InvalidArgument("memory: a budget is kept on one device, and the program uses several");
  }
  lower_bound_us_ = us_without();
}

Variant::Variant(Variant& base, Lever change)
    : setup_(base.setup_),
      costs_of_(base.costs_of_),
      base_(&base),
      change_(std::move(change)),
      program_(changed(base.program_, change_)),
      host_(base.host_) {
  if (!change_.keeps_nodes) {
    // Until its kernels are made, its time is to that of the whole as in the model.
    const DeviceProfile& device = setup_.device;
    lower_bound_us_ =
        base.us_without() * modeled_step_us(program_, device) / modeled_step_us(base.program_, device);
    return;
  }
  frontier_ = base.prepare().frontier_;
  host_.max_bytes -= host_variable_bytes(*program_.graph) - host_variable_bytes(*base.program_.graph);
  const std::vector<int64_t> linked_bytes = host_state_bytes(*program_.graph);
  for (size_t node = 0; node < linked_bytes.size(); ++node) {
    if (linked_bytes[node] == 0) continue;
    // Each way once, both at a time.
    added_us_ +=
        std::max(0.0, host_.copy_us(linked_bytes[node]) / kReachedLink - frontier_->costs().us[node]);
  }
  lower_bound_us_ = base.us_without_ + added_us_;
}

Variant& Variant::prepare() {
  if (whole_.plans) return *this;
  if (!frontier_) {
    frontier_ = std::make_shared<Frontier>(*program_.graph, program_.targets.front(),
                                           costs_of_(*program_.graph), host_);
  }
  whole_ = planned(program_, setup_.options.plan, frontier_->costs().workspace_bytes);
  us_without_ = step_us(program_, frontier_->costs().us) + added_us_;
  // Drivers hand out pages: what the process holds beside its sessions' arena is what a play leaves of its
  // peak.
  fixed_bytes_ = sum_fixed_bytes();
  for (size_t i = 1; i < whole_.plans->size(); ++i) {
    other_bytes_ = std::max(other_bytes_, (*whole_.plans)[i].peak_bytes);
  }
  const int64_t arena = arena_bytes(whole_);
  const std::optional<int64_t> process_bytes = bytes_without_limit();
  if (process_bytes) fixed_bytes_ = std::max(fixed_bytes_, *process_bytes - arena);
  bytes_without_ = std::max(process_bytes.value_or(fixed_bytes_ + arena), setup_.device.context_bytes);
  return *this;
}

// Returns the memory of the process beside its sessions, which share one arena.
int64_t Variant::sum_fixed_bytes() const {
  const DeviceProfile& device = setup_.device;
  int64_t bytes = device.kept_context_bytes() + device.bytes_of(libraries_of(*program_.graph, {}));
  for (const int id : program_.graph->variables()) {
    const ValueInfo& variable = program_.graph->value(id);
    if (variable.device != kHostPlace) bytes += Variables::block_bytes(variable);
  }
  for (const Plan& plan : *whole_.plans) bytes += 2 * plan.input_set_bytes;
  return bytes;
}

// Returns the memory of the process on an unlimited device; nullopt if it fits on none.
std::optional<int64_t> Variant::bytes_without_limit() const {
  RunSetup setup = setup_;
  setup.device.total_bytes = kEnough;
  for (PhysicalGpu& gpu : setup.gpus.physical) gpu.used_bytes = 0;
  setup.device.context_bytes = setup.device.kept_context_bytes();  // as it is beside the arena
  setup.device.stack_bytes = 0;
  const std::optional<int64_t> process_bytes = play_unchecked(whole_, kEnough, setup);
  // A strategy that takes a share of all there is needs only what it fits in.
  if (!process_bytes || play(whole_, kEnough / 2, setup) == process_bytes) return process_bytes;
  return least_limit(whole_, fixed_bytes_ + arena_bytes(whole_), setup);
}

// Returns the size of the sessions' common arena if the first one's step needs that much.
int64_t Variant::arena_bytes(int64_t step_bytes) const {
  return round_up(std::max(step_bytes, other_bytes_), setup_.device.granularity_bytes);
}

// Returns the bytes that a budget leaves for the arena, in whole pages.
int64_t Variant::pages_left(int64_t memory_bytes) const {
  const int64_t page = setup_.device.granularity_bytes;
  return (memory_bytes - fixed_bytes_) / page * page;
}

int64_t Variant::arena_bytes(const Program& planned) const {
  return arena_bytes(peak_bytes(planned));
}

// Packed, values may take more of the host than they have.
bool Variant::has_room_on_host(const Program& planned) const {
  const int64_t bytes = host_bytes_of(planned.plans->front());
  return bytes == 0 || bytes <= host_.max_bytes;
}

// By node of the graph with that schedule.
std::vector<int64_t> Variant::workspaces_of(const NodeSchedule& schedule) const {
  const std::vector<int64_t>& by_node = frontier_->costs().workspace_bytes;
  if (schedule.empty()) return by_node;
  std::vector<int64_t> result;
  std::vector<bool> ran(by_node.size());
  for (const ScheduledNode& scheduled : schedule.nodes) {
    if (scheduled.kind != ScheduledKind::kNode) {
      result.push_back(0);
      continue;
    }
    result.push_back(by_node[scheduled.node]);
    ran[scheduled.node] = true;
  }
  for (size_t i = 0; i < ran.size(); ++i) {
    if (!ran[i]) result.push_back(by_node[i]);
  }
  return result;
}

// The solution of a point, before it is played.
std::shared_ptr<const MemorySolution> Variant::plan(size_t point) {
  const auto known = planned_.find(point);
  if (known != planned_.end()) return known->second;
  StepPoint step = frontier_->at(point);
  MemorySolution solution{.levers = changes(), .planned = whole_, .us = step.us + added_us_};
  if (!step.schedule.empty()) {
    solution.planned = planned(with_graph(program_, rewritten(*program_.graph, step.schedule)),
                               setup_.options.plan, workspaces_of(step.schedule));
  }
  solution.schedule = std::move(step.schedule);
  solution.levers.insert(solution.levers.end(), step.levers.begin(), step.levers.end());
  Variant* plain = this;
  while (plain->base_ != nullptr) plain = plain->base_;
  solution.process_bytes_without = plain->bytes_without();
  solution.us_without = plain->us_without();
  solution.host_bytes = host_bytes_of(solution.planned.plans->front()) + host_variable_bytes(*program_.graph);
  if ((planned_.size() + 1) * program_.graph->nodes().size() > kMaxKeptNodes) planned_.clear();
  return planned_.emplace(point, std::make_shared<const MemorySolution>(std::move(solution))).first->second;
}

std::optional<std::string> Variant::find_plan_fault(const MemorySolution& solution) const {
  const std::vector<int64_t> workspaces = workspaces_of(solution.schedule);
  for (const Plan& plan : *solution.planned.plans) {
    if (auto fault = find_fault(*solution.planned.graph, plan, workspaces)) return fault;
  }
  return std::nullopt;
}

// Returns the changes with their savings and costs, each measured on top of those before it.
std::vector<Lever> Variant::changes() {
  if (base_ == nullptr) return {};
  std::vector<Lever> changes = base_->changes();
  Lever& last = changes.emplace_back(change_);
  last.saved_bytes = base_->bytes_without() - bytes_without();
  last.added_us = us_without() - base_->us_without();
  return changes;
}

MemorySolution Variant::solution_at(size_t point, int64_t memory_bytes) {
  MemorySolution solution = *plan(point);
  solution.memory_bytes = memory_bytes;
  if (!has_room_on_host(solution.planned)) return solution;
  if (const auto process_bytes = play(solution.planned, memory_bytes, setup_)) {
    solution.fits = true;
    solution.process_bytes = *process_bytes;
  }
  return solution;
}

int64_t Variant::largest_buffer_bytes() {
  int64_t largest = 0;
  for (const Buffer& buffer : prepare().whole_.plans->front().buffers) {
    largest = std::max(largest, buffer.bytes);
  }
  return largest;
}

MemorySolution Variant::solve(int64_t memory_bytes) {
  prepare();
  const int64_t step_bytes = pages_left(memory_bytes);
  Frontier& frontier = *frontier_;
  std::optional<size_t> point = frontier.next_within(step_bytes, host_.max_bytes);
  if (point) {
    MemorySolution solution = solution_at(*point, memory_bytes);
    if (solution.fits) return solution;
  }
  const MemorySolution& least = this->least();
  if (least.least_memory_bytes == 0 || least.least_memory_bytes > memory_bytes) {
    MemorySolution solution = least;
    solution.memory_bytes = memory_bytes;
    return solution;
  }
  // Packing, and strategies that reserve in units of their own, need more than is live at once.
  while (point) {
    point = frontier.next_within(step_bytes, host_.max_bytes, *point + 1);
    if (!point || *point >= least_point_) break;
    MemorySolution solution = solution_at(*point, memory_bytes);
    if (solution.fits) return solution;
  }
  return solution_at(least_point_, memory_bytes);
}

// The point that needs the least memory, and what it needs.
const MemorySolution& Variant::least() {
  if (least_) return *least_;
  Frontier& frontier = *frontier_;
  std::shared_ptr<const MemorySolution> best;
  // Points that take more may pack better. Those with values on the host and those without end on their own.
  std::array<int, 2> misses = {};
  for (const size_t point : frontier.least_first(host_.max_bytes)) {
    if (best && arena_bytes(frontier.outcome(point).peak_bytes) >= arena_bytes(best->planned)) break;
    int& missed = misses[frontier.outcome(point).host_bytes > 0 ? 1 : 0];
    if (missed == kMostPackedMisses) continue;
    const std::shared_ptr<const MemorySolution> solution = plan(point);
    const Program& planned = solution->planned;
    const bool is_less =
        has_room_on_host(planned) && (!best || arena_bytes(planned) < arena_bytes(best->planned));
    missed = is_less ? 0 : missed + 1;
    if (!is_less) continue;
    best = solution;
    least_point_ = point;
  }
  if (!best) best = plan(least_point_);
  const DeviceProfile& device = setup_.device;
  const int64_t sum = std::max(fixed_bytes_ + arena_bytes(best->planned), device.context_bytes);
  std::optional<int64_t> limit = least_limit(best->planned, sum, setup_);
  // Strategies that reserve in units of their own may need less for another one.
  while (limit) {
    const int64_t less = *limit - device.granularity_bytes;
    const std::optional<size_t> other = frontier.next_within(pages_left(less), host_.max_bytes);
    if (!other) break;
    const MemorySolution solution = solution_at(*other, less);
    if (!solution.fits) break;
    least_point_ = *other;
    limit = least_limit(plan(least_point_)->planned, solution.process_bytes, setup_);
  }
  MemorySolution solution = solution_at(least_point_, limit.value_or(sum));
  solution.fits = false;
  solution.least_memory_bytes = limit.value_or(0);
  return least_.emplace(std::move(solution));
}

}  // namespace headroom
