// The texts of repro, put into the program by the build: sections of lines under headings. Knows no scenario.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

namespace headroom::repro {

// scenarios.txt, statements.txt and programs.txt
std::string_view scenarios_text();
std::string_view statements_text();
std::string_view programs_text();

// Calls `take` for each section, with its heading and its lines.
void for_each_section(std::string_view text,
                      const std::function<void(std::string_view heading, std::string_view lines)>& take);

// The lines of a section, without comments and empty ones.
std::vector<std::string_view> rows_of(std::string_view lines);

}  // namespace headroom::repro
