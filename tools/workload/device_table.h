// Shows what a program takes of each of its devices, as a part of an answer. Knows no command.
#pragma once

#include <string>

#include "answers/predict.h"
#include "sheet/sheet.h"

namespace headroom {

// Adds a table with a row for each device to the array of that key, and the copies between devices; people
// see it where there are several.
void add_devices(std::string key, const Traced& program, const Prediction& prediction, Sheet& sheet);

}  // namespace headroom
