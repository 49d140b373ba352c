// Places a graph on the devices of a program, by the rules of its options (see placement.h).
#pragma once

#include "base/code_place.h"
#include "runtime/app/runtime.h"
#include "runtime/app/setup.h"
#include "runtime/graph/graph.h"
#include "runtime/session/device_set.h"

namespace headroom {

// Places the nodes of the graph as a runtime of these options would; does nothing if they place nothing. The
// graph of one of several replicas counts devices from the replica's first. Throws as place() of placement.h
// does, but does not know which kernels a real GPU lacks.
void place(Graph& graph, const RuntimeOptions& options, int replicas = 1);

// Places the graph on the devices of the runtime. Returns those that the graph uses, each initialized, with
// the default one first, used or not. Prints each placement to stderr if the options say so. Throws as
// place() of placement.h and Runtime::device do.
DeviceSet place(Graph& graph, Runtime& runtime, CodePlace here = CodePlace::here());
// Places the graph on the devices of one replica.
DeviceSet place(Graph& graph, Runtime& runtime, const ReplicaDevices& replica,
                CodePlace here = CodePlace::here());

}  // namespace headroom
