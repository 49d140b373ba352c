// Reads what a line of a log holds besides messages: the process that printed it, a command that someone
// typed, the size of a model by its name, the shape of a tensor. Knows no messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::explain {

// The mark of the process that printed a line, empty where there is none: "[rank3]", "[default3]",
// "(Worker pid=123)", "[1,3]" of MPI, "3:" of srun, "[pod/trainer-0/main]" of kubectl.
std::string_view rank_of(std::string_view line);

// The number in such a mark: the last one.
std::optional<int64_t> number_of_rank(std::string_view rank);

// This stands before a command that a program of ours tried and proposes.
inline constexpr std::string_view kProvenLead = "next:";

// The command of a prompt whose program's name stands at `at`, with the variables set before it: as far as it
// is plain words and needs no shell. Empty where the line is no prompt.
std::string command_in(std::string_view line, size_t at);

// "13b" of "meta-llama/Llama-2-13b-hf", "8x7B" of "Mixtral-8x7B"; "4bit" is appended to it where the line
// says that the weights are quantized. Empty where the line names no size.
std::string parameters_in(std::string_view line);

// 13e9 of "13b", 46e9 of "8x7B"; nothing for anything else.
std::optional<double> parameter_count(std::string_view parameters);

// The words of a name in a program, in small letters: "load", "model" of "_load_model" and of "loadModel".
std::vector<std::string> words_of_name(std::string_view name);

// Tells whether the last two of at least three extents are those of attention scores: equal and large.
bool has_scores_shape(std::string_view shape);

// Bytes of a tensor from "64,576" and "float"; nothing for a type or text that is not known, INT64_MAX for
// more than fits.
std::optional<int64_t> tensor_bytes(const std::string& dims, const std::string& type);

}  // namespace headroom::explain
