// Reads the two numbers of a sentence that says that one is larger than the other may be: "LoRA rank 64 is
// greater than max_lora_rank 16". Knows no program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headroom::explain {

struct NumberPair {
  int64_t asked = 0, most = 0;  // bytes if `is_size`, else a count of things; asked > most
  bool is_size = false;
  std::string asked_name, most_name;  // the words before each: "LoRA rank", "max_lora_rank"; may be empty
  // True if `most_name` is written like a setting of a program ("max_lora_rank", "--max-model-len").
  bool most_is_setting() const;
};

// The first pair of a line that reports an error. Nothing for a line without a comparison, with a comparison
// that holds, or without a word of an error, unless `is_of_error` says that it belongs to one.
std::optional<NumberPair> number_pair_in(std::string_view line, bool is_of_error = false);

}  // namespace headroom::explain
