// Logs as people paste them, each with what has to be said of it: the examples of the rules, and logs whose
// form is difficult in explain/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/explain/explanation.h"

namespace headroom::explain {

// Several examples are in one file, after its rules:
//   === name
//   from: the thread that the lines are from; it has more lines, and long ones may be cut here
//   adapted: (with from) what is not the thread's own, or not in its place
//   figures: a thread whose figures these are, in lines of our own
//   cause: its cause
//   framework: (optional) whose words they are
//   next: (optional) a part of the first step
//   says: (any number) a part of the reason, of another cause or of a step
//   never: (any number) what must be in none of them
//   file: (optional) the log, where it is not plain text
//   ---
//   the log's lines
struct Example {
  std::string name, from, adapted, figures, cause, framework, next, log;
  std::vector<std::string> says, never;
};

const std::vector<Example>& examples();

// The log of an example; a failed test where there is none.
std::string log_of(std::string_view name);

Explanation explain_text(std::string_view text);

// Its steps, each with its reason.
std::string steps_of(const Explanation& explanation);

// All words of a verdict that are not the log's own.
std::string words_of(const Explanation& explanation);

}  // namespace headroom::explain
