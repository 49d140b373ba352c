// The messages that a log is read by, each as the text that printed it with holes for its figures. Knows
// nothing of what follows from them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tools/explain/log.h"

namespace headroom::explain {

struct Message {
  Kind kind;
  Framework framework;       // kNone: several print it
  std::string_view pattern;  // see match_template; begins with text
  int64_t at_least = 0;      // the first version that printed it so, as 1000 * major + minor
  bool weak = false;         // counts only on a line that no other failure is read from
  bool is_a_shells = false;  // counts only as what a shell prints of a job: alone on its line, or before it
};

// SIGKILL as an exit code: counts behind words such as "exit code" only.
inline constexpr std::string_view kKilledCode = "137";

// Where several match at one place the longest match counts.
std::span<const Message> messages();

// A setting as a log shows it where it is on. The same text inside a piece of advice ("try setting ...")
// does not count.
struct Setting {
  std::string_view name;
  std::string_view pattern;
};
std::span<const Setting> settings();

// What a program was doing, by the lines of a traceback or a log before its failure.
std::span<const Setting> phases();

// The words before a failure's words that make them a tip or a comment.
std::span<const std::string_view> hypothetical_words();

// The words before a setting that make it a piece of advice.
std::span<const std::string_view> advice_words();

}  // namespace headroom::explain
