// What the start-up hook says of a list, sum, model or other object of a program that keeps arrays: its name,
// file and line, count, bytes, `own` bytes (without the rest of what they are views of), and `graphs`; its
// kind (tensor, model, optimizer) and owner (library, queue, object of a library that is made of others,
// optimizer, error, buffer, call of a library, iterator; none: the program's own); `grows` where a line that
// may run again puts more into it, `in_step` if it is made anew in each step before its backward, `once` if
// all that a library put into it came from one call that has not ended.
#pragma once

#include <string>
#include <string_view>

#include "tools/run/facts.h"

namespace headroom {

bool has_tensors(const Facts& holder);
bool is_filled_once(const Facts& holder);
std::string line_of(const Facts& holder);         // "train.py:49", which puts arrays into it
std::string text_of(const Facts& holder);         // "maps keeps 5 tensors, 320.00 MiB, at train.py:49"
std::string_view advice_on(const Facts& holder);  // against it

}  // namespace headroom
