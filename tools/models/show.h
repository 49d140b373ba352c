// The view of one ONNX file: its layers, with their parameters, operations and activations at a batch, and
// the parts that would use the most memory in a training step. Needs no weights.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/app/option_set.h"
#include "tools/workload/model_files.h"

namespace headroom {

struct ShowOptions {
  ModelOptions model;
  std::string optimizer = "adam";
  std::string html;
  int64_t batch = 1;
  int64_t depth = 0;  // 0: every module
  bool json = false;
};

void add_show_options(OptionSet& set, ShowOptions& options);

// Prints the sheet of the file `options.model.path`, and writes its page.
void show_model(const ShowOptions& options, const Terminal& terminal);

}  // namespace headroom
