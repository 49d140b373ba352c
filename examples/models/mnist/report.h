// The text after training: figures, or the failure, and the next step. Knows no training.
#pragma once

#include <string>

#include "base/terminal.h"
#include "examples/models/mnist/trainer.h"

namespace headroom {

// Figures, and with `verbose` the confusion matrix; or the failure and the log lines before it.
std::string report_text(const TrainResult& result, bool verbose, const Terminal& terminal);

// One line: the next command, or the setting to change. Never names a setting that is already in use.
std::string advice(const TrainResult& result, const Runtime& runtime);

}  // namespace headroom
