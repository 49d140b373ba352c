// Training programs in PyTorch, given as "train.py:make_step" or by their command, "-- python train.py":
// traced in a Python process without a GPU, see docs/trace.md. Knows no strategy and no view of a trace.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "trace/trace.h"

namespace headroom {

// The way a program is run to be traced.
struct ProgramOptions {
  std::string batch_option = {};  // the option of a command that is its batch; empty: it is found out
  std::string compute = "auto";   // one of kComputeModes
  int64_t ranks = 0;              // processes that train together; 0: as the command says
};

struct ProgramRequest {
  std::string program;           // "train.py:make_step", or "-- python train.py"
  std::optional<int64_t> batch;  // argument of make_step, or of the command; nullopt: its own
  int64_t steps = 3;
  std::string device = "h200";  // the GPU whose kernels are traced, with or without "sim:"
  ProgramOptions options = {};
};

// How far values of a model are computed on the CPU where a size or a branch depends on them.
inline constexpr std::string_view kComputeModes[] = {"auto", "never", "all"};

// Returns true for "train.py:make_step", a function in a Python file, and for a command, see command.h.
bool is_program(std::string_view text);

// Throws InvalidArgument for a Python file without a function, with those of its functions that could build a
// program: "train.py:make_step".
void require_function(const std::string& text);

// Traces the requests of these steps of the program to its memory strategy; the trace is named after the
// program. Runs `python3 -m headroom trace`, with the Python of python_of(). Prints notes on stderr. Throws
// InvalidArgument with one line, and the program's own line if there is one, for a program that cannot be
// traced, and Error if Python, the package headroom or PyTorch is missing.
Trace trace_program(const ProgramRequest& request);
// Shows its progress on a line that is there already.
Trace trace_program(const ProgramRequest& request, Progress& progress);
// Traces and keeps the trace in a file.
Trace trace_program_to(const ProgramRequest& request, const std::string& path);

// Changes to a program as a person would make them to save memory; python/headroom/torch/changes.py makes
// them.
struct ProgramChanges {
  int64_t passes = 1;  // forward and backward passes of a step, each with a part of the batch
  std::vector<std::string>
      checkpoints;         // modules that torch.utils.checkpoint runs again in the backward pass
  bool offload = false;    // keeps values for the backward pass in host memory: save_on_cpu
  bool fused = false;      // optimizers that update all weights in one kernel
  bool uncached = false;   // Transformers' models without their cache of keys and values
  std::string autocast;    // "bf16" or "f16"
  std::string model;       // the class of the model that has the checkpoints
  int64_t loss_parts = 1;  // of the rows, in which the loss takes the results of the layer `head`
  std::string head;        // its path

  bool operator==(const ProgramChanges&) const = default;
};

// The throughput of a GPU's kernels and copies.
struct ProgramSpeed {
  double flops_per_us = 0, half_flops_per_us = 0;
  double bytes_per_us = 0;
  double link_bytes_per_us = 0;  // from and to the host
  double launch_us = 0;
};

struct ProgramModule {
  std::string path;  // "transformer.h.0.mlp"
  double us = 0;     // time of its forward pass, without the modules inside it
  int64_t children = 0;
};

// A traced program, and the facts about its largest model.
struct TracedProgram {
  Trace trace = {};
  double us_per_step = 0;
  std::string model = {}, name = {};  // its class, and what the program calls it
  bool uses_cache = false;            // caches keys and values
  bool normalizes_batches = false;
  std::string head = {};                    // the layer whose results the loss takes as they are
  std::vector<ProgramModule> modules = {};  // in the order of the forward pass, as far as that is known
};

// Traces a program again and again in one Python process.
class ProgramTracer {
 public:
  // Throws as trace_program does.
  explicit ProgramTracer(ProgramRequest request);
  ~ProgramTracer();

  // Traces with another batch (nullopt: that of the request) and changes; times are 0 without a speed. Throws
  // InvalidArgument if a trace with the changes is not possible, and Error as trace_program does.
  TracedProgram trace(std::optional<int64_t> batch, const ProgramChanges& changes = {},
                      const ProgramSpeed* speed = nullptr);

 private:
  struct Process;
  const ProgramRequest request_;
  std::unique_ptr<Process> process_;
};

}  // namespace headroom
