// A table that fits the terminal: if that is too narrow, it wraps long texts and omits the least important
// columns, which a line below names. In a pipe it shows everything: of a width that COLUMNS sets, the columns
// without room follow in a table of their own. Knows nothing about its content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/terminal.h"

namespace headroom {

// A count as people read it: "1,234,567".
std::string thousands(int64_t number);

struct TableColumn {
  std::string title;
  bool is_number = false;  // aligned to the right
  int drop = 0;            // the column with the highest number is left out first; 0: never
  bool wraps = false;      // a long text goes on in the next line
};

struct TableCell {
  TableCell(std::string shown) : text(std::move(shown)) {}
  TableCell(std::string_view shown) : text(shown) {}
  TableCell(const char* shown) : text(shown) {}
  TableCell(std::string_view shown, Color painted) : text(shown), color(painted) {}

  std::string text;
  std::optional<Color> color = {};
};

class Table {
 public:
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // One cell for each column. A column without any text is not shown.
  void add(std::vector<TableCell> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }

  // All lines, each with its line end. `more` says where columns that are left out can be seen.
  std::string text(const Terminal& terminal, std::string_view more = "--json has all") const;

 private:
  struct Layout {
    std::vector<size_t> shown, widths;  // the columns in their order, and the width of each
    std::vector<std::string> left_out;
  };
  Layout layout(size_t width) const;
  // The columns that are not shown, after the one that names the rows.
  Table rest(const Layout& made) const;

  std::vector<TableColumn> columns_;
  std::vector<std::vector<TableCell>> rows_;
};

}  // namespace headroom
