// The pictures of a model's page, as SVG. Knows no model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sheet/sheet.h"

namespace headroom {

struct MemoryPart {
  std::string name;
  int64_t bytes = 0;
  int color = 0;  // of the category with this number
};

// One bar of all parts, as wide as their bytes, over a list of them.
std::string draw_parts(const std::vector<MemoryPart>& parts);

struct ModuleAmount {
  std::string module;  // "encoder.layer.0.dense"
  int64_t amount = 0;
};

// Modules as boxes below the box of the module that holds them, as wide as their amount, in the order given.
std::string draw_modules(const std::vector<ModuleAmount>& modules, const Unit& unit);

}  // namespace headroom
