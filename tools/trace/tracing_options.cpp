#include "tools/trace/tracing_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/errors.h"
#include "base/text.h"
#include "tools/trace/command.h"

namespace headroom {
namespace {

constexpr int64_t kMostSteps = 1000;

}  // namespace

void add_program_options(OptionSet& set, ProgramOptions& options) {
  set.begin_group("PyTorch program");
  set.add_option_name("batch-option", kBatchOptionHelp, &options.batch_option);
  set.add_choice("compute", kComputeHelp, &options.compute,
                 {std::begin(kComputeModes), std::end(kComputeModes)});
  set.add_integer("ranks", kRanksHelp, &options.ranks, 0, kMostRanks);
  set.begin_group();
}

void add_batch_and_steps(OptionSet& set, TracingOptions& options) {
  set.add_integer("batch", "Batch size of the program (default: its own)", &options.batch, 1);
  add_program_options(set, options.program);
  set.add_integer("steps", "Number of steps to trace", &options.steps, 1, kMostSteps);
}

void add_tracing_options(OptionSet& set, TracingOptions& options) {
  add_batch_and_steps(set, options);
  set.add_text("device", "GPU to trace the program for, such as h200 or rtx-3090", &options.device);
}

ProgramRequest program_request(const std::string& program, const TracingOptions& options) {
  return {.program = program,
          .batch = options.batch,
          .steps = options.steps,
          .device = options.device,
          .options = options.program};
}

std::vector<std::string> to_words(const std::string& input, const TracingOptions& options) {
  if (!is_program(input)) return {};
  TracingOptions copy;
  OptionSet set({}, {});
  add_tracing_options(set, copy);
  copy = options;
  return set.words(OptionSet::Words::kChanged);
}

std::string command_on(const std::string& command, const std::vector<std::string>& inputs,
                       const TracingOptions& options, const std::vector<std::string>& more) {
  std::vector<std::string> words;
  if (inputs.empty()) {
    words = {"--net", options.net};
    if (options.batch) words.insert(words.end(), {"--batch", std::to_string(*options.batch)});
  } else {
    words = to_words(inputs.front(), options);
  }
  words.insert(words.end(), more.begin(), more.end());
  return inputs.empty() ? command_line(command, words) : command_on(command, inputs.front(), words);
}

void check_tracing_options(const OptionSet& set, const std::vector<std::string>& inputs,
                           std::initializer_list<std::string_view> names) {
  for (const std::string& input : inputs) require_function(input);
  if (std::ranges::any_of(inputs, is_program)) return;
  for (const std::string_view name : names) {
    if (!set.is_on_command_line(name) || (inputs.empty() && name == "batch")) continue;
    throw InvalidArgument(fmt::format("--{} is for programs, as train.py:make_step; {}: leave it out", name,
                                      inputs.empty()
                                          ? "a net repeats its step"
                                          : printable(inputs.front(), 200) + " is recorded as it ran"));
  }
}

}  // namespace headroom
