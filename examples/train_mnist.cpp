// Trains a conv net on handwritten digits, on any device under any memory strategy.
// Try: train_mnist --device sim --strategy grab-all

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "answers/solve.h"
#include "base/end_signals.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "base/text.h"
#include "examples/models/mnist/fingerprint.h"
#include "examples/models/mnist/rank_job.h"
#include "examples/models/mnist/report.h"
#include "examples/models/mnist/train_options.h"
#include "examples/models/mnist/trainer.h"
#include "examples/models/mnist/training_graph.h"
#include "runtime/app/replicas.h"
#include "runtime/app/run_main.h"
#include "runtime/app/runtime.h"

namespace headroom {
namespace {

struct Options {
  RuntimeOptions runtime;
  StepOptions step;
  ReplicaOptions replicas;
  Schedule schedule = Schedule::kCosine;
  std::string data, load, resume, save, log;
  int64_t epochs = 5, evaluate_every = 0, checkpoint_every = 0;
  double learning_rate = 1e-3, collective_timeout = std::chrono::duration<double>(kCollectiveTimeout).count();
  std::optional<double> loss_scale, target_accuracy;
  bool deterministic = true, json = false, verbose = false;
};

void add_options(OptionSet& set, Options& o) {
  set.add_text("data", "Folder with the four IDX files of MNIST, gzipped or not (default: generated digits)",
               &o.data);
  add_step_options(set, o.step);
  add_replica_options(set, o.replicas);
  set.add_number("collective-timeout", "Seconds that a replica waits for the others", &o.collective_timeout,
                 0.001, 86400);
  set.add_integer("epochs", "Passes over the data", &o.epochs, 1, 1000000);
  set.add_number("learning-rate", "Initial learning rate; with one-cycle, the peak", &o.learning_rate, 1e-12,
                 1e3);
  set.add_choice("schedule", "Learning rate schedule; one-cycle rises for a quarter of the steps",
                 &o.schedule);
  set.add_integer("evaluate-every", "Steps between evaluations; 0: after each epoch", &o.evaluate_every, 0);
  set.add_number("target-accuracy", "Stop at this test accuracy; exit with 5 if it is not reached",
                 &o.target_accuracy, 0, 1);
  set.add_number("loss-scale", "Loss scaling factor; default: 1024 with --math f16, otherwise 1",
                 &o.loss_scale, 1e-6, 1e12);
  set.add_switch("deterministic", "Use only kernels that give the same bits on every run", &o.deterministic);
  set.add_text("load", "Start from the weights in this safetensors file", &o.load);
  set.add_text("resume", "Resume the training in this file, written by --save", &o.resume);
  set.add_text("save", "Write weights, optimizer state and progress to this safetensors file", &o.save);
  set.add_integer("checkpoint-every", "Steps between writes of --save; 0: only at the end",
                  &o.checkpoint_every, 0);
  set.add_text("log", "Write one CSV line per step to this file", &o.log);
  set.add_switch("verbose", "Also print the confusion matrix", &o.verbose);
  set.add_switch("json", "Print the result as one line of JSON, everything else to stderr", &o.json);
  add_runtime_options(set, o.runtime);
}

TrainSettings settings_of(const Options& o) {
  TrainSettings settings;
  settings.epochs = static_cast<int>(o.epochs);
  settings.batch = o.step.batch;
  settings.steps = o.step.steps;
  settings.optimizer = o.step.optimizer;
  settings.learning_rate = static_cast<float>(o.learning_rate);
  settings.schedule = o.schedule;
  settings.seed = static_cast<uint64_t>(o.runtime.seed);
  settings.plan = o.runtime.plan;
  settings.fused = o.step.fused();
  settings.data_on = o.step.data_on;
  settings.loader_depth = o.step.loader_depth;
  settings.math = o.step.math;
  settings.deterministic = o.deterministic;
  settings.loss_scale = o.loss_scale ? static_cast<float>(*o.loss_scale) : usual_loss_scale(settings.math);
  settings.evaluate_every = o.evaluate_every;
  settings.target_accuracy = o.target_accuracy;
  settings.load_weights = o.load;
  settings.resume = o.resume;
  if (!o.load.empty() && !o.resume.empty()) {
    throw InvalidArgument(
        "--load and --resume exclude each other: --load starts a new training, --resume continues one");
  }
  settings.save = o.save;
  settings.checkpoint_every = o.checkpoint_every;
  if (o.checkpoint_every > 0 && o.save.empty()) {
    throw InvalidArgument("--checkpoint-every needs --save FILE");
  }
  settings.placed = parse_scopes_on_devices(o.runtime.place);
  settings.replicas = o.replicas.count();
  settings.shard_optimizer = o.replicas.shard_optimizer;
  settings.buckets = o.replicas.buckets();
  settings.collective_timeout = std::chrono::milliseconds(std::llround(1e3 * o.collective_timeout));
  return settings;
}

void require_usable_log(const Options& o) {
  if (o.log.empty()) return;
  for (const std::string& weights : {o.load, o.resume, o.save}) {
    if (!weights.empty() && is_same_file(o.log, weights)) {
      throw InvalidArgument(fmt::format("{}: cannot hold both the log and the weights", o.log));
    }
  }
  // Weights are written to a temporary file that then replaces it; a log is written in place.
  if (!std::filesystem::is_regular_file(o.log)) return require_writable(o.log);
  if (!std::ofstream(o.log, std::ios::app))
    throw InvalidArgument(fmt::format("{}: cannot be written", o.log));
}

std::string replicas_text(const ReplicaOptions& replicas) {
  if (replicas.replicas == 1) return {};
  return fmt::format(", {} replicas{}", replicas.replicas,
                     replicas.shard_optimizer ? " with the optimizer sharded" : "");
}

// The CSV log, the progress bar and the line per epoch.
class TrainingOutput {
 public:
  TrainingOutput(const Options& options, const std::string& data, FILE* out)
      : head_(fmt::format("{}; device {}, strategy {}, {} plan{}\n", data, options.runtime.device,
                          options.runtime.strategy, to_string(options.runtime.plan),
                          replicas_text(options.replicas))),
        log_path_(options.log),
        epochs_(options.epochs),
        out_(out),
        bar_(isatty(STDERR_FILENO) != 0),
        resumes_(!options.resume.empty()) {}

  void operator()(const StepReport& r) {
    if (out_ == nullptr) return;
    if (!std::exchange(has_begun_, true)) begin();
    if (log_.is_open()) {
      // Flushed and appended line by line: a killed program leaves whole lines.
      log_ << fmt::format("{},{},{},{},{},{:.6f},{}\n", r.epoch, r.step, r.loss, r.accuracy, r.learning_rate,
                          r.seconds, r.test_accuracy ? fmt::format("{}", *r.test_accuracy) : "")
           << std::flush;
    }
    ++steps_done_;
    if (bar_ && (r.step % 10 == 0 || r.step == r.steps)) {
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
      const auto left = static_cast<double>((epochs_ - r.epoch + 1) * r.steps - r.step);
      const ProgressState state{.done = static_cast<double>(steps_done_),
                                .total = static_cast<double>(steps_done_) + left,
                                .seconds = passed.count(),
                                .unit = "steps",
                                .doing = fmt::format("epoch {}/{}, loss {:.3f}", r.epoch, epochs_, r.loss)};
      fmt::print(stderr, "\r\033[K{}", progress_line(state, Terminal(stderr).width()));
      if (r.step == r.steps || r.test_accuracy) fmt::print(stderr, "\r\033[K");
    }
    if (!r.test_accuracy) return;
    const std::string step = r.step == r.steps ? "" : fmt::format(", step {}/{}", r.step, r.steps);
    fmt::print(out_, "epoch {}/{}{}: loss {:.4f}, test accuracy {:.2f} %, {:.1f} s\n", r.epoch, epochs_, step,
               r.mean_loss, 100 * *r.test_accuracy, r.seconds);
    std::fflush(out_);
  }

  void finish() {
    if (!log_.is_open()) return;
    log_.close();
    if (!log_) throw Error(fmt::format("log {}: could not be written completely", log_path_));
  }

 private:
  // Called once training has begun, so that a refused setting prints one line and leaves an old log
  // unchanged. A resumed training appends to its log.
  void begin() {
    fmt::print(out_, "{}", head_);
    if (log_path_.empty()) return;
    std::error_code error;
    const bool is_file = std::filesystem::is_regular_file(log_path_);
    const bool appends = resumes_ && is_file && std::filesystem::file_size(log_path_, error) > 0;
    if (is_file && !appends) std::filesystem::resize_file(log_path_, 0, error);
    log_.open(log_path_, std::ios::app);
    if (error || !log_) throw InvalidArgument(fmt::format("log {}: cannot be written", log_path_));
    if (appends) return;
    log_ << "epoch,step,loss,accuracy,learning_rate,seconds,test_accuracy\n" << std::flush;
  }

  std::string head_, log_path_;
  int64_t epochs_;
  FILE* out_;
  bool bar_;
  int64_t steps_done_ = 0;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::ofstream log_;
  bool resumes_, has_begun_ = false;
};

// Makes this process one replica, on the device of its rank.
void become_rank(Options& options, RankJob& job) {
  if (options.replicas.replicas != 1 && options.replicas.replicas != job.size()) {
    throw InvalidArgument(
        fmt::format("--replicas {}: each of the {} ranks is one replica; leave the option out",
                    options.replicas.replicas, job.size()));
  }
  if (!options.runtime.place.empty()) {
    throw InvalidArgument(
        "place: each rank of mpirun is a replica on one device; without mpirun --replicas spreads each of "
        "several over devices of this host");
  }
  options.replicas.replicas = job.size();
  const DeviceName first = default_device(options.runtime);
  const size_t devices =
      first.type == DeviceType::kGpu ? find_devices(options.runtime).logical.size() : size_t{0};
  if (devices > 0 && first.ordinal == 0) {
    const int device = job.device_of(static_cast<int>(devices));
    const std::optional<DeviceProfile> profile = simulated_profile(options.runtime);
    options.runtime.device = fmt::format("{}:{}", profile ? "sim:" + profile->name : "cuda", device);
  }
  if (!options.runtime.record.empty() && job.rank() != 0) {
    options.runtime.record = record_path_of(options.runtime.record, fmt::format("rank{}", job.rank()));
  }
  job.set_device(default_device(options.runtime).short_text());
  job.set_timeout(std::chrono::milliseconds(std::llround(1e3 * options.collective_timeout)));
}

// Lists everything that must be equal on all ranks: the program, and all options except places and those that
// only rank 0 uses.
Fingerprint fingerprint_of(const OptionSet& set) {
  constexpr std::array kOwn = {"data",   "load",   "resume",          "save", "log",
                               "record", "device", "visible-devices", "json", "verbose"};
  Fingerprint fingerprint;
  std::string* value = nullptr;
  for (const std::string& word : set.words(OptionSet::Words::kAll)) {
    if (!word.starts_with("--")) {
      if (value != nullptr) *value += (value->empty() ? "" : " ") + word;
      continue;
    }
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(2, equals - 2);
    const bool is_own = std::ranges::find(kOwn, name) != kOwn.end();
    value = is_own ? nullptr : &fingerprint[name];
    if (value != nullptr && equals < word.size()) *value = word.substr(equals + 1);
  }
  fingerprint["build"] = program_checksum();
  return fingerprint;
}

Fingerprint fingerprint_of(const TrainingData& data) {
  const auto of = [](const Dataset& set) { return checksum(set.images) + "/" + checksum(set.labels); };
  return {{"training data", of(data.training)}, {"test data", of(data.test)}};
}

// A failure here repeats in train(), which reports it.
void start_early(Runtime& runtime) {
  try {
    runtime.device();
  } catch (const Error&) {
  }
}

// The next command. After a failure it has the smallest change that is proven to fit, if there is one.
// `given` are the options of the command line, before become_rank changed them.
std::string next_command(const TrainResult& result, const Runtime& runtime, const OptionSet& set,
                         Options& options, const Options& given, const RankJob* job) {
  const TriedChange* change = result.report ? result.report->smallest() : nullptr;
  const bool ok = result.outcome == RunOutcome::kOk, packed = options.runtime.plan == PlanMode::kPacked;
  if (ok && !options.save.empty()) {
    return fmt::format("train_mnist --load {}  # start from these weights", shell_word(options.save));
  }
  if (!ok && (change == nullptr || change->kind == ChangeKind::kDevice)) return advice(result, runtime);
  if (ok) {
    options.runtime.plan = PlanMode::kPacked;
    options.runtime.record.clear();  // keeps the recording
  } else {
    options.runtime = change->setup.options;
    options.step.batch = change->setup.batch;
  }
  if (job != nullptr) options.runtime.device = given.runtime.device;
  options.replicas = given.replicas;
  return (job == nullptr ? "" : fmt::format("mpirun -np {} ", job->size())) +
         command_line("train_mnist", set.words(OptionSet::Words::kChanged)) +
         (!ok      ? ""
          : packed ? " --save FILE  # keep the weights"
                   : "  # allocates nothing in a step");
}

void say_which_signal_ended(const TrainResult& result, const Options& options) {
  const std::string kept = options.save.empty()
                               ? "nothing is saved (--save FILE)"
                               : fmt::format("continue with --resume {}", shell_word(options.save));
  print_failure("train_mnist",
                fmt::format("ended by {} after step {}: {}",
                            result.end_signal == SIGINT ? "SIGINT" : "SIGTERM", result.steps_done, kept));
}

// `job` is null unless this process is a rank.
int run(int argc, char** argv, RankJob* job) {
  const bool prints = job == nullptr || job->rank() == 0;
  Options options;
  OptionSet set("train_mnist", "Trains a conv net on handwritten digits under a memory strategy.");
  add_options(set, options);
  std::ostringstream discarded;
  if (!set.parse(argc, argv, prints ? std::cout : discarded)) return kExitDone;
  pack_for_memory(set, options.runtime);
  const std::optional<std::string> lowered = lower_memory_to_free(options.runtime);
  const Options given = options;
  if (job != nullptr) become_rank(options, *job);
  for (const std::string& note : set.notes()) {
    if (prints) fmt::print(stderr, "note: {}\n", note);
  }
  if (prints && lowered) fmt::print(stderr, "note: {}\n", *lowered);
  FILE* out = !prints ? nullptr : options.json ? stderr : stdout;

  record_program(options.runtime, "net", "mnist", options.step.batch);
  TrainSettings settings = settings_of(options);
  if (job != nullptr) job->require_equal(fingerprint_of(set));
  // Loads the data while the GPU starts: each takes a quarter of a second.
  std::future<TrainingData> loading =
      std::async(std::launch::async, load_or_draw, options.data, settings.seed);
  Runtime runtime(options.runtime);
  options.runtime.strategy = runtime.options().strategy;
  if (prints) {
    if (!options.save.empty()) require_writable(options.save);
    require_usable_log(options);
  }
  start_early(runtime);
  const TrainingData data = loading.get();
  if (job != nullptr) job->require_equal(fingerprint_of(data));
  // Asked for JSON, the training itself refuses, and is an object.
  if (options.runtime.memory_bytes && !cuda_ordinal(options.runtime.device) && !options.json) {
    require_fit(training_programs(settings, data.training.count, data.test.count, options.runtime));
  }
  TrainingOutput progress(options, data.origin, out);
  const auto on_step = [&](const StepReport& report) { progress(report); };
  std::optional<EndSignals> signals;
  settings.end_signals = job == nullptr ? &signals.emplace() : &job->answer_signals();
  TrainResult result = job == nullptr ? train(settings, data.training, data.test, runtime, on_step)
                                      : train_rank(settings, data.training, data.test, runtime, job->host(),
                                                   job->group(), on_step);
  for (const std::string& note : result.notes) {
    if (prints) fmt::print(stderr, "note: {}\n", note);
  }
  const bool ok = result.outcome == RunOutcome::kOk;
  if (ok && result.end_signal != 0) {
    if (prints) say_which_signal_ended(result, options);
    return 128 + result.end_signal;
  }
  if (job != nullptr && !ok) {
    job->claim_error_report();
    result.error = fmt::format("{}: {}", job->name(), result.error);
  }
  explain_failure(settings, data.training, data.test, runtime, result);
  if (job != nullptr && result.report) result.report->message = result.error;
  if (prints || !ok) {
    fmt::print(ok ? out : stderr, "{}next: {}\n", report_text(result, options.verbose, set.terminal()),
               next_command(result, runtime, set, options, given, job));
    if (options.json) fmt::print("{}\n", to_json(result));
  }
  progress.finish();
  if (!ok) return exit_code_of(result.outcome);
  return result.target_accuracy && !result.seconds_to_target ? kExitCheckFailed : kExitDone;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  const auto run = [](int count, char** words) {
    return headroom::run_as_rank("train_mnist",
                                 [=](headroom::RankJob* job) { return headroom::run(count, words, job); });
  };
  return headroom::run_main("train_mnist", run, argc, argv);
}
