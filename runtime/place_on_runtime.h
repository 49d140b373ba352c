// A graph on the devices of a program: what placement.h settles by name, with the devices behind the names.
#pragma once

#include "runtime/code_place.h"
#include "runtime/device_set.h"
#include "runtime/graph.h"
#include "runtime/runtime.h"

namespace headroom {

// Settles where each node of the graph runs, by the rules of the runtime's options, and returns the devices
// that it uses, each initialised; the default one is first, used or not. With the option to log placements
// each is a line on stderr. Throws as place() does, and as Runtime::device.
DeviceSet place(Graph& graph, Runtime& runtime, CodePlace here = CodePlace::here());

}  // namespace headroom
