// The part of TOML that settings need: lines of `key = value` with a string, a number or a boolean as value.
// Knows no setting.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom {

struct TomlEntry {
  std::string key;
  std::string value;  // without quotes and escapes; a number without underscores
  int line = 0;       // from 1
};

// Returns the entries of `text` in order. Throws InvalidArgument naming `file` and the line for anything that
// is not TOML, for unsupported parts (tables, arrays, dates, multi-line strings) and for a duplicate key.
std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view file);

// Returns the value as a TOML string: quoted and escaped.
std::string toml_quoted(std::string_view value);

}  // namespace headroom
