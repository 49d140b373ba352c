// "Did you mean ...?": the nearest word of a list to one that is not in it. Knows nothing of what the words
// name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

// The number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal
// string alignment distance).
int64_t edit_distance(std::string_view a, std::string_view b);

// The word of `known` nearest to `text` without regard to case, with '_' and '-' alike; else one that
// contains it (three letters at least); empty when there is neither: more than a third of the word wrong is
// no slip of the keyboard.
std::string_view suggest_nearest(std::string_view text, std::span<const std::string_view> known);

// "a, b, c; did you mean 'b'?", or without the question when nothing is near: the end of a message on an
// unknown word.
std::string list_with_suggestion(std::string_view text, std::span<const std::string_view> known);

}  // namespace headroom
