// Reads a log, however long and dirty: pieces of any size in, one Log out. Colours, carriage returns, NUL
// bytes and broken UTF-8 do not matter. Draws no conclusions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tools/explain/log.h"
#include "tools/explain/messages.h"

namespace headroom::explain {

class LogReader {
 public:
  void feed(std::string_view piece);
  // All of the log has been fed. Call once.
  Log finish();

 private:
  struct Match;  // of a message, with what it captured

  void clean(std::string_view piece);
  void scan(size_t end);
  void count_lines_to(size_t at);
  void read_at(size_t word, size_t begin);
  void read_setting(const Setting& setting, size_t begin);
  void add(const Message& message, size_t begin, const Match& match);
  void add_failure(const Message& message, size_t begin, const Match& match);
  void add_detail(const Message& message, const Match& match);
  void add_stated_cause(const Message& message, size_t begin);
  void add_background(const Message& message, const Match& match);
  void keep_version_bound(const Message& message);
  Failure* failure_of_line();
  std::string_view line_at(size_t at) const;
  std::string_view rank_of(std::string_view line) const;

  std::string text_;    // cleaned and not yet read to its end
  size_t counted_ = 0;  // lines of text_ are counted up to here
  int64_t line_ = 1;
  enum class Escape { kNone, kBegun, kSequence, kString };
  Escape escape_ = Escape::kNone;
  bool lead_byte_ = false;  // of a no-break space
  int64_t last_detail_line_ = 0;
  Log log_;
};

// The Log of a whole text.
Log read_log(std::string_view text);

}  // namespace headroom::explain
