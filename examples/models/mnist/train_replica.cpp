#include "examples/models/mnist/train_replica.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <future>
#include <iterator>
#include <sstream>

#include "answers/lower.h"
#include "answers/play.h"
#include "answers/step_kernels.h"
#include "base/errors.h"
#include "examples/models/mnist/checkpoint.h"
#include "examples/models/mnist/feed.h"
#include "runtime/app/replicas.h"
#include "runtime/graph/categories.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double seconds_since_boot() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Field 22 of /proc/self/stat (proc(5)): clock ticks from boot to the process' start. The second field, the
// program's name in parentheses, may contain blanks.
std::optional<double> read_process_start() {
  std::ifstream file("/proc/self/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  double ticks = 0;
  if (!(std::istringstream(field) >> ticks) || ticks <= 0) return {};
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Seconds since the kernel started this process, to 10 ms, with dynamic linking. If /proc is missing, since
// the first call.
double seconds_since_process_start() {
  static const double start = read_process_start().value_or(seconds_since_boot());
  return seconds_since_boot() - start;
}

class Training {
 public:
  Training(const TrainSettings& settings, TrainingGraph& graph, const Dataset& training, const Dataset& test,
           Collective* group, const std::function<void(const StepReport&)>& on_step, TrainResult& result)
      : settings_(settings),
        net_(graph),
        training_(training),
        test_(test),
        group_(group),
        on_step_(on_step),
        result_(result) {}

  void run(Runtime& runtime, const ReplicaDevices& of_replica) {
    const std::vector<Targets> targets = {net_.training_targets(), net_.test_targets()};
    const std::shared_ptr<const Graph> not_owned(std::shared_ptr<const Graph>(), &net_.graph);
    const TrainingSizes sizes{training_.count, test_.count, steps_per_epoch(settings_, training_.count)};
    const Program program{not_owned, targets, {}, part_of(settings_, sizes, rank())};
    const auto planned = plan_ahead(program, runtime.options());

    const ReplicaPlace here = settle_replica(net_.graph, runtime, of_replica, group_);
    const DeviceSet& devices = here.devices;
    for (const PlacedDevice& device : devices.all()) {
      result_.devices.push_back({{}, parse_device_name(device.name).short_text(), {}});
    }
    for (const auto& collective : here.collectives) collectives_.push_back(collective.get());
    if (group_ != nullptr) result_.sums = collectives_.front()->transport();
    KernelSettings kernel_settings;
    kernel_settings.math = settings_.math;
    kernel_settings.library_only = !settings_.fused;
    kernel_settings.deterministic = settings_.deterministic;
    const auto made =
        make_step_kernels(net_.graph, program, devices, kernel_settings, runtime.options(), planned);
    const auto& kernels = made.first;
    if (made.second) result_.notes = made.second->notes;
    const auto plan = [&](const Targets& of_session) {
      return make_plan(net_.graph, of_session, settings_.plan, kernels->workspace_bytes());
    };
    const Plan train_plan = plan(targets[0]), test_plan = plan(targets[1]);
    predict(train_plan, test_plan, runtime, of_replica);

    Variables variables(net_.graph, devices);
    Checkpoint checkpoint(settings_, net_, training_, variables, group_);
    position_ = checkpoint.load();
    const Plan* const plans[] = {&train_plan, &test_plan};
    const SharedArenas arenas(plans, variables);
    Session train_session(net_.graph, train_plan, kernels, variables, &arenas);
    Session test_session(net_.graph, test_plan, kernels, variables, &arenas);
    // Declared after the sessions: it may have a thread that feeds them, also when a step throws.
    const std::unique_ptr<Feed> feed =
        make_feed(settings_.data_on, {net_, training_, test_, settings_.batch_of_replica(),
                                      settings_.loader_depth, variables, train_session, test_session});
    feed_ = feed.get();
    checkpoint_ = &checkpoint;
    start_ = Clock::now();
    run_epochs();

    result_.training_seconds = seconds_since(start_);
    result_.steps = static_cast<int64_t>(step_seconds_.size());
    result_.steps_done = position_.steps;
    if (result_.steps > 0) {
      const auto median = step_seconds_.begin() + static_cast<long>(step_seconds_.size() / 2);
      std::nth_element(step_seconds_.begin(), median, step_seconds_.end());
      result_.seconds_per_step = *median;
      result_.images_per_second = static_cast<double>(settings_.batch) / *median;
    }
    result_.weights_checksum = fmt::format("{:016x}", variables.checksum(net_.parameters));
    result_.optimizer_bytes = variable_bytes(net_.graph, MemoryCategory::kOptimizerState);
    save();
    if (group_ != nullptr) group_->barrier();  // returns once the weights are saved
  }

 private:
  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }

  void save() {
    if (settings_.save.empty() || saved_steps_ == position_.steps) return;
    checkpoint_->save(position_);
    saved_steps_ = position_.steps;
  }

  // A run that will fail has no predicted peak; its own error says why.
  void predict(const Plan& train_plan, const Plan& test_plan, const Runtime& runtime,
               const ReplicaDevices& of_replica) {
    RunSetup setup = runtime.setup();
    setup.strategy = runtime.strategy();
    const std::shared_ptr<const Graph> graph(std::shared_ptr<const Graph>(), &net_.graph);
    const Program program{
        .graph = graph,
        .targets = {},
        .plans = std::make_shared<const std::vector<Plan>>(std::vector{train_plan, test_plan})};
    const Prediction played = play(lower(program, of_replica), setup);
    for (size_t i = 0; played.fits && i < played.devices.size(); ++i) {
      result_.devices[i].predicted_peak_bytes = played.devices[i].statistics.allocated.peak;
    }
  }

  void run_epochs() {
    const auto order_of = [this](int epoch) { return epoch_order(training_.count, settings_.seed, epoch); };
    const int64_t steps = steps_per_epoch(settings_, training_.count);
    const int64_t first_epoch = position_.steps / steps + 1;
    if (first_epoch > settings_.epochs) {  // nothing left to train, but to test
      result_.final_loss = position_.loss_sum / static_cast<double>((position_.steps - 1) % steps + 1);
      result_.test_accuracy = evaluate();
      return;
    }
    auto epoch = static_cast<int>(first_epoch);
    std::vector<int64_t> order = order_of(epoch);
    for (; epoch <= settings_.epochs; ++epoch) {
      const int64_t before = (epoch - 1) * steps, first = position_.steps - before;
      std::vector<float> rates;
      for (int64_t step = before; step < before + steps; ++step)
        rates.push_back(rate_at(settings_, step, settings_.epochs * steps));
      if (first == 0) position_.loss_sum = 0;
      feed_->begin_epoch(share_of(order, steps), rates, first);
      // Shuffled while the device works.
      std::future<std::vector<int64_t>> next;
      if (epoch < settings_.epochs) next = std::async(std::launch::async, order_of, epoch + 1);
      if (!run_epoch(epoch, first, rates)) return;
      if (next.valid()) order = next.get();
    }
  }

  // The replica's share of each batch, in the order of its steps.
  std::vector<int64_t> share_of(const std::vector<int64_t>& order, int64_t steps) const {
    if (group_ == nullptr) return order;
    const int64_t batch = settings_.batch_of_replica();
    std::vector<int64_t> share;
    for (int64_t step = 0; step < steps; ++step) {
      const auto first = order.begin() + step * settings_.batch + rank() * batch;
      share.insert(share.end(), first, first + batch);
    }
    return share;
  }

  // Runs the epoch from step `first` on. Returns false when the target is reached, or a signal has come.
  bool run_epoch(int epoch, int64_t first, std::span<const float> rates) {
    const auto steps = static_cast<int64_t>(rates.size());
    const auto before_next = [&](int64_t every, int64_t done) {
      return every > 0 ? every - done % every : steps;
    };
    for (int64_t done = first; done < steps;) {
      const int64_t before_evaluation = before_next(settings_.evaluate_every, done);
      const int64_t before_checkpoint = before_next(settings_.checkpoint_every, position_.steps);
      const int64_t count = std::min({piece_, before_evaluation, before_checkpoint, steps - done});
      const std::vector<StepResult> results = run_piece(done, count);
      double loss_sum = position_.loss_sum;
      for (const StepResult& step : results) position_.loss_sum += static_cast<double>(step.loss);
      position_.steps += count;
      if (settings_.checkpoint_every > 0 && count == before_checkpoint) save();
      const bool evaluates = count == before_evaluation || done + count == steps;
      const double seconds = seconds_since(start_);
      std::optional<double> test_accuracy;
      if (evaluates) test_accuracy = result_.test_accuracy = evaluate();
      const bool reached =
          evaluates && settings_.target_accuracy && *test_accuracy >= *settings_.target_accuracy;
      if (reached) result_.seconds_to_target = seconds_since_process_start();
      for (const StepResult& step : results) {
        const bool is_last = &step == &results.back();
        const float rate = rates[static_cast<size_t>(done++)];
        loss_sum += static_cast<double>(step.loss);
        result_.losses.push_back(step.loss);
        const double mean_loss = loss_sum / static_cast<double>(done);
        if (on_step_ && rank() == 0)
          on_step_({epoch, done, steps, step.loss, step.accuracy, rate, mean_loss, seconds,
                    is_last ? test_accuracy : std::nullopt});
      }
      result_.final_loss = loss_sum / static_cast<double>(done);
      if (reached || result_.end_signal != 0) return false;
    }
    return true;
  }

  // Runs several steps at once, as many as take about kPieceSeconds: the user sees progress, and an epoch of
  // short steps is one piece.
  std::vector<StepResult> run_piece(int64_t first, int64_t count) {
    constexpr double kPieceSeconds = 0.1;
    const auto before = Clock::now();
    for (DeviceCollective* const collective : collectives_)
      collective->set_deadline(before + settings_.collective_timeout);
    std::vector<StepResult> results = feed_->train(first, count);
    double seconds = seconds_since(before);
    if (group_ != nullptr) require_summed();
    int signal = settings_.end_signals == nullptr ? 0 : settings_.end_signals->arrived();
    if (group_ != nullptr) average(results, seconds, signal);
    result_.end_signal = signal;
    step_seconds_.insert(step_seconds_.end(), static_cast<size_t>(count),
                         seconds / static_cast<double>(count));
    if (count == piece_ && 2 * seconds < kPieceSeconds) piece_ *= 2;
    return results;
  }

  // Throws CollectiveError if the GPUs have not finished their sums.
  void require_summed() {
    for (DeviceCollective* const collective : collectives_) collective->set_deadline({});
    try {
      for (DeviceCollective* const collective : collectives_) collective->check();
    } catch (const CollectiveError&) {
      group_->barrier();  // names the replica that is late or dead, if it can
      throw;
    }
  }

  // Averages losses, accuracies and the time over the replicas, so that all choose the same next piece; a
  // signal to one of them ends all at this step.
  void average(std::vector<StepResult>& results, double& seconds, int& signal) {
    std::vector<float> sums;
    for (const StepResult& step : results) sums.insert(sums.end(), {step.loss, step.accuracy});
    sums.push_back(static_cast<float>(seconds));
    sums.push_back(signal == SIGINT ? 1.0f : 0.0f);
    sums.push_back(signal == SIGTERM ? 1.0f : 0.0f);
    group_->all_reduce_sum(sums);
    signal = sums.back() > 0 ? SIGTERM : sums[sums.size() - 2] > 0 ? SIGINT : 0;
    sums.resize(sums.size() - 2);
    const auto mean = [&](size_t i) { return sums[i] / static_cast<float>(group_->size()); };
    for (size_t i = 0; i < results.size(); ++i) results[i] = {mean(2 * i), mean(2 * i + 1)};
    seconds = static_cast<double>(mean(sums.size() - 1));
  }

  // The share of test images that are classified correctly.
  double evaluate() {
    std::array<float, Dataset::kClasses * Dataset::kClasses> counts{};  // exact up to 16 million images
    const std::vector<int32_t> answers = feed_->predict();
    for (size_t i = 0; i < answers.size(); ++i)
      ++counts[test_.labels[i] * Dataset::kClasses + static_cast<size_t>(answers[i])];
    if (group_ != nullptr) group_->all_reduce_sum(counts);
    int64_t right = 0, all = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const size_t label = i / Dataset::kClasses, answer = i % Dataset::kClasses;
      const auto count = static_cast<int64_t>(counts[i]);
      result_.confusion[label][answer] = count;
      all += count;
      if (label == answer) right += count;
    }
    return static_cast<double>(right) / static_cast<double>(all);
  }

  const TrainSettings& settings_;
  TrainingGraph& net_;
  const Dataset &training_, &test_;
  Collective* const group_;
  const std::function<void(const StepReport&)>& on_step_;
  TrainResult& result_;
  std::vector<DeviceCollective*> collectives_;  // by device; none for a single replica
  Checkpoint* checkpoint_ = nullptr;
  Feed* feed_ = nullptr;
  Position position_;
  int64_t saved_steps_ = -1;  // position_.steps at the last save
  Clock::time_point start_;
  int64_t piece_ = 1;  // steps at once
  std::vector<double> step_seconds_;
};

// The test images of replica `rank`.
Dataset share_of_test(const Dataset& test, int rank, int replicas) {
  const int64_t begin = test.count * rank / replicas, end = test.count * (rank + 1) / replicas;
  const auto part = [&](const std::vector<uint8_t>& all, int64_t bytes) {
    return std::vector<uint8_t>(all.begin() + begin * bytes, all.begin() + end * bytes);
  };
  return {end - begin, part(test.images, Dataset::kImageBytes), part(test.labels, 1)};
}

}  // namespace

void train_replica(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                   Runtime& runtime, const ReplicaDevices& devices, Collective* group,
                   const std::function<void(const StepReport&)>& on_step, TrainResult& result) {
  const int rank = group == nullptr ? 0 : group->rank();
  const Dataset share = group == nullptr ? Dataset{} : share_of_test(test, rank, settings.replicas);
  const Dataset& own_test = group == nullptr ? test : share;
  TrainingGraph graph(settings, {training.count, own_test.count, steps_per_epoch(settings, training.count)},
                      rank);
  Training(settings, graph, training, own_test, group, on_step, result).run(runtime, devices);
}

}  // namespace headroom
