// The runs of the scenarios, each named by its id. They make something happen and say what they saw; what
// should have come out they do not know.
#pragma once

#include "tools/repro/scenario.h"

namespace headroom {

// A: TensorFlow's conv net on a laptop's GPU of 2 GB (training_runs.cpp).
Measured run_a1(const Place& place);
Measured run_a2(const Place& place);
Measured run_a3(const Place& place);
Measured run_a4(const Place& place);
Measured run_a5(const Place& place);
Measured run_a6(const Place& place);
Measured run_a7(const Place& place);
// Of several or virtual GPUs (device_runs.cpp).
Measured run_a8(const Place& place);
Measured run_a9(const Place& place);
// Of replicas (replica_runs.cpp).
Measured run_a10(const Place& place);

// B: four 2080 Ti (device_runs.cpp).
Measured run_b1(const Place& place);
Measured run_b2(const Place& place);
Measured run_b3(const Place& place);  // placement_runs.cpp, as are B7 and D1
Measured run_b4(const Place& place);
Measured run_b5(const Place& place);
Measured run_b7(const Place& place);

// C: PyTorch on a card of 6 GB (caching_runs.cpp).
Measured run_c1(const Place& place);
Measured run_c2(const Place& place);
Measured run_c3(const Place& place);
Measured run_c4(const Place& place);
Measured run_c5(const Place& place);
Measured run_c6(const Place& place);
Measured run_c7(const Place& place);
Measured run_c8(const Place& place);
Measured run_c9(const Place& place);

// Threads (stream_runs.cpp).
Measured run_b6(const Place& place);

// D: PyTorch's model of memory and devices (model_runs.cpp) and of streams (stream_runs.cpp).
Measured run_d2(const Place& place);
Measured run_d1(const Place& place);
Measured run_d3(const Place& place);
Measured run_d4(const Place& place);
Measured run_d5(const Place& place);
Measured run_d6(const Place& place);
Measured run_d7(const Place& place);
// Of replicas (replica_runs.cpp).
Measured run_d8(const Place& place);

}  // namespace headroom
