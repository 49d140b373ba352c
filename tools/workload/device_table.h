// What a program is predicted to take of each of its devices, for people and for programs. Predicts nothing.
#pragma once

#include <string>

#include "tools/workload/prediction.h"

namespace headroom {

// In MiB, a line for each device, and what is copied between them; empty for one device.
std::string describe_devices(const Prediction& prediction);
// A JSON array, sizes in bytes.
std::string devices_json(const Prediction& prediction);

}  // namespace headroom
