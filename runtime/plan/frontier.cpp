#include "runtime/plan/frontier.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/plan/given_again.h"
#include "runtime/plan/order_nodes.h"
#include "runtime/plan/search_drops.h"

namespace headroom {
namespace {

using NameAndWhat = std::pair<std::string_view, std::string_view>;
constexpr NameAndWhat kOrder{"order", "runs nodes that free memory earlier"};
constexpr NameAndWhat kRecompute{"recompute", "drops values and recomputes them"};
constexpr NameAndWhat kOffload{"offload", "keeps values in host memory between their uses"};

// Nodes of all points of one search: whoever solves may plan each of them, which takes a second for ten
// schedules of 100,000 nodes.
constexpr size_t kMaxFoundNodes = size_t{1} << 20;

Lever used(NameAndWhat lever, const StepModel::Outcome& without, const StepModel::Outcome& with) {
  return {lever.first, lever.second, without.peak_bytes - with.peak_bytes, with.us - without.us};
}

StepModel::Choices without_host(StepModel::Choices choices, const StepModel::Choices& keep_all) {
  for (size_t gap = 0; gap < choices.size(); ++gap) {
    if (is_on_host(choices[gap])) choices[gap] = keep_all[gap];
  }
  return choices;
}

}  // namespace

Frontier::Frontier(const Graph& graph, const Targets& targets, NodeCosts costs, const HostLink& host,
                   int64_t max_work)
    : graph_(graph), targets_(targets), costs_(std::move(costs)), host_(host), max_work_(max_work) {
  const auto nodes = std::make_shared<const NeededNodes>(find_needed_nodes(graph, targets));
  StepModel model = model_of(*nodes, host);
  found_.push_back({model.evaluate(model.keep_all()), nodes});
}

StepModel Frontier::model_of(const NeededNodes& nodes, const HostLink& host) const {
  return {graph_, targets_, nodes, costs_, host};
}

// Adds the choices that take less than the last point before the search, each less than the one before it.
void Frontier::add(const std::shared_ptr<const NeededNodes>& nodes, std::span<const StepModel::Choices> all) {
  StepModel model = model_of(*nodes, host_);
  int64_t least_bytes = found_[unsearched_ - 1].peak_bytes;
  const size_t stride = 1 + all.size() * graph_.nodes().size() / kMaxFoundNodes;
  for (size_t i = (all.size() + stride - 1) % stride; i < all.size(); i += stride) {  // the last one included
    const StepModel::Outcome outcome = model.evaluate(all[i]);
    if (!outcome.is_valid || outcome.peak_bytes >= least_bytes) continue;
    least_bytes = outcome.peak_bytes;
    found_.push_back({outcome, nodes, all[i]});
  }
}

void Frontier::search_further() {
  if (stage_ == Stage::kAsItIs) {
    stage_ = Stage::kOrdered;
    const auto nodes = std::make_shared<const NeededNodes>(order_nodes(graph_, targets_, *found_[0].nodes));
    StepModel model = model_of(*nodes, host_);
    const StepModel::Outcome outcome = model.evaluate(model.keep_all());
    if (outcome.peak_bytes < found_[0].peak_bytes) found_.push_back({outcome, nodes});
    unsearched_ = found_.size();
  } else {
    stage_ = Stage::kSearched;
    search_drops();
    std::stable_sort(found_.begin() + static_cast<std::ptrdiff_t>(unsearched_), found_.end(),
                     [](const StepPoint& a, const StepPoint& b) { return a.us < b.us; });
  }
}

// First with all values on the device, then with the host, where there is one: both are kept, as what leaves
// all values on the device may take less once it is packed.
void Frontier::search_drops() {
  const auto peak_bytes = [&](const NeededNodes& nodes) {
    StepModel model = model_of(nodes, {});
    return model.evaluate(model.keep_all()).peak_bytes;
  };
  // The last reader of what was dropped until then frees it: readers that can run early do so, wherever the
  // peak is.
  const NeededNodes& last = *found_[unsearched_ - 1].nodes;
  NeededNodes known = with_readers_behind(graph_, last);
  NeededNodes early = with_readers_behind(graph_, order_nodes(graph_, targets_, last));
  const bool is_early = peak_bytes(early) <= peak_bytes(known);
  const auto nodes = std::make_shared<const NeededNodes>(std::move(is_early ? early : known));
  StepModel on_device = model_of(*nodes, {});
  const std::vector<StepModel::Choices> dropped = headroom::search_drops(on_device, {}, max_work_);
  add(nodes, dropped);
  if (!host_.exists()) return;
  StepModel with_host = model_of(*nodes, host_);
  // The search before this one has found most of the way.
  add(nodes, headroom::search_drops(with_host, dropped, max_work_ / 2));
}

std::optional<size_t> Frontier::next_within(int64_t step_bytes, int64_t host_bytes, size_t first) {
  const auto is_within = [&](const StepPoint& found) {
    return found.peak_bytes <= step_bytes && found.host_bytes <= host_bytes;
  };
  while (true) {
    const auto found =
        std::find_if(found_.begin() + static_cast<std::ptrdiff_t>(std::min(first, found_.size())),
                     found_.end(), is_within);
    if (found != found_.end()) return static_cast<size_t>(found - found_.begin());
    if (stage_ == Stage::kSearched) return std::nullopt;
    search_further();
  }
}

std::vector<size_t> Frontier::least_first(int64_t host_bytes) {
  while (stage_ != Stage::kSearched) search_further();
  std::vector<size_t> points(found_.size());
  std::iota(points.begin(), points.end(), size_t{0});
  std::erase_if(points, [&](size_t i) { return found_[i].host_bytes > host_bytes; });
  std::ranges::stable_sort(points,
                           [&](size_t a, size_t b) { return found_[a].peak_bytes < found_[b].peak_bytes; });
  return points;
}

// Returns the effect of each lever: the order, then values that are dropped, then those in host memory.
std::vector<Lever> Frontier::uses_of(StepModel& model, const StepPoint& found) const {
  const StepModel::Outcome& last = found_[unsearched_ - 1];
  std::vector<Lever> uses;
  if (unsearched_ > 1) uses.push_back(used(kOrder, found_[0], found_[1]));
  if (found.choices.empty()) return uses;
  const StepModel::Choices on_device = without_host(found.choices, model.keep_all());
  StepModel::Outcome without = found;
  if (on_device != found.choices) {
    without = model.evaluate(on_device);
    // Dropping values may help only together with moving others to the host.
    without.peak_bytes = std::min(without.peak_bytes, last.peak_bytes);
  }
  const bool drops = on_device != model.keep_all() || on_device == found.choices;
  if (drops) uses.push_back(used(kRecompute, last, without));
  if (on_device != found.choices) uses.push_back(used(kOffload, drops ? without : last, found));
  return uses;
}

StepPoint Frontier::at(size_t index) const {
  StepPoint point = found_[index];
  if (index == 0) return point;
  StepModel model = model_of(*point.nodes, host_);
  point.levers = uses_of(model, point);
  model.evaluate(point.choices.empty() ? model.keep_all() : point.choices);
  point.schedule = model.schedule();
  return point;
}

StepPoint Frontier::solve(int64_t step_bytes) {
  const std::optional<size_t> within = next_within(step_bytes);
  return at(within ? *within : least_first().front());
}

}  // namespace headroom
