// The HTML page of a solution: what was chosen, what it costs, and the curve of memory against time. Knows
// neither nets nor programs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::solve {

struct PageColumn {
  std::string title;
  bool is_number = false;
};
struct PageTable {
  std::string title;
  std::vector<PageColumn> columns;
  std::vector<std::vector<std::string>> rows;  // a cell for each column
};

// A budget, and how much more time a step takes in it.
struct PagePoint {
  int64_t memory_bytes = 0;
  double more_percent = 0;
};
struct PageLine {
  std::string name;               // "same bits"
  std::vector<PagePoint> points;  // by ascending memory
};

struct SolvePage {
  bool keeps = false;
  std::string title = {}, verdict = {};
  std::vector<std::string> facts = {};  // a paragraph each
  int64_t memory_bytes = 0;             // the budget
  std::vector<PageLine> lines = {};     // two at most
  std::vector<std::string> code = {};   // lines to put into the program, with their indentation
  std::vector<PageTable> tables = {};   // those without rows are left out
};

// A self-contained page, whose tables a reader can sort. Escapes all texts.
std::string to_html(const SolvePage& page);

// The page around the data, embedded by the build.
extern const std::string_view kPageBeforeData, kPageAfterData;

}  // namespace headroom::solve
