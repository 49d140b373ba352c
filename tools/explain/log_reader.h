// Reads a log, however long and dirty: pieces of any size in, one Log out. Colors, carriage returns, NUL
// bytes and broken UTF-8 do not matter. Draws no conclusions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/explain/log.h"
#include "tools/explain/rules.h"
#include "tools/explain/template_match.h"

namespace headroom::explain {

class LogReader {
 public:
  static constexpr size_t kLongestText = 400;  // in bytes, of a figure or a reason that is kept
  static constexpr size_t kMostPids = 1024;

  explicit LogReader(const Rules& rules = Rules::built_in()) { log_.rules = &rules; }
  void feed(std::string_view piece);
  // All of the log has been fed. Call once.
  Log finish();

 private:
  // A message's match, with what it captured.
  struct Match {
    std::vector<Capture> captures;
    int64_t length = 0;
  };

  void clean(std::string_view piece);
  void clean_special(char c);
  void scan(size_t end);
  void count_lines_to(size_t at);
  void read_at(size_t word, size_t begin);
  void read_setting(const Setting& setting, size_t begin);
  void keep_phase(std::string_view phase);
  void keep_option(const Setting& option, size_t begin);
  void add(const Message& message, size_t begin, const Match& match);
  void add_failure(const Message& message, size_t begin, const Match& match);
  void keep_end_of_traceback(const Message& message, size_t begin);
  void keep_phases(Failure& failure) const;
  void add_detail(const Message& message, const Match& match);
  void add_stated_cause(const Message& message, size_t begin);
  void add_background(const Message& message, size_t begin, const Match& match);
  void add_recovery(const Message& message);
  void add_progress(bool is_of_server);
  void read_hints(size_t end);
  void add_close_line(int64_t worth, size_t begin);
  void keep_tip(size_t begin);
  void add_sample(const Message& message, size_t begin, const Match& match);
  void keep_fact(const Message& message, size_t begin, const Capture& capture);
  void keep_command(size_t begin);
  void keep_variable(size_t begin);
  void keep_model(std::string_view line);
  void keep_longest_samples();
  bool is_shells_word(size_t begin, const Match& match) const;
  bool is_hypothetical(const Message& message, size_t begin, const Match& match) const;
  void keep_version_bound(const Message& message);
  Failure* failure_of_line();
  void keep_phase_below(std::string_view phase);
  void keep_phase_of_frame(std::string_view phase);
  bool ends_name_of_line(std::string_view head, size_t begin) const;
  std::string_view line_at(size_t at) const;
  std::string text_of(const Message& message, size_t begin) const;
  std::string lines_around(size_t at) const;
  const std::string& rank_here();
  std::string_view before(size_t at, size_t most) const;
  std::string_view behind(size_t at, size_t most) const;
  bool is_exception_at(size_t begin) const;

  std::string text_;       // cleaned and not yet read to its end
  size_t counted_ = 0;     // lines of text_ are counted up to here
  size_t line_begin_ = 0;  // beginning of the line that counted_ is on, as far as it is kept
  int64_t line_ = 1;
  std::string rank_;  // of the line rank_line_
  int64_t rank_line_ = 0;
  bool is_decided_ = false;  // a failure was read whose cause does not need the lines of hints
  Match best_, tried_;       // kept, so that their memory is taken once
  enum class Escape { kNone, kBegun, kSequence, kString };
  Escape escape_ = Escape::kNone;
  bool lead_byte_ = false;  // lead byte of a no-break space
  struct Hint {
    size_t begin;
    bool is_tip;
  };
  std::vector<Hint>
      hints_;  // where hints begin that are not read yet: a message may begin before one and end after it
  int64_t last_detail_line_ = 0;
  int64_t last_traceback_line_ = INT64_MIN / 2;
  int64_t last_progress_line_ = 0;
  int64_t last_frame_line_ = INT64_MIN / 2;
  int64_t handling_line_ = 0;  // of the last "During handling of the above exception"
  size_t erased_ = 0;          // bytes of the log before text_
  size_t failure_begin_ = 0;   // where in the log the last failure's message begins
  int64_t failure_length_ = 0;
  int64_t root_cause_line_ = 0;
  std::set<std::string, std::less<>> variables_;     // names that the log sets
  std::map<std::string_view, int64_t> phase_lines_;  // where each phase was seen last
  struct Series {
    bool has_unit = false;
    std::vector<Figure> all;
  };
  std::map<std::string, Series> samples_;  // by what stands before the figure, and the rank
  Log log_;
};

// The Log of a whole text.
Log read_log(std::string_view text, const Rules& rules = Rules::built_in());

}  // namespace headroom::explain
