// A subcommand that needs a real GPU continues in the program headroom_gpu: the same command, linked with the
// CUDA kernels and libraries. They take 70 ms to load, and most subcommands need none of them.
#pragma once

namespace headroom {

// Replaces this process by headroom_gpu with the arguments of a subcommand, its name first. Returns if this
// already is headroom_gpu, or if the build has no CUDA. Throws Error if the program cannot be started.
void continue_in_gpu_program(char** words);

}  // namespace headroom
