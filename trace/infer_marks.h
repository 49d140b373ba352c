// Finds the steps and phases of a training in the stacks of its allocations, for traces that lack marks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/trace.h"

namespace headroom {

// `stacks`: by event, positions in Trace::names, 0 if there is none. Optimizers are recognized by frames of
// torch/optim, backward passes by the threads of autograd, steps by the lines that the program's outermost
// loop with work in it repeats. Empty if the stacks show none of them.
std::vector<TraceMark> infer_marks(const Trace& trace, std::span<const int32_t> stacks);

// Facts that the frames of a stack show about the running code.
struct StackTraits {
  bool has_python = false, has_native = false;
  bool is_optimizer = false;    // inside Optimizer.step
  bool is_backward = false;     // inside autograd's engine
  bool calls_module = false;    // inside a call of a torch.nn.Module
  bool is_workspace = false;    // inside a function that gets a library's workspace
  bool is_module_code = false;  // inside torch.nn at all, also to build or move a module
  bool builds_module = false;   // inside a constructor of torch.nn, or where a module is moved
  // The innermost Python frame computes: the forward of a module of torch.nn, or torch.nn.functional.
  bool is_forward = false;
};
StackTraits traits_of(std::string_view stack);

}  // namespace headroom
