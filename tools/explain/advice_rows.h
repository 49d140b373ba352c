// What may be done about each cause, as a table. Knows no log.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/cause.h"
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
  bool unless_half = false;    // not where the user's own command can be halved
  bool half = false;           // only where it can
  bool scores = false;         // only where attention scores are the largest
  bool workers = false;        // only where loader workers are at work, or the command sets their number
  bool python = false;         // only for a program of Python
  bool sized = false;          // only where the log says how much was requested
  bool apple = false;          // only on Apple's GPUs
  std::string_view text = {};  // one of the parts "a|b" of the failure's own words
};

struct Row {
  Cause cause;
  Framework framework;       // or tool; kNone: any
  std::string_view unless;   // a setting that is on already makes the row useless
  std::string_view command;  // holes: see advice.cpp
  std::string_view why;
  Needs needs = {};
};

// Who holds the memory of each device, and how much: a step for many causes.
inline constexpr std::string_view kWhoHolds =
    "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv";

// The parts of the one table. All rows of a cause are in one part, in order of preference.
std::span<const Row> rows_of_exhausted();  // memory is used up
std::span<const Row> rows_of_pool();       // there is memory, but not for this request; or it fills up
std::span<const Row> rows_of_models();     // weights, or a server's cache
std::span<const Row> rows_of_machine();    // not the device's memory, or nobody knows

}  // namespace headroom::explain
