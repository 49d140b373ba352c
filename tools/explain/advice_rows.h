// What may be done about each cause, as a table. Knows no log.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/base/cause.h"
#include "tools/explain/log.h"

namespace headroom::explain {

// A server that is started by a command takes flags, one inside a program takes arguments.
enum class When { kAlways, kCommand, kScript };

// What else has to hold for a row to fit.
struct Needs {
  int64_t from = 0;    // not for a version that is known to be older, as 1000 * major + minor
  int64_t before = 0;  // only for a version that is known to be older
  bool not_on_windows = false;
  std::optional<Kind> kind = std::nullopt;   // of the failure; none: any
  std::string_view phase = {};               // what the program was doing; empty: anything
  Framework tool = Framework::kNone;         // that the log has to name, too
  Framework unless_tool = Framework::kNone;  // that the log must not name
  When when = When::kAlways;
  bool unless_half = false;  // not where the user's own command can be halved
  bool scores = false;       // only where attention scores are the largest
  bool apple = false;        // only on Apple's GPUs
};

struct Row {
  Cause cause;
  Framework framework;       // or tool; kNone: any
  std::string_view unless;   // a setting that is on already makes the row useless
  std::string_view command;  // holes: see advice.cpp
  std::string_view why;
  Needs needs = {};
};

// Of one cause the rows stand in order of preference, all in one of the two.
std::span<const Row> rows_of_causes();
std::span<const Row> rows_of_exhausted();

}  // namespace headroom::explain
