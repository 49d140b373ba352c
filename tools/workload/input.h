// The input of a command: a recorded trace, a memory snapshot, or a PyTorch program, which is traced.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "runtime/app/option_set.h"
#include "tools/trace/program.h"
#include "tools/trace/tracing_options.h"
#include "tools/workload/recorded_failure.h"
#include "tools/workload/workload.h"
#include "trace/read_trace.h"
#include "trace/trace.h"

namespace headroom {

inline constexpr const char* kInputHelp =
    "A trace, a PyTorch memory snapshot, an ONNX model, or a PyTorch program: FILE.py:FUNCTION, or its "
    "command "
    "after --";

// Throws InvalidArgument if the command line names a net or a model, or how its step is planned, for commands
// that answer one question.
void refuse_net_beside_input(const OptionSet& set);
// Does so for an option as a word, "--plan=packed".
void refuse_net_setting(std::string_view word);

// If the only input is an ONNX model, it becomes the model of the options. Other inputs have a device of
// their own, so that one that is given as "sim" gets its name. Throws as refuse_net_beside_input does, for a
// model.
void prepare_inputs(const OptionSet& set, std::vector<std::string>& inputs, WorkloadOptions& options);

// All traces of that file, each with the request that it did not survive, see with_failed_request.
std::vector<Trace> read_recordings(const std::string& path, FollowReading follow = {});

// The trace of the device with the largest peak in that file, or of a program with that batch (0: its own) on
// the device of the options. Throws InvalidArgument for what can be neither read nor traced.
Trace read_input(const std::string& text, const WorkloadOptions& options, int64_t batch);

// Returns the request to trace a program for these options; `batch` 0: its own.
ProgramRequest program_request(const std::string& text, const WorkloadOptions& options, int64_t batch);

// Adds --net, for commands that show a trace: that of a net's step may stand in place of a recording.
void add_net_option(OptionSet& set, TracingOptions& options);
// The trace of a step of the net of the options with their batch, or its usual one.
Trace trace_of_net(const TracingOptions& options);
// Throws InvalidArgument for an input and a net on the command line, and as check_tracing_options does. A net
// that the environment or a file names is for other commands if there is an input.
void check_inputs(const OptionSet& set, const std::vector<std::string>& inputs, TracingOptions& options,
                  std::initializer_list<std::string_view> names);

// All traces of that file, or the one of a program; shows the progress of that.
std::vector<Trace> read_inputs(const std::string& text, const TracingOptions& traced, Progress& progress);

// If the command line names no device and no strategy, sets those that the trace names, or the defaults for a
// program without a trace. Prints the note below.
void use_recorded_setup(const OptionSet& set, const Trace& trace, RuntimeOptions& options);

// A line on stderr where a program was traced for another card than the one that a person names: the traced
// kernels and workspaces are those of that card.
void print_traced_device_note(const OptionSet& set, const Trace& trace, const RuntimeOptions& options);

// Sets the smallest possible limit of the recorded program as the limit of the options, if the command line
// names neither a device nor a limit. It is lower if a replay would have room for the failed request. Returns
// the facts about it.
std::optional<RecordedLimit> use_recorded_limit(const OptionSet& set, const Trace& trace,
                                                RuntimeOptions& options);

// read_input for the only argument of a command, and use_recorded_setup. Throws InvalidArgument for several
// arguments, and for a batch or steps of what is no program.
Trace read_one_input(const OptionSet& set, const std::vector<std::string>& inputs, WorkloadOptions& options);

// The command on an input with the changed options. `batch` stands in it whatever the usual batch of nets is,
// which is not that of programs; 0: none.
std::string command_on_input(const std::string& command, const std::string& input, WorkloadOptions options,
                             int64_t batch);

}  // namespace headroom
