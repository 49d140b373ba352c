// Tells whether the words around a message state that it happened, or only speak of it: a condition, a name,
// a count of 0, a test that passed. Knows no message.
#pragma once

#include <string_view>

namespace headroom::explain {

// "Test Error: 0.034", "errors: 0": what a program measured, and no error.
bool is_measured(std::string_view rest);

// `lead` stands before "out of memory" on its line, `rest` after it.
bool is_only_spoken_of(std::string_view lead, std::string_view rest);

// Tells whether "out of memory" between the two stands as a program prints what happened: at the begin of a
// line or after a colon, or beside a word of failure. Else a text speaks of it: "a 7B model runs out of
// memory on
// ...".
bool is_stated(std::string_view lead, std::string_view rest);

// "no SIGKILL", "0 OOM events": counted, and none found.
bool is_denied(std::string_view lead);

// Tells whether a number between the two is how a process ended: "exit code ", "Exited (", "status=".
bool is_exit_code(std::string_view lead, std::string_view rest);

}  // namespace headroom::explain
