// What a program takes of each of its devices, as a table and as JSON. Knows no command.
#pragma once

#include <string>

#include "answers/predict.h"
#include "base/terminal.h"

namespace headroom {

// A table in MiB with a row for each device and the copies between them; empty for one device.
std::string device_table(const Traced& program, const Prediction& prediction, const Terminal& terminal);
// A JSON array, sizes in bytes.
std::string devices_json(const Traced& program, const Prediction& prediction);

}  // namespace headroom
