// A graph on the devices of a program: what placement.h settles by name, with the devices behind the names.
#pragma once

#include "runtime/app/runtime.h"
#include "runtime/base/code_place.h"
#include "runtime/graph/graph.h"
#include "runtime/session/device_set.h"

namespace headroom {

// Settles where each node of the graph runs, by the rules of the runtime's options, and returns the devices
// that it uses, each initialised; the default one is first, used or not. With the option to log placements
// each is a line on stderr. Throws as place() does, and as Runtime::device.
DeviceSet place(Graph& graph, Runtime& runtime, CodePlace here = CodePlace::here());

}  // namespace headroom
