// Finds steps for a cause: rows of a table that fit the framework, its version, the tool on top of it, what
// the program was doing and the settings that the log shows. Never a setting that is on already.
#pragma once

#include <string>
#include <vector>

#include "tools/explain/case.h"
#include "tools/explain/judge_log.h"

namespace headroom::explain {

struct Advice {
  std::string command;  // for a shell, or the setting to make in the program
  std::string why;
};

// Lines to paste into the program.
struct Code {
  std::string heading;  // where they belong, and for which version
  std::vector<std::string> lines;
};

// The lines for the cause in the version that the log shows, else in the newest; none where none are known.
Code code_for(const Case& found, const LogJudgment& judgment);

// Two steps for the cause, and one for each other way out of it.
std::vector<Advice> advise(const Case& found, const LogJudgment& judgment);

}  // namespace headroom::explain
