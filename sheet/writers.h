// A sheet as text for people, JSON for programs, a page for a browser; a table as CSV. Knows no command.
#pragma once

#include <string>
#include <string_view>

#include "base/terminal.h"
#include "sheet/sheet.h"

namespace headroom {

// Lines that fit the terminal, the next command last.
std::string to_text(const Sheet& sheet, const Terminal& terminal);

// The fields, the tables as arrays of records, the lines of code, in the order of the sheet.
Record to_record(const Sheet& sheet);
std::string to_json(const Sheet& sheet, int indent = 2);

// A self-contained page, whose tables a reader can sort. Escapes all texts.
std::string to_html(const Sheet& sheet);

// RFC 4180: a line of keys, then a line for each row.
std::string to_csv(const SheetTable& table);

// Prints JSON or text to standard output.
void print(const Sheet& sheet, bool as_json, const Terminal& terminal);

// The text with the characters that HTML reads as its own replaced, also inside a quoted attribute.
std::string escaped_html(std::string_view text);

}  // namespace headroom
