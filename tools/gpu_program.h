// Where a subcommand works on a real GPU: in the program headroom_gpu, which is the command with kernels for
// GPUs and the libraries behind them. Those take some 70 ms to load, and most of what the command does needs
// none of them.
#pragma once

namespace headroom {

// Becomes that program for the words of a subcommand, its name first, where this one is not it. Returns where
// it is, and in a build without CUDA. Throws Error when that program cannot be started.
void continue_in_gpu_program(char** words);

}  // namespace headroom
