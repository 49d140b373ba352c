// Holds what a log says about its failures: texts and figures, no conclusions. Knows neither the messages
// that they were read from nor what they mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/judge.h"
#include "device/gpu_variables.h"
#include "tools/explain/rules.h"

namespace headroom::explain {

struct Figure {
  int64_t bytes = 0;
  int64_t line = 0;       // counted from 1
  int64_t precision = 0;  // in bytes: the number may be off by this much, as it was rounded when printed
};

class Figures {
 public:
  std::optional<Figure>& operator[](Field field) { return all_[static_cast<size_t>(field)]; }
  const std::optional<Figure>& operator[](Field field) const { return all_[static_cast<size_t>(field)]; }
  bool any() const {
    for (const std::optional<Figure>& figure : all_) {
      if (figure) return true;
    }
    return false;
  }

 private:
  std::array<std::optional<Figure>, enum_names<Field>().size()> all_;
};

struct Holder {
  int64_t pid = 0;
  int64_t bytes = 0;
};

struct Failure {
  Kind kind = Kind::kAllocation;
  Framework framework = Framework::kNone;
  int64_t line = 0;
  std::string rank;    // beginning of the line if several processes write one log: "[rank3]:"
  std::string text;    // the message's own words, one line without control characters
  std::string around;  // for kSomeMemory: the lines around it, which may tell whose memory it is
  std::string status, strategy, dims, type;
  std::string op, source, shape;  // the largest buffer of a compiled program
  std::map<std::string_view, int64_t>
      phases;                 // activity of the program, see Rules::phases, and its last line
  bool weak = false;          // read from a message that any other on its line replaces
  bool is_exception = false;  // it ends a traceback, or its line begins with an exception's name
  int64_t progress = 0;       // lines after it on which the training went on
  bool has_frames = false;    // the lines of a traceback stand before it
  bool fell_back = false;     // an exception after which the program tried another way
  int64_t handling_line = 0;  // it failed while the exception before this line was handled; 0: no
  Figures figures;
  std::vector<Holder> holders;
};

// The cause that Headroom printed beside a failure.
struct StatedCause {
  Cause cause = Cause::kUnknown;
  int64_t line = 0;
  std::string reason;
};

// A line that may tell the cause where none is known.
struct CloseLine {
  int64_t line = 0, score = 0;
  std::string text;
};

// What the log shows of an option that makes a step smaller: "image_max_pixels: 67108864".
struct OptionInUse {
  std::string_view kind;  // "pixels", see Rules
  std::string name;
  int64_t value = 0;
};

// A program's use of memory over time.
struct Samples {
  int64_t first = 0, middle = 0, last = 0, count = 0, falls = 0;
  int64_t first_line = 0, last_line = 0;
  bool has_unit = false;
};

struct Log {
  const Rules* rules = &Rules::built_in();  // by which it was read
  std::vector<Failure> failures;            // in the order of their lines; only the first few hundred
  std::vector<StatedCause> stated;
  int64_t failure_count = 0;
  int64_t line_count = 0;
  Figures background;                           // said of the device before or outside a failure
  std::set<Framework> mentioned;                // by paths and names of modules
  std::set<std::string, std::less<>> settings;  // names of the settings that the log shows in use
  // 1000 * major + minor: as the log names it, and the oldest and newest version that prints its messages.
  std::map<Framework, int64_t> versions, at_least, at_most;
  std::string script;                              // "train.py", from a traceback
  std::string command;                             // as the user typed it, as far as it is fit for a shell
  std::string proven;                              // with the change that a program of ours tried: it fits
  std::string share, fraction, parameters, dtype;  // the first of each
  std::optional<int64_t> root_rank;                // that failed first, as a launcher says
  std::set<int64_t> pids;              // pids of the run's processes, as launchers and loggers name them
  std::string tip;                     // what the program says itself to change, right after a failure
  std::vector<CloseLine> close_lines;  // the best few, best first
  std::vector<OptionInUse> options;    // the first few
  Samples samples;                     // samples of the process that printed most of them
  bool is_python = false;
  std::vector<MisspelledVariable> misspelled;  // that the log sets
};

}  // namespace headroom::explain
