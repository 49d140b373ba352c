// The options of commands that are given a program and trace it. Knows no trace.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/app/option_set.h"
#include "tools/trace/program.h"

namespace headroom {

inline constexpr const char* kBatchOptionHelp =
    "The option of a command that is its batch, such as --batch-size, if it cannot be found out";

inline constexpr const char* kComputeHelp =
    "Which values of a model that decide a size or a branch are computed on the CPU: what takes at most half "
    "of its free memory and ten minutes (auto), none or all";

inline constexpr const char* kRanksHelp =
    "Number of processes that train together; of a command the one that takes most is traced (default: as "
    "torchrun says)";
inline constexpr int64_t kMostRanks = 1 << 16;

struct TracingOptions {
  std::optional<int64_t> batch;  // argument of the program's function; nullopt: no argument
  int64_t steps = ProgramRequest().steps;
  std::string device = ProgramRequest().device;
  std::string net = {};  // instead of a program; see add_net_option()
  ProgramOptions program = {};
};

void add_tracing_options(OptionSet& set, TracingOptions& options);
// Adds --batch-option, --compute and --ranks.
void add_program_options(OptionSet& set, ProgramOptions& options);
// Adds the options without --device, for commands that use the device for more than tracing.
void add_batch_and_steps(OptionSet& set, TracingOptions& options);

ProgramRequest program_request(const std::string& program, const TracingOptions& options);

// The options that differ from their defaults, as words of a command line; none where `input` is no program.
std::vector<std::string> to_words(const std::string& input, const TracingOptions& options);

// The same command on that input, or on the net of the options, which stands in its place.
std::string command_on(const std::string& command, const std::vector<std::string>& inputs,
                       const TracingOptions& options, const std::vector<std::string>& more = {});

// Throws InvalidArgument for a Python file without a function, and if none of the inputs is a program and the
// command line has one of these options, which apply only to programs, or to nets if it is --batch. In the
// environment and in files they are for other commands.
void check_tracing_options(const OptionSet& set, const std::vector<std::string>& inputs,
                           std::initializer_list<std::string_view> names);

}  // namespace headroom
