#include "examples/models/mnist/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "examples/models/mnist/fingerprint.h"
#include "runtime/graph/categories.h"

namespace headroom {
namespace {

// Keys of the file's metadata, besides the fingerprint.
constexpr const char *kFormat = "headroom", *kTraining = "training 1";
constexpr const char *kStepsDone = "steps done", *kLossSum = "sum of losses";

template <typename T>
T number_of(const std::string& path, const Fingerprint& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found != metadata.end()) {
    if (const std::optional<T> number = parse_number<T>(found->second)) return *number;
  }
  throw InvalidArgument(fmt::format("{}: the metadata has no number '{}'", path, key));
}

// The part of an f32 tensor that belongs to the shard.
std::span<std::byte> part_of(std::span<std::byte> whole, const Shard& shard) {
  const auto elements = static_cast<int64_t>(whole.size() / sizeof(float));
  return whole.subspan(static_cast<size_t>(shard.begin(elements)) * sizeof(float),
                       static_cast<size_t>(shard.size(elements)) * sizeof(float));
}

}  // namespace

Checkpoint::Checkpoint(const TrainSettings& settings, TrainingGraph& net, const Dataset& training,
                       Variables& variables, Collective* group)
    : settings_(settings), net_(net), training_(training), variables_(variables), group_(group) {
  std::map<std::string, TensorSpec> specs;
  for (const Value& parameter : net.parameters) {
    weights_.push_back({parameter, parameter.spec()});
    specs[parameter.name()] = parameter.spec();
  }
  const Shard shard = settings.shard_optimizer ? Shard{rank(), settings.replicas} : Shard{};
  const std::vector<MemoryCategory> categories = categorize(net.graph);
  for (const int id : net.graph.variables()) {
    if (categories[static_cast<size_t>(id)] != MemoryCategory::kOptimizerState) continue;
    const std::string& name = net.graph.value(id).name;  // "<variable>/m", see add_updates
    states_.push_back({{&net.graph, id}, specs.at(name.substr(0, name.rfind('/'))), shard});
  }
}

// Other settings change the weights by rounding only, or not at all.
const Fingerprint& Checkpoint::fingerprint() {
  if (!fingerprint_.empty()) return fingerprint_;
  fingerprint_ = {{"seed", fmt::format("{}", settings_.seed)},
                  {"batch", fmt::format("{}", settings_.batch)},
                  {"optimizer", settings_.optimizer},
                  {"learning rate", fmt::format("{}", settings_.learning_rate)},
                  {"schedule", std::string(to_string(settings_.schedule))},
                  {"loss scale", fmt::format("{}", settings_.loss_scale)},
                  {"steps of an epoch", fmt::format("{}", steps_per_epoch(settings_, training_.count))},
                  {"training data", checksum(training_.images) + "/" + checksum(training_.labels)}};
  // The other schedules depend on the number of epochs.
  if (settings_.schedule != Schedule::kConstant) fingerprint_["epochs"] = fmt::format("{}", settings_.epochs);
  return fingerprint_;
}

void Checkpoint::require(const std::string& path, const std::vector<Saved>& wanted, const Tensors& tensors) {
  for (const Saved& saved : wanted) {
    const std::string name = saved.variable.name();
    const auto found = tensors.find(name);
    if (found == tensors.end()) throw InvalidArgument(fmt::format("{}: no tensor {}", path, name));
    if (found->second.spec == saved.whole) continue;
    throw InvalidArgument(fmt::format("{}: {} is {}, but the net needs {}", path, name,
                                      to_string(found->second.spec), to_string(saved.whole)));
  }
}

Checkpoint::Start Checkpoint::read(Tensors& tensors) {
  const bool resumes = !settings_.resume.empty();
  const std::string& path = resumes ? settings_.resume : settings_.load_weights;
  if (path.empty()) return {};
  TensorFile file = load_safetensors(path);
  for (NamedTensor& tensor : file.tensors) tensors.emplace(tensor.name, std::move(tensor));
  require(path, weights_, tensors);
  const auto format = file.metadata.find(kFormat);
  const bool is_training = format != file.metadata.end() && format->second == kTraining;
  if (!resumes && is_training) return {};
  if (!resumes) {
    for (const auto& entry : tensors) {
      const std::string& name = entry.first;
      if (std::ranges::none_of(weights_, [&](const Saved& saved) { return saved.variable.name() == name; })) {
        throw InvalidArgument(fmt::format("{}: the net has no variable {}", path, name));
      }
    }
    return {};
  }
  if (!is_training) {
    throw InvalidArgument(fmt::format("{}: holds weights but no training; use --load", path));
  }
  const std::string differences = list_differences(fingerprint(), file.metadata, "in the file");
  if (!differences.empty()) {
    throw InvalidArgument(fmt::format("{}: cannot resume with other settings: {}", path, differences));
  }
  require(path, states_, tensors);
  const Position position{number_of<int32_t>(path, file.metadata, kStepsDone),  // as devices count
                          number_of<double>(path, file.metadata, kLossSum)};
  if (position.steps < 1)
    throw InvalidArgument(fmt::format("{}: claims {} steps done", path, position.steps));
  return {position, true};
}

Position Checkpoint::load() {
  Tensors tensors;
  Start start;
  if (rank() == 0) start = read(tensors);
  if (group_ != nullptr) broadcast_value(*group_, start, 0);
  const auto set = [&](const Saved& saved) {
    const auto found = tensors.find(saved.variable.name());
    if (found == tensors.end() && group_ == nullptr) return;
    std::vector<std::byte> bytes(static_cast<size_t>(saved.whole.bytes()));
    if (rank() == 0) bytes = found == tensors.end() ? variables_.read(saved.variable) : found->second.data;
    if (group_ != nullptr) group_->broadcast(bytes, 0);
    variables_.write(saved.variable, part_of(bytes, saved.shard));
  };
  for (const Saved& saved : weights_) set(saved);
  if (!start.resumes) return {};
  for (const Saved& saved : states_) set(saved);
  const auto steps = static_cast<int32_t>(start.position.steps);
  for (const Value& counter : net_.counters()) {
    variables_.write(counter, std::as_bytes(std::span(&steps, 1)));
  }
  return start.position;
}

std::vector<std::byte> Checkpoint::whole_of(const Saved& saved) const {
  if (saved.shard.is_whole()) return variables_.read(saved.variable);
  std::vector<std::byte> whole(static_cast<size_t>(saved.whole.bytes()));
  std::ranges::copy(variables_.read(saved.variable), part_of(whole, saved.shard).begin());
  for (int owner = 0; owner < saved.shard.of; ++owner) {
    const std::span<std::byte> part = part_of(whole, {owner, saved.shard.of});
    if (!part.empty()) group_->broadcast(part, owner);
  }
  return whole;
}

void Checkpoint::save(const Position& position) {
  std::vector<NamedTensor> tensors;
  for (const std::vector<Saved>* all : {&weights_, &states_}) {
    for (const Saved& saved : *all) {
      if (rank() != 0 && saved.shard.is_whole()) continue;
      tensors.push_back({saved.variable.name(), saved.whole, whole_of(saved)});
    }
  }
  if (rank() != 0) return;
  Fingerprint metadata = fingerprint();
  metadata[kFormat] = kTraining;
  metadata[kStepsDone] = fmt::format("{}", position.steps);
  metadata[kLossSum] = fmt::format("{}", position.loss_sum);
  save_safetensors(settings_.save, tensors, metadata);
}

}  // namespace headroom
