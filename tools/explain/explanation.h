// All that `headroom explain` says about a log: the cause, its evidence, what to do. Knows no output format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/explain/advice.h"
#include "tools/explain/case.h"
#include "tools/explain/judge_log.h"

namespace headroom::explain {

struct Evidence {
  std::string name;              // "requested"
  std::optional<int64_t> bytes;  // never below 0
  std::optional<int64_t> line;   // line of the log, from 1; absent for computed figures
  std::string text;              // the message's words, or how it is computed
};

struct Explanation {
  LogJudgment judgment;                  // its reason is a sentence here
  std::string_view framework;            // its name, empty where the log does not say
  std::vector<Evidence> evidence;        // messages first, then figures, then what is computed from them
  std::vector<std::string_view> tools;   // on top of the framework
  std::vector<Advice> next;              // two or more
  Code code;                             // may be empty
  std::vector<std::string_view> phases;  // the program's work when it failed
  std::vector<std::string_view> facts;   // what follows from figures and from the whole log
  std::vector<std::pair<std::string_view, int64_t>> figures;  // of the failure, by name: bytes or counts
  std::vector<std::string> already_on;                        // settings that the log shows in use
  std::vector<MisspelledVariable> misspelled;                 // environment variables that the log sets
  std::string rank;  // process whose failure is explained, as the log names it; or empty
  int64_t failure_count = 0;
  int64_t line_count = 0;
};

Explanation explain(const Log& log);

}  // namespace headroom::explain
