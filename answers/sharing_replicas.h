// Replicas that share a GPU run side by side, so whether their peaks meet is a matter of time: what holds
// whatever the time.
#pragma once

#include "answers/play.h"

namespace headroom {

// Returns true if devices of several replicas are on one GPU, as virtual devices.
bool has_sharing_replicas(const Traced& program, const RunSetup& setup);

// For a program that fitted when its replicas took turns: raises the process of each shared GPU, and what is
// used of it, to the most that it can take. It no longer fits if a replica finds no room while the others
// are at their peaks.
void let_peaks_meet(const Traced& program, const RunSetup& setup, Prediction& played);

}  // namespace headroom
